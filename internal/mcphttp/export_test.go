package mcphttp

import "context"

// Used returns how much of each pool is in use.
func (h *Handler) Used() map[string]int64 {
	return map[string]int64{
		"requests": h.requests.Used(), "streams": h.streams.Used(), "waiting": h.waiting.Used(),
		"anonymous": h.anonymous.Used(), "bodies": h.cfg.Bodies.Used(),
	}
}

// IsOwn reports whether the gate's own user has opened the connection of a context.
func IsOwn(ctx context.Context) bool {
	u, known := ctx.Value(localUserKey{}).(*localUser)
	return known && u.isOwn()
}
