// Package pipeserver helps tests to write an MCP server over standard input and output. A test
// runs its own program as the server.
package pipeserver

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A Server answers requests with functions of a test. It writes every received line to a file.
type Server struct {
	Prefix   string // of each line in the file
	Stubborn bool   // ignore signals and the end of the input
	Banner   []string
	Handle   func(*Server, *jsonrpc.Message) // is called with each request, in a new goroutine

	seen    *os.File
	mu      sync.Mutex
	answers map[string]chan string
}

// Serve serves until the input ends. It writes the received lines to the named file.
func (s *Server) Serve(file string) {
	var err error
	if s.seen, err = os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		panic(err)
	}
	s.answers = map[string]chan string{}
	s.note("started")
	for _, line := range s.Banner {
		s.Write(line)
	}
	if s.Stubborn {
		signal.Ignore(syscall.SIGTERM)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		s.note(lines.Text())
		p, err := jsonrpc.Parse([]byte(lines.Text()), jsonrpc.Limits{})
		if err != nil {
			s.Write(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`)
			continue
		}
		for i := range p.Messages {
			go s.take(&p.Messages[i])
		}
	}
	s.note("end of input")
	if s.Stubborn {
		select {}
	}
}

func (s *Server) take(m *jsonrpc.Message) {
	switch m.Kind {
	case jsonrpc.Request:
		s.Handle(s, m)
	case jsonrpc.Response:
		s.mu.Lock()
		answer := s.answers[string(m.ID.Bytes)]
		s.mu.Unlock()
		if answer != nil {
			answer <- string(m.Raw)
		}
	default:
	}
}

func (s *Server) note(line string) { _, _ = fmt.Fprintln(s.seen, s.Prefix+line) }

// Write writes a line to standard output.
func (s *Server) Write(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Println(line)
}

// Result answers a request.
func (s *Server) Result(m *jsonrpc.Message, result string) {
	s.Write(string(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(result))))
}

// Text answers a call with a text.
func (s *Server) Text(m *jsonrpc.Message, text string) {
	s.Result(m, `{"content":[{"type":"text","text":`+string(jsonrpc.AppendString(nil, text))+`}]}`)
}

// Fail answers a request with an error.
func (s *Server) Fail(m *jsonrpc.Message, code int, text string) {
	s.Write(string(jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, &jsonrpc.Error{Code: code, Message: text})))
}

// Ask sends a request to the client, and returns the answer as received. rest is the part of
// the request after the id.
func (s *Server) Ask(rest string) string {
	answer := make(chan string, 1)
	id := `"question-` + strconv.FormatInt(time.Now().UnixNano(), 10) + `"`
	s.mu.Lock()
	s.answers[id] = answer
	s.mu.Unlock()
	s.Write(`{"jsonrpc":"2.0","id":` + id + rest + `}`)
	return <-answer
}
