package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/http1"
)

// testTimeout limits how long a test waits; only failing tests wait that long.
const testTimeout = 30 * time.Second

// A doer makes a request. It is the client or the transport with which the client must agree.
type doer func(ctx context.Context, r *http1.Request) (*http.Response, error)

// oracle returns http.Transport as a doer, with the same settings.
func oracle(t testing.TB, host string, dial func(ctx context.Context, network, address string) (net.Conn, error)) doer {
	transport := &http.Transport{DialContext: dial, DisableCompression: true, ResponseHeaderTimeout: testTimeout}
	t.Cleanup(transport.CloseIdleConnections)
	return func(ctx context.Context, r *http1.Request) (*http.Response, error) {
		out, err := http.NewRequestWithContext(ctx, r.Method, "http://"+host+r.Target, io.NopCloser(bytes.NewReader(r.Body)))
		if err != nil {
			return nil, err
		}
		if out.ContentLength = int64(len(r.Body)); len(r.Body) == 0 {
			out.Body = http.NoBody
		}
		out.Header, out.Close = http.Header{}, r.Fresh
		for name, values := range r.Header {
			out.Header[http.CanonicalHeaderKey(name)] = values // the transport adds its own headers beside others
		}
		if _, given := out.Header["User-Agent"]; !given {
			out.Header["User-Agent"] = nil
		}
		return transport.RoundTrip(out)
	}
}

// ours returns a client as a doer.
func ours(t testing.TB, host string, dial func(ctx context.Context, network, address string) (net.Conn, error)) doer {
	c := http1.New(http1.Config{Address: host, Host: host, Dial: dial, WriteTimeout: testTimeout})
	t.Cleanup(c.CloseIdle)
	return c.Do
}

// A seen has the parts of an answer that a caller sees.
type seen struct {
	Failed   bool // no answer
	Status   int
	Proto    string
	Header   http.Header
	Length   int64
	Coding   []string
	Closes   bool
	Body     string
	BodyErr  bool
	CutShort bool // the body ended early
	Trailer  http.Header
}

func look(resp *http.Response, err error) seen {
	if err != nil {
		return seen{Failed: true}
	}
	defer resp.Body.Close()
	s := seen{
		Status: resp.StatusCode, Proto: resp.Proto, Header: resp.Header, Length: resp.ContentLength,
		Coding: resp.TransferEncoding, Closes: resp.Close,
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return s // the transport returns the connection in place of a body
	}
	body, err := io.ReadAll(resp.Body)
	http1.Accept(resp.Body)
	s.Body, s.BodyErr, s.CutShort, s.Trailer = string(body), err != nil, errors.Is(err, io.ErrUnexpectedEOF), resp.Trailer
	return s
}

// A play is an answer of a server, and how the server sends it.
type play struct {
	answer   string
	delivery func(w io.Writer, answer string) // how the bytes are sent
	close    bool                             // the server closes the connection after the answer
}

// A player is a server that answers the first request with given bytes and all others properly.
type player struct {
	play

	open  sync.WaitGroup
	conns atomic.Int32
	calls atomic.Int32
}

const second = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond"

func (p *player) serve(t testing.TB) (host string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.conns.Add(1)
			p.open.Go(func() { p.talk(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.open.Wait()
	})
	return l.Addr().String()
}

func (p *player) talk(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if p.calls.Add(1) > 1 {
			io.WriteString(conn, second)
			continue
		}
		p.delivery(conn, p.answer)
		if p.close {
			return
		}
	}
}

// deliveries are the ways in which the same bytes arrive.
func deliveries() map[string]func(w io.Writer, answer string) {
	return map[string]func(w io.Writer, answer string){
		"at once": func(w io.Writer, answer string) { io.WriteString(w, answer) },
		"in lines": func(w io.Writer, answer string) {
			for line := range strings.SplitAfterSeq(answer, "\n") {
				io.WriteString(w, line)
			}
		},
		"in small pieces": func(w io.Writer, answer string) {
			for len(answer) > 0 {
				n := min(3, len(answer))
				if len(answer) > 4<<10 {
					n = 1 << 10
				}
				if _, err := io.WriteString(w, answer[:n]); err != nil {
					return
				}
				answer = answer[n:]
			}
		},
	}
}

// An answer is an answer of a server. The field ends tells whether its end can be recognised
// without the end of the connection.
type answer struct {
	name, text string
	ends       bool
}

// answers returns proper, odd and hostile answers.
func answers() []answer {
	const ok = "HTTP/1.1 200 OK\r\n"
	chunked := ok + "Transfer-Encoding: chunked\r\n\r\n"
	return []answer{
		{"a length", ok + "Content-Length: 5\r\nX-A: 1\r\nX-A: 2\r\n\r\nhello", true},
		{"no body", ok + "Content-Length: 0\r\n\r\n", true},
		{"chunks", chunked + "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", true},
		{"no chunk", chunked + "0\r\n\r\n", true},
		{"chunks in capitals", ok + "Transfer-Encoding: CHUNKED\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n", true},
		{"a chunk extension", chunked + "5;a=b;c=\"d\"\r\nhello\r\n0;x\r\n\r\n", true},
		{"many zeros in a size", chunked + "0000000000000005\r\nhello\r\n0\r\n\r\n", true},
		{"too many zeros in a size", chunked + strings.Repeat("0", 20) + "5\r\nhello\r\n0\r\n\r\n", false},
		{"a size with a sign", chunked + "+5\r\nhello\r\n0\r\n\r\n", false},
		{"a size with a prefix", chunked + "0x5\r\nhello\r\n0\r\n\r\n", false},
		{"a size with a space", chunked + "5 \r\nhello\r\n0\r\n\r\n", false},
		{"a size after a space", chunked + " 5\r\nhello\r\n0\r\n\r\n", false},
		{"a size that overflows", chunked + "ffffffffffffffff\r\nhello\r\n0\r\n\r\n", false},
		{"no size", chunked + "\r\nhello\r\n0\r\n\r\n", false},
		{"lines that end with a newline", "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", true},
		{"chunks that end with a newline", chunked + "5\nhello\n0\n\n", false},
		{"a chunk that is longer than it says", chunked + "3\r\nhello\r\n0\r\n\r\n", false},
		{"a chunk that is shorter than it says", chunked + "7\r\nhello\r\n0\r\n\r\n", false},
		{"no last chunk", chunked + "5\r\nhello\r\n", false},
		{"no end of the last chunk", chunked + "5\r\nhello\r\n0\r\n", false},
		{"a long chunk extension", chunked + "5;" + strings.Repeat("x", 5<<10) + "\r\nhello\r\n0\r\n\r\n", false},
		{"tiny chunks with extensions", chunked + strings.Repeat("1;"+strings.Repeat("x", 100)+"\r\na\r\n", 1000) + "0\r\n\r\n", false},
		{"trailers", ok + "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", true},
		{"unannounced trailers", chunked + "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", true},
		{"a trailer that is a length", ok + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n5\r\nhello\r\n0\r\nContent-Length: 1\r\n\r\n", false},
		{"a broken trailer", chunked + "5\r\nhello\r\n0\r\nX Sum 1\r\n\r\n", false},
		{"a long trailer", chunked + "5\r\nhello\r\n0\r\nX-Sum: " + strings.Repeat("x", 8<<10) + "\r\n\r\n", false},
		{"until the end", ok + "\r\nhello", false},
		{"until the end, said so", ok + "Connection: close\r\n\r\nhello", false},
		{"a length, and closes", ok + "Content-Length: 5\r\nConnection: close\r\n\r\nhello", true},
		{"chunks, and closes", ok + "Transfer-Encoding: chunked\r\nConnection: Close\r\n\r\n5\r\nhello\r\n0\r\n\r\n", true},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", true},
		{"HTTP/1.0 that is kept", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello", true},
		{"HTTP/1.0 in chunks", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false},
		{"HTTP/1.2", "HTTP/1.2 200 OK\r\nContent-Length: 5\r\n\r\nhello", true},
		{"HTTP/2.0", "HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", true},
		{"HTTP/11", "HTTP/11 200 OK\r\nContent-Length: 5\r\n\r\nhello", false},
		{"http/1.1", "http/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false},
		{"no reason", "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", true},
		{"two spaces", "HTTP/1.1  200 OK\r\nContent-Length: 5\r\n\r\nhello", true},
		{"a status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 5\r\n\r\nhello", false},
		{"a status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nhello", false},
		{"a negative status", "HTTP/1.1 -20 OK\r\nContent-Length: 5\r\n\r\nhello", false},
		{"status 000", "HTTP/1.1 000 OK\r\nContent-Length: 5\r\n\r\nhello", true},
		{"status 999", "HTTP/1.1 999 Odd\r\nContent-Length: 5\r\n\r\nhello", true},
		{"204", "HTTP/1.1 204 No Content\r\n\r\n", true},
		{"204 with a length", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", true},
		{"204 in chunks", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", true},
		{"304 with a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", true},
		{"404", "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope", true},
		{"500", "HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", true},
		{"a redirection", "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/\r\nContent-Length: 0\r\n\r\n", true},
		{"100 first", "HTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 5\r\n\r\nhello", true},
		{"102 and 103 first", "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok + "Content-Length: 5\r\n\r\nhello", true},
		{"199 first", "HTTP/1.1 199 Odd\r\nContent-Length: 3\r\n\r\n" + ok + "Content-Length: 5\r\n\r\nhello", true},
		{"many interim answers", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 900) + ok + "Content-Length: 5\r\n\r\nhello", true},
		{"nothing but interim answers", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 5), false},
		{"101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", false},
		{"two equal lengths", ok + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", true},
		{"two lengths", ok + "Content-Length: 5\r\nContent-Length: 2\r\n\r\nhello", false},
		{"lengths in a list", ok + "Content-Length: 5, 5\r\n\r\nhello", false},
		{"a length with a sign", ok + "Content-Length: +5\r\n\r\nhello", false},
		{"a negative length", ok + "Content-Length: -5\r\n\r\nhello", false},
		{"a length in words", ok + "Content-Length: five\r\n\r\nhello", false},
		{"a length in hexadecimal", ok + "Content-Length: 0x5\r\n\r\nhello", false},
		{"a length that overflows", ok + "Content-Length: 99999999999999999999\r\n\r\nhello", false},
		{"an empty length", ok + "Content-Length:\r\n\r\nhello", false},
		{"a length with spaces", ok + "Content-Length:   5  \r\n\r\nhello", true},
		{"a length and chunks", ok + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", true},
		{"chunks and a wrong length", ok + "Transfer-Encoding: chunked\r\nContent-Length: x\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false},
		{"two codings", ok + "Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false},
		{"chunked twice", ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false},
		{"an unknown coding", ok + "Transfer-Encoding: xchunked\r\n\r\nhello", false},
		{"identity", ok + "Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello", false},
		{"a coding with a tab", ok + "Transfer-Encoding:\tchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", true},
		{"a coding with a vertical tab", ok + "Transfer-Encoding: \vchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false},
		{"a space before the colon", ok + "Content-Length : 5\r\n\r\nhello", false},
		{"a header without a colon", ok + "Content-Length 5\r\n\r\nhello", false},
		{"a header without a name", ok + ": x\r\nContent-Length: 5\r\n\r\nhello", false},
		{"a folded header", ok + "X-A: 1\r\n 2\r\nContent-Length: 5\r\n\r\nhello", true},
		{"a first header that is folded", ok + " X-A: 1\r\nContent-Length: 5\r\n\r\nhello", false},
		{"a NUL in a name", ok + "X\x00A: 1\r\nContent-Length: 5\r\n\r\nhello", false},
		{"a NUL in a value", ok + "X-A: 1\x002\r\nContent-Length: 5\r\n\r\nhello", false},
		{"a carriage return in a value", ok + "X-A: 1\r2\r\nContent-Length: 5\r\n\r\nhello", false},
		{"high bytes in a value", ok + "X-A: \xff\xfe\r\nContent-Length: 5\r\n\r\nhello", true},
		{"a large head", ok + "X-A: " + strings.Repeat("x", 200<<10) + "\r\nContent-Length: 5\r\n\r\nhello", true},
		{"a large body", ok + "Content-Length: 300000\r\n\r\n" + strings.Repeat("x", 300000), true},
		{"a large chunk", chunked + "493e0\r\n" + strings.Repeat("x", 300000) + "\r\n0\r\n\r\n", true},
		{"blank lines first", "\r\n\r\n" + ok + "Content-Length: 5\r\n\r\nhello", false},
		{"nothing", "", false},
		{"half a status", "HTTP/1.1 20", false},
		{"half a head", ok + "Content-Le", false},
		{"no end of the head", ok + "Content-Length: 5\r\n", false},
		{"a body that is too short", ok + "Content-Length: 50\r\n\r\nhello", false},
		{"no HTTP", "SSH-2.0-OpenSSH_9.2\r\n", false},
		{"a request", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"a body of a compressed kind", ok + "Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", true},
		{"pragma", ok + "Pragma: no-cache\r\nContent-Length: 5\r\n\r\nhello", true},
	}
}

// The client sees the same answers as http.Transport, with any division into packets, and reuses a
// connection only if the transport reuses it too.
func TestAgreesWithTransport(t *testing.T) {
	var cases, reused int
	for _, a := range answers() {
		for delivery, deliver := range deliveries() {
			for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodHead, http.MethodDelete} {
				for _, closed := range []bool{true, false} {
					if !closed && (!a.ends || method == http.MethodHead) {
						continue // the answer would not end; the client does not expect the body of an answer to HEAD
					}
					cases++
					name := fmt.Sprintf("%s, %s, to %s, closed: %v", a.name, delivery, method, closed)
					if compare(t, name, method, play{a.text, deliver, closed}) {
						reused++
					}
				}
			}
		}
	}
	t.Logf("%d cases, %d with a second request on the same connection", cases, reused)
	if cases < 1000 || reused < 100 {
		t.Errorf("%d cases, %d of them with a kept connection: want at least 1000 and 100", cases, reused)
	}
}

// compare sends an answer to the client and the transport, and answers a second request if the
// connection stays open. It reports whether the client reused the connection.
func compare(t *testing.T, name, method string, p play) bool {
	t.Helper()
	first, next, conns := both(t, method, p)
	for try := 1; conns[0] < conns[1] && try < 3; try++ { // on a busy machine the transport may give up a connection for its late writer
		first, next, conns = both(t, method, p)
	}
	if diff := cmp.Diff(first[1], first[0]); diff != "" {
		t.Errorf("%s: the answer (-transport +ours):\n%s", name, diff)
	}
	if diff := cmp.Diff(next[1], next[0]); diff != "" {
		t.Errorf("%s: the next answer (-transport +ours):\n%s", name, diff)
	}
	if conns[0] < conns[1] {
		t.Errorf("%s: the client reused a connection that the transport closed", name)
	}
	return !p.close && conns[0] == 1
}

// both sends an answer to the client and to the transport. It returns the answers that each saw,
// and the number of connections that each used.
func both(t *testing.T, method string, p play) (first, next [2]seen, conns [2]int32) {
	t.Helper()
	for i, with := range []func(testing.TB, string, func(ctx context.Context, network, address string) (net.Conn, error)) doer{ours, oracle} {
		server := &player{play: p}
		t.Run("", func(t *testing.T) {
			do := with(t, server.serve(t), new(net.Dialer).DialContext)
			request := &http1.Request{Method: method, Target: "/mcp?x=1", Header: http.Header{"X-A": {"1"}}}
			if method == http.MethodPost {
				request.Body = []byte("{}")
			}
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			first[i] = look(do(ctx, request))
			if !p.close {
				next[i] = look(do(ctx, request))
			}
			conns[i] = server.conns.Load()
		})
	}
	return first, next, conns
}

// pipe returns a function that connects to a server in memory. The server answers with the given
// bytes and closes the connection.
func pipe(answer []byte, piece int) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			r, err := http.ReadRequest(bufio.NewReader(server))
			if err != nil {
				return
			}
			io.Copy(io.Discard, r.Body)
			for rest := answer; len(rest) > 0; {
				n := min(piece, len(rest))
				if _, err := server.Write(rest[:n]); err != nil {
					return
				}
				rest = rest[n:]
			}
		}()
		return client, nil
	}
}

// FuzzAnswers checks that the client and http.Transport see the same answer of any server.
func FuzzAnswers(f *testing.F) {
	for _, a := range answers() {
		if len(a.text) < 4<<10 {
			f.Add([]byte(a.text), uint8(200), false)
		}
	}
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), uint8(0), true)
	f.Fuzz(func(t *testing.T, answer []byte, piece uint8, head bool) {
		method := http.MethodPost
		if head {
			method = http.MethodHead
		}
		r := &http1.Request{Method: method, Target: "/", Body: []byte("{}")}
		dial := pipe(answer, int(piece)+1)
		want := look(oracle(t, "x:1", dial)(t.Context(), r))
		resp, err := ours(t, "x:1", dial)(t.Context(), r)
		got := look(resp, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the answer (-transport +ours; %v):\n%s", err, diff)
		}
	})
}

// received sends a request and returns the bytes that arrive at the server.
func received(t testing.TB, with func(testing.TB, string, func(ctx context.Context, network, address string) (net.Conn, error)) doer, host string, r *http1.Request) ([]byte, error) {
	t.Helper()
	var got bytes.Buffer
	var reading sync.WaitGroup
	do := with(t, host, func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		reading.Go(func() {
			in := bufio.NewReader(io.TeeReader(server, &got))
			if r, err := http.ReadRequest(in); err == nil {
				io.Copy(io.Discard, r.Body)
				go io.Copy(io.Discard, server) // the server reads no further request
				io.WriteString(server, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			}
			server.Close()
		})
		return client, nil
	})
	resp, err := do(t.Context(), r)
	if err == nil {
		resp.Body.Close()
	}
	reading.Wait()
	return got.Bytes(), err
}

// FuzzRequests checks that a server reads the intended request from the sent bytes, and that a
// request that http.Transport refuses is not sent.
func FuzzRequests(f *testing.F) {
	f.Add("POST", "/mcp", "X-A", "1", []byte("{}"))
	f.Add("GET", "/mcp?a=b%20c", "Transfer-Encoding", "chunked", []byte(""))
	f.Add("POST", "/mcp", "X-A", "1\r\nContent-Length: 1", []byte("{}"))
	f.Add("POST", "/ HTTP/1.1\r\nX: ", "Content-Length", "7", []byte("{}"))
	f.Add("GET / HTTP/1.1\r\n", "*", "Connection", "close", []byte("x"))
	f.Add("PUT", "/\x00", "Host", "other", []byte(""))
	f.Add("POST", "/é", "X A", " \t 1 \x7f", []byte("{}"))
	f.Add("POST", "/", "content-length", "3", []byte("{}"))
	f.Fuzz(func(t *testing.T, method, target, name, value string, body []byte) {
		if _, err := url.ParseRequestURI(target); err != nil && strings.HasPrefix(target, "/") {
			return // targets come from a URL
		}
		r := &http1.Request{Method: method, Target: target, Header: http.Header{name: {value}}, Body: body}
		got, err := received(t, ours, "x:1", r)
		if err != nil {
			if len(got) > 0 {
				t.Errorf("sent %q, but failed: %v", got, err)
			}
			return
		}
		in := bufio.NewReader(bytes.NewReader(got))
		read, err := http.ReadRequest(in)
		if err != nil {
			t.Fatalf("a server cannot read %q: %v", got, err)
		}
		text, err := io.ReadAll(read.Body)
		rest, _ := io.ReadAll(in)
		switch {
		case err != nil || len(rest) > 0:
			t.Errorf("a server reads %q, leaves %q: %v", text, rest, err)
		case read.Method != method || read.RequestURI != target || read.Host != "x:1" || !bytes.Equal(text, body) || len(read.TransferEncoding) > 0:
			t.Errorf("a server reads %s %s for %s with %q, of %q", read.Method, read.RequestURI, read.Host, text, got)
		}
		if _, err := received(t, oracle, "x:1", r); err != nil && strings.Contains(err.Error(), "invalid") {
			t.Errorf("the transport refuses this request: %v", err)
		}
	})
}
