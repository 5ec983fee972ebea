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
	// certainRoom is how much fits into the buffers between two peers even if the
	// other one does not read, so that writing it does not block.
	certainRoom = 16 << 10

	// writePiece is how much of a large body is written at a time.
	writePiece = 64 << 10

	// watchAfter is how long an exchange may last before anybody looks whether it was
	// cancelled. Nearly all exchanges end before that, and to watch costs as much as
	// several of their steps.
	watchAfter = 50 * time.Millisecond

	// closingTime is how long the writer of a request has to end after the end of
	// the answer, if the connection is to be kept.
	closingTime = 50 * time.Millisecond
)

var errInterim = errors.New("too many interim answers")

// An exchange is a request and its answer on one connection. It is the body of the
// answer, too.
type exchange struct {
	ctx    context.Context //nolint:containedctx // of the request that the exchange is
	client *Client
	conn   *conn
	until  time.Time // when the server must have answered, if that is not the deadline yet
	closes bool      // the connection is not kept

	body   io.Reader // of the answer
	ended  atomic.Bool
	after  error   // what a read after the end returns; only for the goroutine that reads
	writer *writer // nil if the request has been written

	mu       sync.Mutex  // guards what follows
	answered bool        // the head of the answer has been read, which decides whose read deadline counts
	stop     func() bool // ends the watch of ctx; nil as long as nobody watches it
}

func newExchange(ctx context.Context, c *Client, on *conn, r *Request) *exchange {
	return &exchange{ctx: ctx, client: c, conn: on, closes: r.Fresh}
}

// watch has the exchange end with its context from now on.
func (x *exchange) watch() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stop == nil && !x.ended.Load() {
		x.stop = context.AfterFunc(x.ctx, x.conn.abort)
	}
}

// unwatch ends that, once the exchange has ended. It reports whether the exchange was not
// cancelled.
func (x *exchange) unwatch() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stop == nil || x.stop()
}

// goOn lets an exchange go on that has lasted for watchAfter.
func (x *exchange) goOn() error {
	x.conn.unwatched = nil
	x.watch()
	return x.conn.SetDeadline(x.until)
}

// run sends the request, whose head is given, and returns the answer.
func (x *exchange) run(r *Request, head *[]byte) (*http.Response, error) {
	if err := x.send(r, head); err != nil {
		return nil, err
	}
	resp, err := x.receive(r.Method)
	if err != nil {
		return nil, err
	}
	x.noteAnswer()
	x.closes = x.closes || resp.Close || resp.StatusCode < http.StatusOK
	resp.Request = nil
	if resp.Body == http.NoBody {
		x.complete()
		return resp, nil
	}
	if resp.ContentLength < 0 || resp.ContentLength > int64(x.conn.in.Buffered()) {
		x.conn.unwatched = x
		_ = x.conn.SetReadDeadline(time.Time{}) // if that fails, so does the next read
	}
	x.body, resp.Body = resp.Body, x
	return resp, nil
}

// noteAnswer notes that the server has answered in time.
func (x *exchange) noteAnswer() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered = true
}

// awaitAnswer gives the server time to answer a request that the writer has
// sent, unless it has done that already.
func (x *exchange) awaitAnswer(timeout time.Duration) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered || timeout == 0 {
		return nil
	}
	return x.conn.SetReadDeadline(time.Now().Add(timeout))
}

// send sends the request. A large one is written by a goroutine of its own,
// because the server may answer before it has read all of it.
func (x *exchange) send(r *Request, head *[]byte) error {
	defer heads.Put(head) // the answer may take long
	if len(*head)+len(r.Body) > certainRoom {
		x.watch()
		if err := x.conn.SetDeadline(time.Time{}); err != nil { // the last exchange may have left one
			return err
		}
		x.writer = newWriter(x, *head, r)
		*head = nil // it is the writer's
		go x.writer.run()
		return nil
	}
	*head = append(*head, r.Body...)
	if err := x.limit(r.Timeout); err != nil {
		return err
	}
	return x.write(*head)
}

// write sends all of a small request.
func (x *exchange) write(p []byte) error {
	n, err := x.conn.Write(p)
	if x.conn.unwatched == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if err := x.goOn(); err != nil {
		return err
	}
	_, err = x.conn.Write(p[n:])
	return err
}

// limit gives the server time until the head of its answer.
func (x *exchange) limit(timeout time.Duration) error {
	if timeout == 0 {
		x.watch()
		timeout = x.client.cfg.WriteWait
		if timeout == 0 {
			return x.conn.SetDeadline(time.Time{})
		}
		return errors.Join(x.conn.SetReadDeadline(time.Time{}), x.conn.SetWriteDeadline(time.Now().Add(timeout)))
	}
	now := time.Now()
	x.until = now.Add(timeout)
	if timeout <= watchAfter || x.conn.isSecure() {
		x.watch()
		return x.conn.SetDeadline(x.until)
	}
	x.conn.unwatched = x
	return x.conn.SetDeadline(now.Add(watchAfter))
}

// receive reads the head of the answer, and the interim answers before it.
func (x *exchange) receive(method string) (*http.Response, error) {
	x.conn.head, x.conn.left, x.conn.failed, x.conn.patience = true, maxHead, nil, 0
	defer func() { x.conn.head, x.conn.unwatched = false, nil }()
	var request *http.Request // only HEAD changes how an answer is read
	if method == http.MethodHead {
		request = &http.Request{Method: method}
	}
	for range maxInterim {
		resp, err := http.ReadResponse(x.conn.in, request)
		if err != nil {
			return nil, cmp.Or(x.conn.failed, err)
		}
		if !isInterim(resp.StatusCode) {
			return resp, nil
		}
	}
	return nil, errInterim
}

// isInterim reports whether an answer follows one with that status.
func isInterim(status int) bool {
	return status >= http.StatusContinue && status < http.StatusOK && status != http.StatusSwitchingProtocols
}

// SetPatience limits how long the server may send nothing of its answer from now
// on; 0 means any time. It is for the goroutine that reads.
func (x *exchange) SetPatience(d time.Duration) {
	if x.ended.Load() {
		return
	}
	if d == 0 && x.conn.patience > 0 {
		_ = x.conn.SetReadDeadline(time.Time{}) // of the last read; if that fails, so does the next one
	}
	x.conn.patience = d
}

// Read implements [io.Reader] for the body of the answer.
func (x *exchange) Read(p []byte) (int, error) {
	if x.after != nil {
		return 0, x.after
	}
	if x.ended.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := x.body.Read(p)
	if err == nil {
		return n, nil
	}
	if x.after = err; errors.Is(err, io.EOF) {
		x.complete()
		return n, x.after
	}
	x.after = x.cause(err)
	x.breakOff()
	return n, x.after
}

// BeforeWait has f called before whatever may wait for the server in a read. It is for the
// goroutine that reads.
func (x *exchange) BeforeWait(f func()) bool {
	if x.ended.Load() {
		return false
	}
	x.conn.beforeWait = f
	return true
}

// Close implements [io.Closer]. It may be called while another goroutine reads,
// whose read ends then.
func (x *exchange) Close() error {
	x.breakOff()
	return nil
}

// complete ends the exchange, once, whose answer was read to its end. The
// connection is kept if nothing else is wrong with it.
func (x *exchange) complete() {
	if !x.ended.CompareAndSwap(false, true) {
		return
	}
	running := x.unwatch()
	if running && x.isWritten() && !x.closes && x.conn.in.Buffered() == 0 {
		x.conn.used, x.conn.beforeWait, x.conn.unwatched = true, nil, nil
		x.client.pool.put(x.conn)
		return
	}
	x.drop()
}

// isWritten reports whether the server has taken all of the request.
func (x *exchange) isWritten() bool {
	if x.writer == nil {
		return true
	}
	if x.conn.beforeWait != nil {
		x.conn.beforeWait()
	}
	return x.writer.isDone(closingTime)
}

// breakOff ends the exchange, once, before its time.
func (x *exchange) breakOff() {
	if x.ended.CompareAndSwap(false, true) {
		x.unwatch()
		x.drop()
	}
}

// drop closes the connection.
func (x *exchange) drop() {
	x.conn.abort()
	if x.writer != nil {
		<-x.writer.done // nothing reads the body of the request any more
	}
}

// cause returns why the exchange failed, given what the connection says.
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
	x       *exchange
	head    []byte
	rest    []byte
	wait    time.Duration // for the server to take a piece
	timeout time.Duration // see Request
	done    chan struct{}
	err     error // once done
}

func newWriter(x *exchange, head []byte, r *Request) *writer {
	return &writer{x: x, head: head, rest: r.Body, wait: x.client.cfg.WriteWait, timeout: r.Timeout, done: make(chan struct{})}
}

// run writes the request. It ends when all is written or the connection is closed.
// It forgets what it has written, because the answer may last.
func (w *writer) run() {
	n := min(len(w.rest), certainRoom)
	err := w.write(append(w.head, w.rest[:n]...))
	for w.head, w.rest = nil, w.rest[n:]; err == nil && len(w.rest) > 0; w.rest = w.rest[n:] {
		n = min(len(w.rest), writePiece)
		err = w.write(w.rest[:n])
	}
	w.rest = nil
	w.err = cmp.Or(err, w.x.awaitAnswer(w.timeout))
	close(w.done) // before the reader's read ends, which looks for the reason
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.x.conn.abort()
	}
}

func (w *writer) write(p []byte) error {
	if w.wait > 0 {
		if err := w.x.conn.SetWriteDeadline(time.Now().Add(w.wait)); err != nil {
			return err
		}
	}
	if _, err := w.x.conn.Write(p); err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	return nil
}

// isDone reports whether all is written. The server may have taken the last piece and
// answered before the writer knows that, so isDone waits for a moment.
func (w *writer) isDone(wait time.Duration) bool {
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-w.done:
		return w.err == nil
	case <-limit.C:
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
