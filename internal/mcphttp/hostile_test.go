package mcphttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A socket is an upstream that sends given bytes on persistent connections.
type socket struct {
	open sync.WaitGroup

	mu    sync.Mutex
	early bool // answer before reading the body
	say   func(w io.Writer, id string)
}

// says sets how the upstream answers.
func (s *socket) says(early bool, say func(w io.Writer, id string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.early, s.say = early, say
}

// serveSocket serves s and returns its address.
func serveSocket(t *testing.T, s *socket) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.open.Go(func() { s.talk(conn) })
		}
	})
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String()
}

// talk answers requests on one connection. It answers requests of the gate properly.
func (s *socket) talk(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		s.mu.Lock()
		early, say := s.early, s.say
		s.mu.Unlock()
		if early {
			say(conn, "9")
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		switch id := idOf(string(body)); {
		case early:
		case strings.HasPrefix(id, `"tg-`):
			io.WriteString(conn, response(`{"jsonrpc":"2.0","id":`+id+`,"result":{"tools":[],"capabilities":{}}}`))
		default:
			say(conn, id)
		}
	}
}

// response returns a valid answer.
func response(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func textResult(id, text string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"` + text + `"}]}}`
}

// newSocketFixture returns a fixture with upstream s.
func newSocketFixture(t *testing.T, s *socket) *fixture {
	t.Helper()
	h := newFixture(t, nil)
	up := serveSocket(t, s)
	h.gateway = startGate(t, up, func(c settings) {
		c.handler.Catalog, c.handler.Approvals, c.handler.Waiting = h.catalog, h.approvals, h.waiting
	})
	return h
}

// hostileAnswers may replace the answer to request ID. Invalid ones end with bytes that could
// be taken for an answer to another request.
func hostileAnswers() map[string]hostileAnswer {
	return map[string]hostileAnswer{
		"informational answers":                 {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 3) + "FINE", true},
		"a body that is longer than announced":  {"FINE" + "SMUGGLED", true},
		"blank lines after the answer":          {"FINE\r\n\r\nSMUGGLED", true},
		"a body that is shorter than announced": {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\nBODY", false},
		"two lengths":                           {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: LENGTH\r\nContent-Length: 5\r\n\r\nBODYSMUGGLED", false},
		"a length with a sign":                  {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: +LENGTH\r\n\r\nBODYSMUGGLED", false},
		"a negative length":                     {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: -1\r\n\r\nBODYSMUGGLED", false},
		"a length in a list":                    {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: LENGTH, 5\r\n\r\nBODYSMUGGLED", false},
		"a length and chunks":                   {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nSIZE\r\nBODY\r\n0\r\n\r\nSMUGGLED", true},
		"an unknown coding":                     {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: xchunked\r\n\r\nBODYSMUGGLED", false},
		"two codings":                           {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: gzip, chunked\r\n\r\nSIZE\r\nBODY\r\n0\r\n\r\nSMUGGLED", false},
		"an invalid chunk size":                 {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nBODY\r\n0\r\n\r\n", false},
		"a chunk size that is too large":        {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nBODY\r\n0\r\n\r\n", false},
		"a chunk without an end":                {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nSIZE\r\nBODYSMUGGLED", false},
		"no last chunk":                         {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nSIZE\r\nBODY\r\n", false},
		"a long chunk extension":                {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nSIZE;" + strings.Repeat("x", 1<<20) + "\r\nBODY\r\n0\r\n\r\n", false},
		"a huge header":                         {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 11<<20) + "\r\nContent-Type: application/json\r\nContent-Length: LENGTH\r\n\r\nBODY", false},
		"very many headers":                     {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Y: z\r\n", 2<<20) + "Content-Length: LENGTH\r\n\r\nBODY", false},
		"a NUL in a header":                     {"HTTP/1.1 200 OK\r\nX\x00Y: z\r\nContent-Type: application/json\r\nContent-Length: LENGTH\r\n\r\nBODY", false},
		"no answer to a request":                {"HTTP/1.1 204 No Content\r\n\r\nSMUGGLED", false},
		"no HTTP":                               {"BODY", false},
		"another answer's id":                   {"SMUGGLED", false},
		"an unknown media type":                 {"HTTP/1.1 201 Created\r\nContent-Type: text/event-streams\r\nContent-Length: 77\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[\"smuggled\"],\"pad\":\"xx\"}}\n\n", false},
		"control characters in an event":        {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: a\x00b\r\nevent: message\revent: message\r\nretry: 1\x00\r\ndata: BODY\r\n\r\n", true},
	}
}

// A hostileAnswer may be one that clients can read.
type hostileAnswer struct {
	text string
	fine bool
}

// hostile returns a hostile answer to the request with the given ID.
func hostile(text, id string) string {
	body := textResult(id, "fine")
	return strings.NewReplacer(
		"FINE", response(body), "BODY", body,
		"LENGTH", fmt.Sprint(len(body)), "SIZE", fmt.Sprintf("%x", len(body)),
		"SMUGGLED", response(textResult("7", "smuggled")),
	).Replace(text)
}

// A client gets the answer or an error. Bytes after an answer do not answer the next request. A
// call without an answer does not count as completed.
func TestHostileAnswersAreContained(t *testing.T) {
	for name, tt := range hostileAnswers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &socket{}
			h := newSocketFixture(t, s)
			for _, early := range []bool{false, true} {
				s.says(early, func(w io.Writer, id string) {
					io.WriteString(w, hostile(tt.text, id))
					if conn := w.(net.Conn); !tt.fine || strings.Contains(tt.text, "event-stream") {
						conn.Close()
					}
				})
				got := h.ask(toolCall("9", "get_x", ""))
				checkHostile(t, "forwarded", got, tt.fine)
				s.says(false, func(w io.Writer, id string) { io.WriteString(w, response(textResult(id, "next"))) })
				eventually(t, "the next call is answered, maybe on another connection", func() bool {
					next := h.ask(toolCall("7", "get_y", ""))
					if strings.Contains(next, "smuggled") {
						t.Errorf("the next call was answered %s", next)
					}
					return strings.Contains(next, `"id":7`) && strings.Contains(next, "next")
				})
			}
			s.says(false, func(w io.Writer, id string) {
				io.WriteString(w, hostile(tt.text, id))
				w.(net.Conn).Close()
			})
			for era, send := range map[string]func() *request{
				"legacy": func() *request { return h.send(toolCall("9", "hold_x", "")) },
				"modern": func() *request { return h.send(modernCall("hold_x", ""), modernHeaders("hold_x")...) },
			} {
				held := send()
				id := h.pending(1)[0]
				h.approve(id)
				got := held.wait(t)
				checkHostile(t, era, got, tt.fine)
				if state := h.state(id); (state == task.Completed) != tt.fine {
					t.Errorf("%s: the task is %s; the client got %s", era, state, got)
				}
			}
		})
	}
}

func checkHostile(t *testing.T, what, got string, fine bool) {
	t.Helper()
	_, err := jsonrpc.Parse([]byte(got), jsonrpc.Limits{})
	switch {
	case strings.Contains(got, "smuggled"):
		t.Errorf("%s: the client got %.300s", what, got)
	case fine && !strings.Contains(got, "fine"), !fine && (strings.Contains(got, "fine") || !strings.Contains(got, "error")):
		t.Errorf("%s: the client got %.300s; want the answer: %v", what, got, fine)
	case err != nil:
		t.Errorf("%s: the client got %.300s: %v", what, got, err)
	}
}

// A response head without an end delays neither a forwarded nor a held call.
func TestEndlessHeadIsCutOff(t *testing.T) {
	for name, piece := range map[string]string{
		"informational answers": "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
		"a header":              strings.Repeat("x", 1<<10),
		"headers":               "X: y\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := &socket{say: func(w io.Writer, _ string) {
				_, err := io.WriteString(w, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
				if strings.HasPrefix(name, "header") {
					_, err = io.WriteString(w, "HTTP/1.1 200 OK\r\n")
				}
				for some := strings.Repeat(piece, 1000); err == nil; {
					_, err = io.WriteString(w, some)
				}
			}}
			h := newSocketFixture(t, s)
			checkHostile(t, "forwarded", h.ask(toolCall("9", "get_x", "")), false)
			held := h.send(toolCall("9", "hold_x", ""))
			id := h.pending(1)[0]
			h.approve(id)
			checkHostile(t, "held", held.wait(t), false)
			if state := h.state(id); state != task.Failed {
				t.Errorf("the task is %s", state)
			}
		})
	}
}

// Bytes after the end of an answer do not answer the next request on the connection, even if
// that was already sent.
func TestAnswerBeforeRequestIsNotUsed(t *testing.T) {
	h := newSocketFixture(t, &socket{say: func(w io.Writer, id string) { io.WriteString(w, hostile("FINESMUGGLED", id)) }})
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 400 {
				if got := h.ask(toolCall("7", "get_x", "")); strings.Contains(got, "smuggled") {
					t.Errorf("the client got %s", got)
					return
				}
			}
		})
	}
	clients.Wait()
}

func TestContentTypeMatchesParsedAnswer(t *testing.T) {
	tests := []struct{ status, given, want string }{
		{"200 OK", "application/json", "application/json"},
		{"200 OK", "application/json; charset=utf-8", "application/json; charset=utf-8"},
		{"200 OK", "application/json; charset=utf-16", "application/json"},
		{"200 OK", "application/json; charset=utf-7; charset*=utf-8''utf-8", "application/json"},
		{"200 OK", "application/json; charset*=utf-8''utf-7", "application/json"},
		{"200 OK", "text/event-stream; charset=utf-16", "text/event-stream"},
		{"200 OK", "application/json; x=text/event-stream", "application/json"},
		{"200 OK", "Application/JSON\r\nContent-Type: text/event-stream", "application/json"},
		{"404 Not Found", "text/plain", "text/plain"},
		{"404 Not Found", "text/plain; x=application/json", "application/octet-stream"},
		{"404 Not Found", "application/jsonp, application/json", "application/octet-stream"},
		{"404 Not Found", "text/event-stream", "application/octet-stream"},
	}
	for _, tt := range tests {
		h := newSocketFixture(t, &socket{say: func(w io.Writer, id string) {
			body := textResult(id, "fine")
			fmt.Fprintf(w, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", tt.status, tt.given, len(body), body)
		}})
		resp := h.answering(t.Context(), toolCall("9", "get_x", ""))
		resp.Body.Close()
		if got := resp.Header["Content-Type"]; len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s as %q: the client got %q; want %q", tt.status, tt.given, got, tt.want)
		}
	}
}
