package mcphttp

import (
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
)

// A response writes the HTTP answer to one request. Only one goroutine may write at a time.
type response struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration // for the client to accept each piece
	status  int           // sent to the client
	began   bool          // whether anything was sent
}

func newResponse(w http.ResponseWriter, timeout time.Duration) response {
	return response{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// header returns the headers, which can be changed until begin.
func (r *response) header() http.Header { return r.w.Header() }

// begin sends the status and the headers.
func (r *response) begin(status int) {
	r.began, r.status = true, status
	r.w.WriteHeader(status)
}

// message sends a JSON message as the whole answer.
func (r *response) message(status int, message []byte) error {
	r.header().Set("Content-Type", "application/json")
	r.begin(status)
	return r.write(message)
}

// write sends a piece of the answer. The error is [conversation.ErrGone] if the client does not
// accept it.
func (r *response) write(p []byte) error {
	if r.tryWrite(p) != nil {
		return conversation.ErrGone
	}
	return nil
}

func (r *response) tryWrite(p []byte) error {
	if err := r.extend(); err != nil {
		return err
	}
	_, err := r.w.Write(p)
	return err
}

// extend gives the client time to accept the next piece.
func (r *response) extend() error { return r.control.SetWriteDeadline(time.Now().Add(r.timeout)) }

// flush flushes the buffered bytes to the connection.
func (r *response) flush() error {
	if r.control.Flush() != nil {
		return conversation.ErrGone
	}
	return nil
}

// sendNow writes and flushes a piece.
func (r *response) sendNow(p []byte) error {
	if err := r.write(p); err != nil {
		return err
	}
	return r.flush()
}

// cut breaks the connection and so ends the exchange. Any goroutine may call it.
func (r *response) cut() {
	_ = r.control.SetWriteDeadline(time.Unix(1, 0))
	_, _ = r.w.Write([]byte("\r")) // does not complete an event
	_ = r.control.Flush()
}
