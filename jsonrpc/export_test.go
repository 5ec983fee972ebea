package jsonrpc

// SetWindow makes the reader hold no more than n bytes, so that tests can move
// the window over short messages.
func (r *ResponseReader) SetWindow(n int) {
	r.limit, r.window = n, make([]byte, 0, n)
}
