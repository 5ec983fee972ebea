package http1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxSmallRequest is the size up to which a write does not block even if the server
	// does not read, because socket buffers hold that much.
	maxSmallRequest = 16 << 10

	// writePiece is the size of the writes of a large body.
	writePiece = 64 << 10

	// watchAfter is the time after which an exchange watches its context. Nearly all
	// exchanges end before that, and context.AfterFunc is expensive for them.
	watchAfter = 50 * time.Millisecond

	// writerGrace is how long to wait, after the end of the answer, for the writer of the
	// request before the connection is given up.
	writerGrace = 50 * time.Millisecond
)

var errInterim = errors.New("too many interim answers")

// An exchange is a request and its answer on one connection. It is also the body of the answer.
type exchange struct {
	ctx        context.Context // of the request
	client     *Client
	conn       *conn
	deadline   time.Time // for the answer, if the connection has an earlier deadline
	closeAfter bool      // do not keep the connection

	body     io.Reader // of the answer
	ended    atomic.Bool
	reusable atomic.Bool // the answer was read to its end; the connection waits for Accept
	endErr   error       // returned by reads after the end; used by the reading goroutine only
	writer   *writer     // nil if the request was written at once

	mu       sync.Mutex  // guards the fields below
	answered bool        // the head of the answer was read, so the writer sets no read deadline
	stop     func() bool // stops watching ctx; nil if ctx is not watched
}

func newExchange(ctx context.Context, c *Client, on *conn, r *Request) *exchange {
	return &exchange{ctx: ctx, client: c, conn: on, closeAfter: r.Fresh}
}

// watch aborts the exchange when its context ends.
func (x *exchange) watch() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stop == nil && !x.ended.Load() {
		x.stop = context.AfterFunc(x.ctx, x.conn.abort)
	}
}

// unwatch stops watching the context after the exchange has ended. It returns false if the exchange
// was cancelled.
func (x *exchange) unwatch() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stop == nil || x.stop()
}

// extend lets an exchange continue after watchAfter.
func (x *exchange) extend() error {
	x.conn.unwatched = nil
	//mutate:drop TestCancel.* an exchange that lasts cannot be cancelled
	x.watch()
	return x.conn.SetDeadline(x.deadline)
}

// run sends the request with its head and returns the answer.
func (x *exchange) run(r *Request, head *[]byte) (*http.Response, error) {
	if err := x.send(r, head); err != nil {
		return nil, err
	}
	resp, err := x.receive(r.Method)
	if err != nil {
		return nil, err
	}
	x.markAnswered()
	//mutate:swap "|| resp.Close " "" TestAgreesWithTransport a connection is kept that the server closes
	x.closeAfter = x.closeAfter || resp.Close || resp.StatusCode < http.StatusOK || !resp.ProtoAtLeast(1, 1)
	resp.Request = nil
	x.body, resp.Body = resp.Body, x
	if x.body == http.NoBody {
		x.endErr = io.EOF
		x.complete()
		return resp, nil
	}
	if resp.ContentLength < 0 || resp.ContentLength > int64(x.conn.in.Buffered()) {
		x.conn.unwatched = x
		_ = x.conn.SetReadDeadline(time.Time{}) // if it fails, so does the next read
	}
	return resp, nil
}

// markAnswered notes that the head of the answer was read.
func (x *exchange) markAnswered() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered = true
}

// startAnswerTimeout sets the deadline for the answer after a large request was written, unless the
// answer is already there.
func (x *exchange) startAnswerTimeout(timeout time.Duration) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered || timeout == 0 {
		return nil
	}
	return x.conn.SetReadDeadline(time.Now().Add(timeout))
}

// send sends the request. A separate goroutine writes a large one, because the server may answer
// before it has read all of it.
func (x *exchange) send(r *Request, head *[]byte) error {
	defer headBuffers.Put(head) // the answer may take long
	if len(*head)+len(r.Body) > maxSmallRequest {
		x.watch()
		if err := x.conn.SetDeadline(time.Time{}); err != nil { // of the last exchange
			return err
		}
		x.writer = newWriter(x, *head, r)
		*head = nil // now used by the writer
		go x.writer.run()
		return nil
	}
	*head = append(*head, r.Body...)
	if err := x.setDeadline(r.Timeout); err != nil {
		return err
	}
	return x.write(*head)
}

// write sends a small request.
func (x *exchange) write(p []byte) error {
	n, err := x.conn.Write(p)
	if x.conn.unwatched == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if err := x.extend(); err != nil {
		return err
	}
	_, err = x.conn.Write(p[n:])
	return err
}

// setDeadline limits the time until the head of the answer.
func (x *exchange) setDeadline(timeout time.Duration) error {
	if timeout == 0 {
		x.watch()
		timeout = x.client.cfg.WriteTimeout
		if timeout == 0 {
			return x.conn.SetDeadline(time.Time{})
		}
		return errors.Join(x.conn.SetReadDeadline(time.Time{}), x.conn.SetWriteDeadline(time.Now().Add(timeout)))
	}
	now := time.Now()
	x.deadline = now.Add(timeout)
	if timeout <= watchAfter || x.conn.isSecure() {
		x.watch()
		return x.conn.SetDeadline(x.deadline)
	}
	x.conn.unwatched = x
	return x.conn.SetDeadline(now.Add(watchAfter))
}

// receive reads the head of the answer, after any interim answers.
func (x *exchange) receive(method string) (*http.Response, error) {
	x.conn.readingHead, x.conn.headBytesLeft, x.conn.headErr, x.conn.readTimeout = true, maxHead, nil, 0
	defer func() { x.conn.readingHead, x.conn.unwatched = false, nil }()
	var request *http.Request // only HEAD changes how an answer is parsed
	if method == http.MethodHead {
		request = &http.Request{Method: method}
	}
	//mutate:swap "maxInterim" "1 << 40" TestInterimLimit interim answers have no limit
	for range maxInterim {
		resp, err := http.ReadResponse(x.conn.in, request)
		if err != nil {
			return nil, cmp.Or(x.conn.headErr, err)
		}
		if !isInterim(resp.StatusCode) {
			return resp, nil
		}
	}
	return nil, errInterim
}

// isInterim reports whether another answer follows one with that status.
func isInterim(status int) bool {
	return status >= http.StatusContinue && status < http.StatusOK && status != http.StatusSwitchingProtocols
}

// SetReadTimeout limits later reads of the body; 0 means no limit. Only the reading goroutine may
// call it.
func (x *exchange) SetReadTimeout(d time.Duration) {
	if x.ended.Load() {
		return
	}
	//mutate:false internal/mcphttp.TestQuestionLiftsSilenceLimit the limit of an earlier read applies to a read without a limit
	if d == 0 && x.conn.readTimeout > 0 {
		_ = x.conn.SetReadDeadline(time.Time{}) // if it fails, so does the next read
	}
	x.conn.readTimeout = d
}

// Read implements [io.Reader] for the body of the answer.
func (x *exchange) Read(p []byte) (int, error) {
	if x.endErr != nil {
		return 0, x.endErr
	}
	if x.ended.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := x.body.Read(p)
	if err == nil {
		return n, nil
	}
	if x.endErr = err; errors.Is(err, io.EOF) {
		x.complete()
		return n, x.endErr
	}
	x.endErr = x.cause(err)
	x.abort()
	return n, x.endErr
}

// BeforeWait makes reads call f before they may wait for the server. Only the reading goroutine may
// call it.
func (x *exchange) BeforeWait(f func()) bool {
	if x.ended.Load() {
		return false
	}
	x.conn.beforeWait = f
	return true
}

// Close implements [io.Closer]. It ends a concurrent Read.
func (x *exchange) Close() error {
	x.abort()
	if x.reusable.CompareAndSwap(true, false) {
		//mutate:swap "conn.abort()" "client.pool.put(x.conn)" TestConnectionServesOneOwner a connection is kept whose answer was not accepted
		x.conn.abort()
	}
	return nil
}

// Accept declares that the answer with this body was read to its end and belongs to its request.
// Only then is the connection used again: after an answer to another request, all later answers
// would be off by one, too.
func Accept(body io.ReadCloser) {
	if x, ok := body.(*exchange); ok && x.reusable.CompareAndSwap(true, false) {
		x.client.pool.put(x.conn)
	}
}

// complete ends the exchange after the answer was read to its end. If the connection is in order,
// it waits for Accept.
func (x *exchange) complete() {
	if !x.ended.CompareAndSwap(false, true) {
		return
	}
	running := x.unwatch()
	//mutate:swap "&& x.conn.in.Buffered() == 0 " "" internal/mcphttp.TestAnswersStayWithTheirPrincipal a connection with bytes after its answer is kept
	if running && x.isWritten() && !x.closeAfter && x.conn.in.Buffered() == 0 && x.conn.probe != nil {
		x.conn.used, x.conn.beforeWait, x.conn.unwatched = true, nil, nil
		x.reusable.Store(true)
		return
	}
	x.drop()
}

// isWritten reports whether all of the request was written.
func (x *exchange) isWritten() bool {
	if x.writer == nil {
		return true
	}
	if x.conn.beforeWait != nil {
		x.conn.beforeWait()
	}
	//mutate:true TestEarlyAnswer a connection is kept while its request is being written
	return x.writer.succeeds(writerGrace)
}

// abort ends the exchange early. It does nothing after complete.
func (x *exchange) abort() {
	if x.ended.CompareAndSwap(false, true) {
		x.unwatch()
		//mutate:swap "drop()" "client.pool.put(x.conn)" Test(CloseWhileReading|Cancel|SlowServers) a connection is kept after half an answer
		x.drop()
	}
}

// drop closes the connection.
func (x *exchange) drop() {
	x.conn.abort()
	if x.writer != nil {
		<-x.writer.done // the writer no longer uses the body of the request
	}
}

// cause returns the reason for a failure that the connection reports as err.
func (x *exchange) cause(err error) error {
	if canceled := x.ctx.Err(); canceled != nil {
		return canceled
	}
	if x.writer != nil {
		if failed := x.writer.failed(); failed != nil {
			return failed
		}
	}
	return err
}

// A writer writes a large request.
type writer struct {
	exchange *exchange
	head     []byte
	rest     []byte
	wait     time.Duration // for each piece
	timeout  time.Duration // see Request
	done     chan struct{}
	err      error // valid once done is closed
}

func newWriter(x *exchange, head []byte, r *Request) *writer {
	return &writer{exchange: x, head: head, rest: r.Body, wait: x.client.cfg.WriteTimeout, timeout: r.Timeout, done: make(chan struct{})}
}

// run writes the request until it is complete or the connection is closed. It drops the bytes that
// were written, because the answer may last.
func (w *writer) run() {
	n := min(len(w.rest), maxSmallRequest)
	err := w.write(append(w.head, w.rest[:n]...))
	for w.head, w.rest = nil, w.rest[n:]; err == nil && len(w.rest) > 0; w.rest = w.rest[n:] {
		n = min(len(w.rest), writePiece)
		err = w.write(w.rest[:n])
	}
	w.rest = nil
	w.err = cmp.Or(err, w.exchange.startAnswerTimeout(w.timeout))
	close(w.done) // before the read ends, because cause looks at err
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.exchange.conn.abort()
	}
}

func (w *writer) write(p []byte) error {
	if w.wait > 0 {
		if err := w.exchange.conn.SetWriteDeadline(time.Now().Add(w.wait)); err != nil {
			return err
		}
	}
	if _, err := w.exchange.conn.Write(p); err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	return nil
}

// succeeds reports whether the writer ends without an error within the time limit. The server may
// answer before the last call of Write has returned.
func (w *writer) succeeds(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.done:
		return w.err == nil
	case <-timer.C:
		return false
	}
}

// failed returns why the request could not be written, or nil.
func (w *writer) failed() error {
	select {
	case <-w.done:
		return w.err
	default:
		return nil
	}
}
