// Package stdioclient runs an MCP server as a child process and speaks with it
// over its standard input and output, one message a line. The client on the other
// side of the gate and the gate itself share the server: the client's messages
// pass as they are, and the gate's own requests have ids that no client can guess.
package stdioclient

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Config says how to run one MCP server.
type Config struct {
	Name         string
	Command      []string // the program and its arguments
	Dir          string   // where it runs; empty means where the gate does
	Env          []string // nil means that of the gate
	Stderr       io.Writer
	MaxLine      int           // bytes of one line that the server writes
	Depth        int           // how deep its messages may nest; 0 means the default
	Grace        time.Duration // how long it may take to end, before it is asked to and before it is killed
	Restarts     int           // how often it is started again within a minute; 0 means never
	ListTimeout  time.Duration
	ToolsTimeout time.Duration
	ToolsPages   int
	MaxTaskTTL   time.Duration
	Log          *slog.Logger
	Metrics      *metrics.Metrics // nil counts nothing
	Tracing      *tracing.Tracing // nil traces nothing
}

// A Client speaks with the server that it runs. It implements [upstream.Server].
type Client struct {
	cfg      Config
	asks     *upstream.Upstream
	receiver upstream.Receiver
	own      ownRequests

	current atomic.Pointer[child] // nil while none can be spoken with
	started atomic.Bool           // the server has been started
	spoke   atomic.Bool           // the server has answered something

	mu       sync.Mutex
	greeting greeting
	greeted  []byte      // how the server answered the greeting when it was started last
	deaths   []time.Time // when it ended by itself, in the last minute
	latest   *child      // that was started last; nil if none was
	start    *start      // that is under way; nil if none is
	closed   bool
	running  sync.WaitGroup // of all children, and of start

	over     chan struct{} // closed when the server has ended for good
	overOnce sync.Once
	why      error
}

// New returns a client that runs the server of cfg once it is started.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg, over: make(chan struct{})}
	c.asks = upstream.New(upstream.Config{
		Name: cfg.Name, Server: c, Room: upstream.NewRoom(), ListTimeout: cfg.ListTimeout, ToolsTimeout: cfg.ToolsTimeout,
		ToolsPages: cfg.ToolsPages, MaxTaskTTL: cfg.MaxTaskTTL, Log: cfg.Log, Metrics: cfg.Metrics, Tracing: cfg.Tracing,
	})
	return c
}

// Credentials returns nil: a pipe has no headers.
func (c *Client) Credentials() http.Header { return nil }

// Upstream returns what the gate itself asks the server with.
func (c *Client) Upstream() *upstream.Upstream { return c.asks }

// Start starts the server. Its messages to the client go to receiver.
func (c *Client) Start(receiver upstream.Receiver) error {
	c.receiver = receiver
	ch, err := c.launch()
	if err != nil {
		return err
	}
	c.started.Store(true)
	c.current.Store(ch)
	return nil
}

// StartLater has the server started when it is first sent something. Its messages to
// the client go to receiver. Initialize is the message with which the client
// has once begun; nil if it is still to begin.
func (c *Client) StartLater(receiver upstream.Receiver, initialize []byte) {
	c.receiver = receiver
	if initialize != nil {
		c.greeting = greeting{initialize: initialize, initialized: []byte(`{"jsonrpc":"2.0","method":"` + methodInitialized + `"}`)}
	}
}

// Over returns a channel that is closed when the server has ended and is not
// started again. Err says why.
func (c *Client) Over() <-chan struct{} { return c.over }

// Err returns why the server has ended for good. It is valid once Over is closed.
func (c *Client) Err() error { return c.why }

// Close ends the server and returns when nothing is left of it.
func (c *Client) Close() {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	ch := c.latest // which may not have been greeted yet
	c.mu.Unlock()
	if ch != nil && first {
		ch.end(c.cfg.Grace)
	}
	c.running.Wait()
	c.end(errClosed) // if it never ran
}

// errUnwanted reports a message that must not be sent.
var errUnwanted = errors.New("the message must not be sent")

// Forward sends what the client said, as it is. The error is a [*wire.Problem]. If
// the server is just ending, the message waits for the next run of it.
func (c *Client) Forward(ctx context.Context, f upstream.Forwarded) error {
	asks := slices.ContainsFunc(f.Packet.Messages, func(m jsonrpc.Message) bool { return m.Kind == jsonrpc.Request })
	if !asks && c.current.Load() == nil {
		return nil // the server that it was meant for is gone
	}
	ch, err := c.tryForward(ctx, f)
	if ch != nil && unsentYet(err, f) {
		select {
		case <-ch.ended:
			_, err = c.tryForward(ctx, f)
		case <-ctx.Done():
		}
	}
	switch {
	case err == nil, errors.Is(err, errUnwanted):
		return nil
	case errors.Is(err, errInterrupted):
		return lostProblem(err)
	default:
		return unreachable(err)
	}
}

// unsentYet reports whether nothing of f was sent because of err, and the client
// has not been told so.
func unsentYet(err error, f upstream.Forwarded) bool {
	switch {
	case err == nil, errors.Is(err, errInterrupted), errors.Is(err, errUnwanted):
		return false
	case errors.Is(err, errDead):
		return true
	default:
		return f.Forget()
	}
}

// tryForward is Forward to one run of the server, which it returns.
func (c *Client) tryForward(ctx context.Context, f upstream.Forwarded) (*child, error) {
	greet := c.greet
	if !f.Packet.Batch && begins(&f.Packet.Messages[0]) {
		greet = nil
	}
	ch, err := c.ready(ctx, greet)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.greeting.note(f.Packet, f.Body)
	c.mu.Unlock()
	return ch, ch.write(ctx, message{text: f.Body, begin: func() error {
		if !f.Expect() {
			return errUnwanted
		}
		return nil
	}})
}

// unreachable returns the problem of a message that could not be sent.
func unreachable(cause error) *wire.Problem {
	return &wire.Problem{Type: wire.UpstreamDown, Detail: "the server is not running; the call did not run", Cause: cause}
}

// lostProblem returns the problem of a request that the server ended without
// answering.
func lostProblem(cause error) *wire.Problem {
	return &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the server ended before it answered; the call may have run", Cause: cause}
}

// launch starts the program and begins to read what it says.
func (c *Client) launch() (*child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	ch, err := startChild(&c.cfg)
	if err != nil {
		return nil, err
	}
	c.latest = ch
	c.running.Go(func() { c.run(ch) })
	return ch, nil
}

var errClosed = errors.New("the gate has ended the server")

// run reads what the server says until it has ended.
func (c *Client) run(ch *child) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read(ch)
	}()
	ch.finish(read, c.cfg.Grace)
	ch.bury()
	c.lost(ch) // before anything is sent to the next one
	c.current.CompareAndSwap(ch, nil)
	close(ch.ended)
}

// read takes what the server says, line by line.
func (c *Client) read(ch *child) {
	scan := new(jsonrpc.AnswerScanner)
	var unclear error
	ch.lines.OnLarge(func(piece []byte) {
		if unclear == nil {
			unclear = scan.Scan(piece)
		}
	})
	for {
		text, err := ch.lines.Next()
		switch {
		case errors.Is(err, jsonrpc.ErrTooLarge):
			c.tooLarge(scan.IDs())
			*scan, unclear = jsonrpc.AnswerScanner{}, nil
		case err != nil:
			return
		default:
			ch.passing.Add(1)
			c.take(upstream.ReadLine(text, c.cfg.Depth))
			ch.passing.Add(1)
		}
	}
}

// tooLarge deals with a line that is too large to be read, which answers the
// requests with the given ids.
func (c *Client) tooLarge(ids [][]byte) {
	c.cfg.Log.Warn("the server wrote a line that is too large; it was dropped", "upstream", c.cfg.Name, "max_bytes", c.cfg.MaxLine)
	problem := &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the server's answer is larger than the gate passes on (limits.max_line)"}
	ids = slices.DeleteFunc(ids, func(id []byte) bool { return c.own.fail(id, problem) })
	if len(ids) > 0 {
		c.receiver.Unanswered(ids, problem)
	}
}

// take takes a line: answers to the gate's own requests, and all else for the
// client.
func (c *Client) take(line upstream.Line) {
	if line.Err == nil && line.Packet.Messages[0].Kind == jsonrpc.Response {
		c.spoke.Store(true)
	}
	if !c.own.any() {
		c.receiver.Received(line)
		return
	}
	for _, rest := range c.own.take(line, c.cfg.Depth) {
		c.receiver.Received(rest)
	}
}

// lost deals with the end of a server.
func (c *Client) lost(ch *child) {
	why := ch.failure()
	problem := lostProblem(why)
	c.own.failAll(ch, problem)
	c.mu.Lock()
	closed := c.closed
	recent := c.died(time.Now())
	c.mu.Unlock()
	c.receiver.Unanswered(nil, problem)
	if closed {
		c.end(why)
		return
	}
	again := c.spoke.Load() && recent <= c.cfg.Restarts
	c.cfg.Log.Warn("the server ended by itself", "upstream", c.cfg.Name, "cause", why, "starts_again", again)
	if !again {
		c.end(why)
	}
}

// restartPeriod is the time in which ends of the server are counted.
const restartPeriod = time.Minute

// died notes that the server has ended, and returns how often it did recently. The
// caller holds mu.
func (c *Client) died(now time.Time) int {
	c.deaths = append(slices.DeleteFunc(c.deaths, func(at time.Time) bool { return now.Sub(at) > restartPeriod }), now)
	return len(c.deaths)
}

// end notes that the server has ended for good.
func (c *Client) end(why error) {
	c.overOnce.Do(func() {
		c.why = why
		close(c.over)
	})
}
