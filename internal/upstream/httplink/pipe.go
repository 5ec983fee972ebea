package httplink

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

const (
	connectTimeout = 5 * time.Second
	maxMessage     = 64 << 20        // bytes
	finishTimeout  = 2 * time.Second // for answers, after the agent has closed its end of the pipe
)

// A Pipe connects an agent at a pipe to a gate that serves HTTP. It has no policy, no store and no
// credentials: the gate knows the agent by its connection.
type Pipe struct {
	In   io.Reader       // from the agent
	Out  io.Writer       // to the agent
	Dial httpclient.Dial // connects to the gate
	Path string          // at which the gate serves the agent
	Log  *slog.Logger
}

// Socket returns a function that connects to a Unix socket.
func Socket(path string) httpclient.Dial {
	dialer := net.Dialer{Timeout: connectTimeout}
	return func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }
}

// Run passes messages between the agent and the gate until the agent closes its end of the pipe, or
// ctx ends. It returns an error if the gate cannot be reached at the start.
func (p Pipe) Run(ctx context.Context) error {
	c, err := p.Dial(ctx)
	if err != nil {
		return err
	}
	_ = c.Close() // each request has its own connection
	// Only the gate limits times: it knows how long a call waits for a person.
	client := httpclient.New(httpclient.Config{
		Name: p.Path, URL: &url.URL{Scheme: "http", Host: "thoughtgate", Path: p.Path}, Dial: p.Dial, ConnectTimeout: connectTimeout, Log: p.Log,
	})
	s := &pipeSession{out: p.Out, pending: map[string]mcp.Era{}, left: make(chan struct{})}
	s.answered = sync.NewCond(&s.mu)
	s.link = New(Config{Client: client, Upstream: upstream.Config{Name: p.Path, Log: p.Log}, MaxLine: maxMessage, Log: p.Log})
	if err := s.link.Start(s); err != nil {
		return err
	}
	defer s.link.Close()
	go func() { // ends with the pipe, possibly after ctx
		defer close(s.left)
		s.read(ctx, p)
	}()
	select {
	case <-ctx.Done():
	case <-s.left:
		s.finish(ctx)
	}
	return nil
}

// A pipeSession is an agent at a pipe. It implements [upstream.Receiver].
type pipeSession struct {
	link *Link
	left chan struct{} // closed when the agent has closed its end of the pipe

	mu       sync.Mutex
	answered *sync.Cond
	out      io.Writer
	pending  map[string]mcp.Era // unanswered requests, by id
}

// read forwards the messages of the agent.
func (s *pipeSession) read(ctx context.Context, p Pipe) {
	lines := jsonrpc.NewLineReader(p.In, maxMessage)
	for {
		text, err := lines.Next()
		if errors.Is(err, jsonrpc.ErrTooLarge) {
			s.refuse(nil, &mcp.Problem{Type: mcp.BodyTooLarge})
			continue
		}
		if err != nil {
			return
		}
		if line := upstream.ReadLine(text, 0); line.Err != nil {
			s.refuse(nil, &mcp.Problem{Type: mcp.InvalidRequest, Cause: line.Err})
		} else if err := s.forward(ctx, line); err != nil {
			p.Log.WarnContext(ctx, "a message did not reach the gate", "err", err)
		}
	}
}

// forward sends a message of the agent to the gate.
func (s *pipeSession) forward(ctx context.Context, line upstream.Line) error {
	begins := false
	s.mu.Lock()
	for i := range line.Packet.Messages {
		if m := &line.Packet.Messages[i]; m.Kind == jsonrpc.Request {
			s.pending[jsonrpc.IDKey(m.ID.Bytes)] = mcp.EraOf(m)
			begins = begins || m.Method == mcpname.Initialize
		}
	}
	s.mu.Unlock()
	always := func() bool { return true }
	err := s.link.Forward(ctx, upstream.Forwarded{Packet: line.Packet, Body: line.Text, Expect: always, Forget: always})
	if begins && err == nil {
		s.wait(ctx) // further messages belong to the session, whose id is in the answer
	}
	return err
}

// Received implements [upstream.Receiver].
func (s *pipeSession) Received(line upstream.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(line.Text)
	for i := range line.Packet.Messages {
		if m := &line.Packet.Messages[i]; m.Kind == jsonrpc.Response {
			s.end(m.ID.Bytes)
		}
	}
}

// Unanswered implements [upstream.Receiver].
func (s *pipeSession) Unanswered(ids [][]byte, problem *mcp.Problem) {
	for _, id := range ids {
		s.refuse(id, problem)
	}
}

// refuse answers a request with an error, if it is still pending. Its id may be nil.
func (s *pipeSession) refuse(id []byte, problem *mcp.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	era, ok := s.pending[jsonrpc.IDKey(id)]
	if id != nil && !ok {
		return
	}
	s.write(problem.AppendResponse(nil, era, id, ""))
	s.end(id)
}

// write sends a line to the agent. The agent closes both ends of its pipe, so an error can be
// ignored. The caller holds the mutex.
func (s *pipeSession) write(message []byte) {
	_, _ = s.out.Write(jsonrpc.AppendLine(nil, message))
}

// end notes that a request is answered. The caller holds the mutex.
func (s *pipeSession) end(id []byte) {
	delete(s.pending, jsonrpc.IDKey(id))
	s.answered.Broadcast()
}

// finish waits a short time for the answers that are missing.
func (s *pipeSession) finish(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, finishTimeout)
	defer stop()
	s.wait(ctx)
}

// wait waits until all requests are answered, or ctx ends.
func (s *pipeSession) wait(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answered.Broadcast()
	})()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) > 0 && ctx.Err() == nil {
		s.answered.Wait()
	}
}
