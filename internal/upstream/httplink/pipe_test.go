package httplink_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httplink"
)

// A pipeTest is a [httplink.Pipe] and the gate behind it, which is a server of this test.
type pipeTest struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Reader
	done chan error
}

// startPipe connects a pipe to a server, for the upstream "files".
func startPipe(t *testing.T, server http.HandlerFunc) *pipeTest {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp/files", server)
	gate := &http.Server{Handler: mux, ReadHeaderTimeout: testTimeout}
	go gate.Serve(l)
	t.Cleanup(func() { gate.Close() })
	in, agentIn := io.Pipe()
	agentOut, out := io.Pipe()
	p := &pipeTest{t: t, in: agentIn, out: bufio.NewReader(agentOut), done: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		p.done <- httplink.Pipe{In: in, Out: out, Dial: httplink.Socket(socket), Path: "/mcp/files", Log: slog.New(slog.DiscardHandler)}.Run(ctx)
		out.Close()
	}()
	t.Cleanup(func() { agentIn.Close(); agentOut.Close(); stop() })
	return p
}

// say sends lines, and returns as many.
func (p *pipeTest) say(lines ...string) (answers []string) {
	p.t.Helper()
	go io.WriteString(p.in, strings.Join(lines, "\n")+"\n")
	for range lines {
		line, err := p.out.ReadString('\n')
		if err != nil {
			p.t.Fatal(err)
		}
		answers = append(answers, strings.TrimSpace(line))
	}
	return answers
}

// Every request gets one answer, also without a gate that can give it.
func TestPipeAnswersEveryRequest(t *testing.T) {
	t.Parallel()
	p := startPipe(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(body), `"ping"`):
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		case strings.Contains(string(body), `"tools/list"`):
			http.Error(w, "no", http.StatusInternalServerError)
		default: // the gate ends
			panic(http.ErrAbortHandler)
		}
	})
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                                        `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`:                                  `"id":2,"error"`,
		`{"jsonrpc":"2.0","id":"3","method":"tools/call","params":{"name":"delete_all"}}`: `"id":"3","error"`,
		`{"jsonrpc":"2.0","id":4,`:                                                        `"error"`,
		`{"jsonrpc":"2.0","id":5,"id":6,"method":"ping"}`:                                 `"error"`,
	} {
		if got := p.say(line)[0]; !strings.Contains(got, want) {
			t.Errorf("%s: %s; want %s", line, got, want)
		}
	}
}

// Messages after initialize belong to its session, also if the agent does not wait for the answer.
func TestPipeKeepsSession(t *testing.T) {
	t.Parallel()
	ended := make(chan string, 1)
	p := startPipe(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		session := r.Header.Get("Mcp-Session-Id")
		switch {
		case r.Method == http.MethodDelete:
			ended <- session
		case strings.Contains(string(body), `"initialize"`):
			w.Header().Set("Mcp-Session-Id", "one")
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":2,"result":{"session":%q}}`, session)
		}
	})
	got := p.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	if !strings.Contains(got[1], `"session":"one"`) {
		t.Error(got)
	}
	p.in.Close()
	if err := <-p.done; err != nil {
		t.Error(err)
	}
	if session := <-ended; session != "one" {
		t.Errorf("session %q ended", session)
	}
}

// An agent that closes its end of the pipe still gets the answers that come soon.
func TestPipeFinishes(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan bool), make(chan bool)
	p := startPipe(t, func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	io.WriteString(p.in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")
	<-asked
	p.in.Close()
	close(answer)
	if line, err := p.out.ReadString('\n'); !strings.Contains(line, `"result"`) {
		t.Errorf("%s, %v", line, err)
	}
	select {
	case err := <-p.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testTimeout):
		t.Error("the pipe stays")
	}
}

// Without a gate, the pipe ends at once and says why.
func TestPipeWithoutGate(t *testing.T) {
	t.Parallel()
	err := httplink.Pipe{Dial: httplink.Socket(filepath.Join(t.TempDir(), "s"))}.Run(t.Context())
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
