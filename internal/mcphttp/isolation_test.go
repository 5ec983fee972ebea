package mcphttp_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A hostileUpstream sends invalid answers. On its first connection, a trick answers the first call,
// and may add bytes to later answers. All other connections get valid answers.
type hostileUpstream struct {
	trick trick

	mu    sync.Mutex
	began bool          // the first connection was accepted
	late  chan struct{} // gets a value when the late bytes must be sent
	sent  chan struct{} // gets a value when they were sent; closed when the connection has ended
}

// A trick is the behavior of a hostileUpstream on one connection.
type trick struct {
	name  string
	first func(c *hostileConn, a secretCall)        // answers the first call
	late  func(c *hostileConn, first secretCall)    // runs once the client has the answer; may be nil
	next  func(c *hostileConn, first, a secretCall) // answers the second call if it uses the same connection; nil answers properly
	lags  bool                                      // each further call gets the answer to the previous call
}

// A secretCall is a tool call whose answer repeats its argument.
type secretCall struct {
	id, secret string // secret is the argument
}

// message returns the answer to the call with the given ID.
func (a secretCall) message(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"` + a.secret + `"}]}}`
}

// proper returns the HTTP response to the call.
func (a secretCall) proper() string { return withLength(a.message(a.id)) }

func withLength(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func chunked(header, body, end string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\n%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n%s", header, len(body), body, end)
}

const jsonBody = "Content-Type: application/json\r\n"

func events(message string) string {
	return chunked("Content-Type: text/event-stream\r\n", "data: "+message+"\n\n", "\r\n")
}

// A hostileConn is a connection of a hostileUpstream.
type hostileConn struct {
	net.Conn

	tcp *net.TCPConn
}

// say writes each text separately.
func (c *hostileConn) say(texts ...string) {
	for _, text := range texts {
		_, _ = io.WriteString(c.Conn, text)
	}
}

// reset resets the connection.
func (c *hostileConn) reset() {
	_ = c.tcp.SetLinger(0)
	_ = c.tcp.Close()
}

// halfClose closes the write side.
func (c *hostileConn) halfClose() {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		_ = secure.CloseWrite()
	}
	_ = c.tcp.CloseWrite()
}

// serve serves one connection.
func (h *hostileUpstream) serve(c *hostileConn) {
	h.mu.Lock()
	tricky := !h.began
	h.began = true
	h.mu.Unlock()
	if tricky {
		defer close(h.sent)
	}
	var first, last secretCall
	in := bufio.NewReader(c)
	for n := 0; ; n++ {
		a, err := readCall(in)
		switch {
		case err != nil:
			return
		case tricky && h.trick.lags && n > 0:
			c.say(last.proper())
		case !tricky || n > 1 || n == 1 && h.trick.next == nil:
			c.say(a.proper())
		case n == 1:
			h.trick.next(c, first, a)
		default:
			first = a
			h.trick.first(c, a)
			if h.trick.late != nil {
				<-h.late
				h.trick.late(c, first)
				h.sent <- struct{}{}
			}
		}
		last = a
	}
}

// readCall reads a request with a tool call.
func readCall(in *bufio.Reader) (secretCall, error) {
	r, err := http.ReadRequest(in)
	if err != nil {
		return secretCall{}, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return secretCall{}, err
	}
	m, err := jsonrpc.ParseMessage(body, jsonrpc.Limits{})
	if err != nil {
		return secretCall{}, err
	}
	secret, _ := m.Params.Arguments.Member("secret").Text()
	return secretCall{id: string(m.ID.Bytes), secret: secret}, nil
}

// start starts the upstream, with TLS if it has a certificate, and returns its URL.
func (h *hostileUpstream) start(t *testing.T, certificate *tls.Certificate) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.late, h.sent = make(chan struct{}), make(chan struct{})
	var open sync.WaitGroup
	open.Go(func() {
		for {
			accepted, err := l.Accept()
			if err != nil {
				return
			}
			c := &hostileConn{Conn: accepted, tcp: accepted.(*net.TCPConn)}
			if certificate != nil {
				c.Conn = tls.Server(accepted, &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12})
			}
			open.Go(func() {
				defer c.Close()
				h.serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		open.Wait()
	})
	if certificate != nil {
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

// surplus has unsolicited answers, made of the first call and the ID of the next.
var surplus = map[string]func(first secretCall, next string) string{
	"the answer again":      func(a secretCall, _ string) string { return a.proper() },
	"an answer to the next": func(a secretCall, next string) string { return withLength(a.message(next)) },
	"two answers":           func(a secretCall, next string) string { return withLength(a.message(next)) + a.proper() },
	"an answer without a length": func(a secretCall, next string) string {
		return "HTTP/1.1 200 OK\r\n" + jsonBody + "\r\n" + a.message(next)
	},
	"an interim answer": func(secretCall, string) string { return "HTTP/1.1 102 Processing\r\n\r\n" },
	"an interim and an answer": func(a secretCall, next string) string {
		return "HTTP/1.1 100 Continue\r\n\r\n" + withLength(a.message(next))
	},
	"an empty answer":           func(secretCall, string) string { return "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n" },
	"an answer without content": func(secretCall, string) string { return "HTTP/1.1 204 No Content\r\n\r\n" },
	"an answer of HTTP/1.0": func(a secretCall, next string) string {
		return strings.Replace(withLength(a.message(next)), "1.1 200 OK", "1.0 200 OK\r\nConnection: keep-alive", 1)
	},
	"half an answer": func(a secretCall, next string) string { return withLength(a.message(next))[:150] },
	"half a head":    func(secretCall, string) string { return "HTTP/1.1 200 OK\r\nContent-" },
	"chunks":         func(a secretCall, next string) string { return chunked(jsonBody, a.message(next), "\r\n") },
	"chunks with a trailer": func(a secretCall, next string) string {
		return chunked(jsonBody, a.message(next), "Content-Length: 3\r\n\r\n")
	},
	"an event": func(a secretCall, next string) string { return events(a.message(next)) },
	"two lengths": func(a secretCall, next string) string {
		return strings.Replace(withLength(a.message(next)), "\r\n", "\r\nContent-Length: 7\r\n", 1)
	},
	"a length and chunks": func(a secretCall, next string) string {
		return chunked(jsonBody+"Content-Length: 5\r\n", a.message(next), "\r\n")
	},
	"a line end": func(secretCall, string) string { return "\r\n" },
	"no HTTP":    func(a secretCall, next string) string { return a.message(next) },
}

// open has answers that end with the connection, and bytes that are not an answer.
var open = map[string]bool{
	"an answer without a length": true, "half an answer": true, "half a head": true, "no HTTP": true, "an interim answer": true, "a line end": true,
}

// nextID returns the ID of the next call in [TestAnswersStayWithTheirPrincipal].
func nextID(id string) string { return map[string]string{"1": "2", "2": "3"}[id] }

// surplusTricks returns tricks that send each surplus at each moment.
func surplusTricks() (tricks []trick) {
	for name, made := range surplus {
		extra := func(a secretCall) string { return made(a, nextID(a.id)) }
		properly := func(c *hostileConn, a secretCall) { c.say(a.proper()) }
		before := func(c *hostileConn, text string) {
			if c.say(text); open[name] {
				c.halfClose()
			}
		}
		tricks = append(tricks,
			trick{name: name + " together with the answer", first: func(c *hostileConn, a secretCall) { c.say(a.proper() + extra(a)) }},
			trick{name: name + " together with events", first: func(c *hostileConn, a secretCall) { c.say(events(a.message(a.id)) + extra(a)) }},
			trick{name: name + " after the answer", first: properly, late: func(c *hostileConn, first secretCall) { c.say(extra(first)) }},
			trick{name: name + " after events", first: func(c *hostileConn, a secretCall) { c.say(events(a.message(a.id))) }, late: func(c *hostileConn, first secretCall) { c.say(extra(first)) }},
			trick{name: name + " before the answer", first: func(c *hostileConn, a secretCall) { before(c, extra(secretCall{id: "7", secret: a.secret})+a.proper()) }},
			trick{name: name + " before the next answer", first: properly, next: func(c *hostileConn, first, a secretCall) { before(c, extra(first)+a.proper()) }},
			trick{name: name + " in place of the next answer", first: properly, next: func(c *hostileConn, first, _ secretCall) { before(c, extra(first)) }},
			trick{name: name + " after the next answer", first: properly, next: func(c *hostileConn, first, a secretCall) { c.say(a.proper() + extra(first)) }},
		)
	}
	return tricks
}

// endings are ways to end a connection.
var endings = map[string]func(c *hostileConn){
	"a reset":      (*hostileConn).reset,
	"a half-close": (*hostileConn).halfClose,
}

// endingTricks returns tricks that end the connection in each phase of the first and the next
// answer.
func endingTricks() (tricks []trick) {
	const head = "HTTP/1.1 200 OK\r\n" + jsonBody + "Content-Length: 400\r\n\r\n"
	for name, end := range endings {
		for phase, begin := range map[string]func(a secretCall) string{
			"before the answer":  func(secretCall) string { return "" },
			"within the head":    func(secretCall) string { return head[:30] },
			"behind the head":    func(secretCall) string { return head },
			"within the body":    func(a secretCall) string { return head + a.message(a.id) },
			"within chunks":      func(a secretCall) string { return strings.TrimSuffix(chunked(jsonBody, a.message(a.id), ""), "0\r\n") },
			"within the trailer": func(a secretCall) string { return chunked(jsonBody, a.message(a.id), "X-A: ") },
			"behind the answer":  secretCall.proper,
		} {
			tricks = append(tricks,
				trick{name: name + " " + phase, first: func(c *hostileConn, a secretCall) { c.say(begin(a)); end(c) }},
				trick{
					name: name + " " + phase + " of the next", first: func(c *hostileConn, a secretCall) { c.say(a.proper()) },
					next: func(c *hostileConn, _, a secretCall) { c.say(begin(a)); end(c) },
				})
		}
	}
	return tricks
}

// framingTricks returns tricks with unusual framing of the first answer.
func framingTricks() []trick {
	whole := func(name string, text func(a secretCall) string) trick {
		return trick{name: name, first: func(c *hostileConn, a secretCall) { c.say(text(a)) }}
	}
	return []trick{
		whole("a length that is too small", func(a secretCall) string {
			return strings.Replace(a.proper(), "Content-Length: ", "Content-Length: 2\r\nX-Old: ", 1)
		}),
		{name: "a length that is too large", first: func(c *hostileConn, a secretCall) {
			body := a.message(a.id)
			c.say(withLength(body + strings.Repeat(" ", 50))[:len(withLength(body))+1], a.proper())
		}},
		whole("a length of nothing", func(a secretCall) string {
			return strings.Replace(a.proper(), "Content-Length: ", "Content-Length: 0\r\nX-Old: ", 1)
		}),
		whole("a negative length", func(a secretCall) string {
			return strings.Replace(a.proper(), "Content-Length: ", "Content-Length: -", 1)
		}),
		whole("two lengths", func(a secretCall) string { return strings.Replace(a.proper(), "\r\n", "\r\nContent-Length: 7\r\n", 1) }),
		whole("a length and chunks", func(a secretCall) string {
			return chunked(jsonBody+"Content-Length: 5\r\n", a.message(a.id), "\r\n")
		}),
		whole("chunks that are none", func(a secretCall) string {
			return strings.Replace(a.proper(), "\r\n", "\r\nTransfer-Encoding: chunked\r\n", 1) + "\n"
		}),
		whole("another encoding", func(a secretCall) string {
			return strings.Replace(a.proper(), "\r\n", "\r\nTransfer-Encoding: identity\r\n", 1)
		}),
		whole("a chunk of any size", func(a secretCall) string {
			return strings.Replace(chunked(jsonBody, a.message(a.id), "\r\n"), "\r\n\r\n", "\r\n\r\nfffffffffffffffff", 1)
		}),
		whole("a second end of the chunks", func(a secretCall) string { return chunked(jsonBody, a.message(a.id), "\r\n0\r\n\r\n") }),
		whole("an answer in the trailer", func(a secretCall) string { return chunked(jsonBody, a.message(a.id), "X: y\r\n\r\n"+a.proper()) }),
		whole("HTTP/1.0", func(a secretCall) string {
			return strings.Replace(a.proper(), "1.1 200 OK", "1.0 200 OK\r\nConnection: keep-alive", 1)
		}),
		whole("content where there is none", func(a secretCall) string { return strings.Replace(a.proper(), "200 OK", "204 No Content", 1) }),
		whole("interim answers", func(a secretCall) string { return strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 3) + a.proper() }),
		whole("an interim answer with content", func(a secretCall) string {
			return strings.Replace(a.proper(), "200 OK", "103 Early Hints", 1) + a.proper()
		}),
		whole("another protocol", func(a secretCall) string {
			return "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + a.proper()
		}),
		whole("an answer to another request", func(a secretCall) string { return withLength(a.message("7")) }),
		whole("an answer to no request", func(a secretCall) string { return withLength(a.message("null")) }),
		whole("a refusal", func(a secretCall) string { return strings.Replace(a.proper(), "200 OK", "404 Not Found", 1) }),
		whole("an event for another request", func(a secretCall) string { return events(a.message(a.id) + "\n\ndata: " + a.message("7")) }),
		{name: "one answer behind", first: func(c *hostileConn, a secretCall) { c.say(a.proper()) }, lags: true},
		{name: "an answer byte by byte", first: func(c *hostileConn, a secretCall) { c.say(strings.Split(a.proper(), "")...) }},
	}
}

// An answer never reaches another principal. After an unexpected answer the connection is
// closed.
func TestAnswersStayWithTheirPrincipal(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	certificate, authority := borrowed.TLS.Certificates[0], x509.NewCertPool()
	authority.AddCert(borrowed.Certificate())
	borrowed.Close()
	known := map[string][]string{"ann": {"Authorization", "Bearer " + ann.token}, "bob": {"Authorization", "Bearer " + bob.token}}
	anonymous := map[string][]string{"ann": {"Mcp-Session-Id", "a"}, "bob": {"Mcp-Session-Id", "b"}}
	rules := compile(t, policy.Rule{Match: "get_*", Action: policy.Forward})
	for _, way := range []struct {
		name        string
		certificate *tls.Certificate
		headers     map[string][]string
		rules       *policy.Snapshot
	}{
		{"plain", nil, known, rules},
		{"TLS", &certificate, known, rules},
		{"anonymous", nil, anonymous, rules},
		{"without policy", nil, known, nil},
	} {
		for _, trick := range append(append(surplusTricks(), endingTricks()...), framingTricks()...) {
			t.Run(way.name+"/"+trick.name, func(t *testing.T) {
				up := &hostileUpstream{trick: trick}
				g := startGate(t, up.start(t, way.certificate), func(s settings) {
					s.upstream.TLS = &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}
					s.handler.Identity = annAndBob(t)
					s.handler.Catalog = catalog.New(&catalog.Settings{Policy: way.rules}, time.Now, s.handler.Log, nil)
				})
				victims := 0
				for i, call := range []struct{ who, id string }{{"ann", "1"}, {"bob", "2"}, {"ann", "2"}, {"bob", "3"}, {"ann", "3"}} {
					secret := call.who + "'s call " + call.id
					message := `{"jsonrpc":"2.0","id":` + call.id + `,"method":"tools/call","params":{"name":"get_x","arguments":{"secret":"` + secret + `"}}}`
					body := g.callAs(t, message, way.headers[call.who]...)
					right := strings.Contains(body, secret)
					switch {
					case call.who == "ann" && strings.Contains(body, "bob's"), call.who == "bob" && strings.Contains(body, "ann's"):
						t.Fatalf("%s got the answer to another: %s", secret, body)
					case call.who == "bob" && !right:
						t.Errorf("%s got %s, although its connection had no error", secret, body)
					case i > 0 && !right:
						victims++
					}
					if i == 0 && trick.late != nil {
						up.late <- struct{}{}
						<-up.sent
					}
				}
				if victims > 1 {
					t.Errorf("%d calls did not get their answers after the first one did not; want the connection gone", victims)
				}
			})
		}
	}
}

func TestPrincipalsUseSeparateHTTP2Connections(t *testing.T) {
	seen := make(chan string, 1)
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Proto + " " + r.RemoteAddr
		answerPong(w, r)
	}))
	up.EnableHTTP2 = true
	up.StartTLS()
	t.Cleanup(up.Close)
	authority := x509.NewCertPool()
	authority.AddCert(up.Certificate())
	g := startGate(t, up.URL, func(s settings) {
		s.upstream.TLS = &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}
		s.upstream.MaxIdle = 3
		s.handler.Identity = annAndBob(t)
	})
	var on []string
	for _, headers := range [][]string{
		{"Authorization", "Bearer " + ann.token},
		{"Authorization", "Bearer " + bob.token},
		{"Mcp-Session-Id", "a"},
		{"Authorization", "Bearer " + ann.token},
		{"Mcp-Session-Id", "a"},
		{"Mcp-Session-Id", "b"}, // instead of the session of bob
		{"Authorization", "Bearer " + ann.token},
		{"Authorization", "Bearer " + bob.token},
	} {
		if body := g.callAs(t, ping, headers...); body != pong {
			t.Fatal(body)
		}
		on = append(on, <-seen)
	}
	names := map[string]string{}
	var got strings.Builder
	for _, connection := range on {
		if names[connection] == "" {
			names[connection] = string(rune('A' + len(names)))
		}
		got.WriteString(names[connection])
	}
	if got.String() != "ABCACDAE" || !strings.HasPrefix(on[0], "HTTP/2.0") {
		t.Errorf("connections %s (%v); want ABCACDAE over HTTP/2.0", got.String(), on)
	}
}

// annAndBob recognises ann and bob, and treats other clients as anonymous.
func annAndBob(t *testing.T) *identity.Authenticator {
	t.Helper()
	recogniser, err := identity.New(identity.Config{Now: time.Now, Anonymous: true, Tokens: []identity.Token{
		{Name: "ann", Hash: identity.HashOf(ann.token)}, {Name: "bob", Hash: identity.HashOf(bob.token)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return recogniser
}

// callAs is call with additional headers, as name and value in turn.
func (g *gateway) callAs(t *testing.T, message string, headers ...string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/mcp", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := g.Client().Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // the body may be truncated
	return string(body)
}

// A connection is reused after a proper answer of each form.
func TestConnectionsAreKept(t *testing.T) {
	large := strings.Repeat("x", 100<<10)
	forms := map[string]func(id string) string{
		"json":   func(id string) string { return withLength(secretCall{secret: "x"}.message(id)) },
		"chunks": func(id string) string { return chunked(jsonBody, secretCall{secret: "x"}.message(id), "\r\n") },
		"large":  func(id string) string { return withLength(secretCall{secret: large}.message(id)) },
		"events": func(id string) string { return events(secretCall{secret: "x"}.message(id)) },
		"empty":  func(string) string { return "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n" },
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			up := &hostileUpstream{}
			var again atomic.Bool // the second call has come on the same connection
			up.trick = trick{
				first: func(c *hostileConn, a secretCall) { c.say(form(a.id)) },
				next:  func(c *hostileConn, _, a secretCall) { again.Store(true); c.say(form(a.id)) },
			}
			g := startGate(t, up.start(t, nil), func(s settings) {
				s.handler.Catalog = catalog.New(&catalog.Settings{Policy: compile(t, policy.Rule{Match: "get_*", Action: policy.Forward})}, time.Now, s.handler.Log, nil)
			})
			message := toolCall("1", "get_x", "")
			if name == "empty" {
				message = `{"jsonrpc":"2.0","method":"notifications/progress"}`
			}
			for range 2 {
				g.callAs(t, message, "Mcp-Session-Id", "a")
			}
			if !again.Load() {
				t.Error("the second call came on another connection")
			}
		})
	}
}
