package mcphttp

// Listening returns on how many streams the gate can speak unasked, and is
// ready to.
func (h *Handler) Listening() int {
	h.listeners.mu.Lock()
	defer h.listeners.mu.Unlock()
	n := 0
	for _, a := range h.listeners.clients {
		select {
		case <-a.begun:
			n += len(a.streams)
		default:
		}
	}
	return n
}

// ReportInterval is how often the gate acts on what an upstream says of a task.
const ReportInterval = reportInterval

// Used returns how much of each pool is in use.
func (h *Handler) Used() map[string]int64 {
	return map[string]int64{
		"requests": h.requests.Used(), "streams": h.streams.Used(), "waiting": h.waiting.Used(),
		"anonymous": h.anonymous.Used(), "bodies": h.cfg.Bodies.Used(),
	}
}
