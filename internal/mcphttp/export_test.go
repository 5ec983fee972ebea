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
