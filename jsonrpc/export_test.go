package jsonrpc

// SetWindow sets the size of the window, so that tests can move it over short messages.
func (r *ResponseReader) SetWindow(n int) {
	r.outcome.walker.limit, r.outcome.walker.window = n, make([]byte, 0, n)
}
