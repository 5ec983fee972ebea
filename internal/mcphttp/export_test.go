package mcphttp

// Used returns how much of each pool is in use.
func (h *Handler) Used() map[string]int64 {
	return map[string]int64{
		"requests": h.requests.Used(), "streams": h.streams.Used(), "waiting": h.waiting.Used(),
		"anonymous": h.anonymous.Used(), "bodies": h.cfg.Bodies.Used(),
	}
}

// SocketUser is socketUser.
var SocketUser = socketUser
