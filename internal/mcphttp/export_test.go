package mcphttp

import "context"

// Used returns the usage of each pool.
func (h *Handler) Used() map[string]int64 {
	return map[string]int64{
		"requests": h.requests.Used(), "streams": h.streams.Used(), "waiting": h.waiting.Used(),
		"anonymous": h.anonymous.Used(), "bodies": h.cfg.Bodies.Used(),
	}
}

// IsOwn reports whether the user of the gate opened the connection of a context.
func IsOwn(ctx context.Context) bool {
	u, known := ctx.Value(localUserKey{}).(*localUser)
	return known && u.isOwn()
}
