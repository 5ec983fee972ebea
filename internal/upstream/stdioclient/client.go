// Package stdioclient runs an MCP server as a child process and talks to it over standard input and
// output, with one message per line. The gate and the client behind it share the server: messages
// of the client pass unchanged, and requests of the gate have random ids.
//
//	client := stdioclient.New(stdioclient.Config{Name: "files", Command: []string{"mcp-files"}})
//	err := client.Start(receiver) // receiver gets the messages for the client
//	err = client.Forward(ctx, message)
//	resp, err := client.Send(ctx, request) // a request of the gate
//	client.Close()
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

	"golang.org/x/sync/singleflight"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A Config says how to run one MCP server.
type Config struct {
	Name         string
	Command      []string // the program and its arguments
	Dir          string   // working directory; empty means that of the gate
	Env          []string // nil means the environment of the gate
	Stderr       io.Writer
	MaxLine      int           // maximum bytes of a line that the server writes
	Depth        int           // maximum nesting of its messages; 0 means the default
	Grace        time.Duration // how long to wait before SIGTERM, and again before SIGKILL
	Restarts     int           // maximum restarts within a minute
	ListTimeout  time.Duration
	ToolsTimeout time.Duration
	ToolsPages   int
	MaxTaskTTL   time.Duration
	Log          *slog.Logger
	Metrics      *metrics.Metrics // may be nil
	Tracing      *tracing.Tracing // may be nil
}

// A Client runs a server and talks to it. It implements [upstream.Server].
type Client struct {
	cfg      Config
	upstream *upstream.Upstream
	receiver upstream.Receiver
	requests pendingRequests

	current     atomic.Pointer[child] // nil while the server is not ready
	starts      singleflight.Group    // attempts to start the server
	hasStarted  atomic.Bool           // the server was started before
	hasAnswered atomic.Bool           // the server has answered a request

	mu               sync.Mutex
	handshake        handshake
	initializeResult []byte      // the server's last result of initialize
	deaths           []time.Time // when the server ended by itself, in the last minute
	latest           *child      // the child that was started last; may be nil
	closed           bool
	running          sync.WaitGroup // all children, and attempts to start

	done     chan struct{} // closed when the server has ended and is not restarted
	doneOnce sync.Once
	doneErr  error
}

// New returns a client for the server of cfg. It does not start the server.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg, done: make(chan struct{})}
	c.upstream = upstream.New(upstream.Config{
		Name: cfg.Name, Server: c, AnswerLimit: upstream.NewAnswerLimit(), ListTimeout: cfg.ListTimeout, ToolsTimeout: cfg.ToolsTimeout,
		StartTimeout: InitializeTimeout, ToolsPages: cfg.ToolsPages, MaxTaskTTL: cfg.MaxTaskTTL, Log: cfg.Log, Metrics: cfg.Metrics, Tracing: cfg.Tracing,
	})
	return c
}

// Credentials returns nil: a pipe has no headers.
func (c *Client) Credentials() http.Header { return nil }

// Upstream makes the requests of the gate itself.
func (c *Client) Upstream() *upstream.Upstream { return c.upstream }

// Start starts the server. The receiver gets its messages for the client.
func (c *Client) Start(receiver upstream.Receiver) error {
	c.receiver = receiver
	ch, err := c.launch()
	if err != nil {
		return err
	}
	c.hasStarted.Store(true)
	c.current.Store(ch)
	return nil
}

// StartOnDemand makes the client start the server before the first message. The receiver gets its
// messages for the client. Initialize is the initialize request of the client if it was sent to an
// earlier run of the server, or nil.
func (c *Client) StartOnDemand(receiver upstream.Receiver, initialize []byte) {
	c.receiver = receiver
	if initialize != nil {
		c.handshake = handshake{initialize: initialize, initialized: []byte(`{"jsonrpc":"2.0","method":"` + mcpname.NotifyInitialized + `"}`)}
	}
}

// Done returns a channel that is closed when the server has ended and is not restarted. Err returns
// the reason.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the server has ended. It is valid once Done is closed.
func (c *Client) Err() error { return c.doneErr }

// Close ends the server and its descendants.
func (c *Client) Close() {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	ch := c.latest // may not be current yet
	c.mu.Unlock()
	if ch != nil && first {
		ch.end(c.cfg.Grace)
	}
	c.running.Wait()
	c.end(errClosed) // for a server that never ran
}

// errNotExpected reports a message that must not be sent.
var errNotExpected = errors.New("the message must not be sent")

// Forward sends a message of the client unchanged. The error is a [*mcp.Problem]. If the server is
// about to end, the message goes to its next run.
func (c *Client) Forward(ctx context.Context, f upstream.Forwarded) error {
	asks := slices.ContainsFunc(f.Packet.Messages, func(m jsonrpc.Message) bool { return m.Kind == jsonrpc.Request })
	if !asks && c.current.Load() == nil {
		return nil // that server has ended
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
	case err == nil, errors.Is(err, errNotExpected):
		return nil
	case errors.Is(err, errInterrupted):
		return lostProblem(err)
	default:
		return unreachable(err)
	}
}

// unsentYet reports whether err means that nothing of f was sent, and the client has not been told.
func unsentYet(err error, f upstream.Forwarded) bool {
	switch {
	case err == nil, errors.Is(err, errInterrupted), errors.Is(err, errNotExpected):
		return false
	case errors.Is(err, errEnded):
		return true
	default:
		return f.Forget == nil || f.Forget()
	}
}

// tryForward forwards a message to one run of the server, which it returns.
func (c *Client) tryForward(ctx context.Context, f upstream.Forwarded) (*child, error) {
	ch, err := c.ready(ctx, f.Packet)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.handshake.note(f.Packet, f.Body)
	c.mu.Unlock()
	return ch, ch.write(ctx, message{text: f.Body, begin: func() error {
		if f.Expect != nil && !f.Expect() {
			return errNotExpected
		}
		return nil
	}})
}

// unreachable returns the problem of a message that could not be sent.
func unreachable(cause error) *mcp.Problem {
	return &mcp.Problem{Type: mcp.UpstreamDown, Detail: "the server is not running; the call did not run", Cause: cause}
}

// lostProblem returns the problem of a request that the server did not answer before it ended.
func lostProblem(cause error) *mcp.Problem {
	return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the server ended before it answered; the call may have run", Cause: cause}
}

// launch starts the program and begins to read its output.
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

// run reads the server's output until it has ended.
func (c *Client) run(ch *child) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read(ch)
	}()
	ch.finish(read, c.cfg.Grace)
	ch.stopWriting()
	c.childEnded(ch) // before messages are sent to the next child
	c.current.CompareAndSwap(ch, nil)
	close(ch.ended)
}

// read passes on the server's output line by line.
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
			ch.passed.Add(1)
			c.take(upstream.ReadLine(text, c.cfg.Depth))
			ch.passed.Add(1)
		}
	}
}

// tooLarge handles a line that is too large. Ids are the ids of the answers in it.
func (c *Client) tooLarge(ids [][]byte) {
	c.cfg.Log.Warn("dropped a line of the server that is too large", "upstream", c.cfg.Name, "max_bytes", c.cfg.MaxLine)
	problem := upstream.TooLarge()
	ids = slices.DeleteFunc(ids, func(id []byte) bool { return c.requests.fail(id, problem) })
	if len(ids) > 0 {
		c.receiver.Unanswered(ids, problem)
	}
}

// take dispatches a line: answers to requests of the gate, and all other messages to the receiver.
func (c *Client) take(line upstream.Line) {
	if line.Err == nil && line.Packet.Messages[0].Kind == jsonrpc.Response {
		c.hasAnswered.Store(true)
	}
	if !c.requests.any() {
		c.receiver.Received(line)
		return
	}
	for _, rest := range c.requests.take(line, c.cfg.Depth) {
		c.receiver.Received(rest)
	}
}

// childEnded handles the end of a child.
func (c *Client) childEnded(ch *child) {
	why := ch.failure()
	problem := lostProblem(why)
	c.requests.failAll(ch, problem)
	c.mu.Lock()
	closed := c.closed
	recent := c.countEnd(time.Now())
	c.mu.Unlock()
	c.receiver.Unanswered(nil, problem)
	if closed {
		c.end(why)
		return
	}
	again := c.hasAnswered.Load() && recent <= c.cfg.Restarts
	c.cfg.Log.Warn("server ended by itself", "upstream", c.cfg.Name, "err", why, "restart", again)
	if !again {
		c.end(why)
	}
}

// restartPeriod is the period of Config.Restarts.
const restartPeriod = time.Minute

// countEnd notes that the server has ended and returns how often it did within restartPeriod. The
// caller holds mu.
func (c *Client) countEnd(now time.Time) int {
	c.deaths = append(slices.DeleteFunc(c.deaths, func(at time.Time) bool { return now.Sub(at) > restartPeriod }), now)
	return len(c.deaths)
}

// end notes that the server has ended and is not restarted.
func (c *Client) end(why error) {
	c.doneOnce.Do(func() {
		c.doneErr = why
		close(c.done)
	})
}
