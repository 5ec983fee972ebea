package mcphttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
)

// unfinished opens a connection and sends a request without the last byte of its body. A
// negative size means a body of unannounced size.
func unfinished(t *testing.T, from, to string, announced int, sent string) net.Conn {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	size := fmt.Sprintf("Content-Length: %d", announced)
	if announced < 0 {
		size, sent = "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(sent), sent)
	}
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\n\r\n%s", size, sent)
	return conn
}

// answerEmpty answers every request with an empty result.
func answerEmpty(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
}

func answerOn(t *testing.T, conn net.Conn) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}

// Unfinished bodies use only the share of their client. A client at another address can send a
// large body meanwhile, and this one can after the others have left.
func TestUnfinishedBodiesUseOneShare(t *testing.T) {
	up := serve(t, answerEmpty)
	const large = 300 << 10
	bodies := admission.NewPool(admission.Limits{Total: 4 * large, Client: 2 * large})
	g := startGate(t, up, func(s settings) {
		s.handler.Bodies = bodies
		s.handler.Limits.ReadTimeout = time.Minute
	})
	address := g.Listener.Addr().String()
	text := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"pad":"` + strings.Repeat("x", large-60) + `"}}`
	first := unfinished(t, "127.0.0.2", address, len(text), text[:len(text)-1])
	second := unfinished(t, "127.0.0.2", address, len(text), text[:len(text)-1])
	eventually(t, "memory is reserved for both", func() bool { return bodies.Used() == 2*int64(len(text)) })
	for range 2 {
		resp, body := answerOn(t, unfinished(t, "127.0.0.2", address, len(text), text[:len(text)-1]))
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, `"error_type":"client_limit"`) {
			t.Errorf("over the client's share: %s %s", resp.Status, body)
		}
	}
	resp, body := answerOn(t, unfinished(t, "127.0.0.3", address, len(text), text))
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"result"`) {
		t.Errorf("a large body of another client: %s %s", resp.Status, body)
	}
	idle := unfinished(t, "127.0.0.4", address, len(text), "{")
	eventually(t, "one piece is reserved for a body of which one byte has arrived", func() bool { return bodies.Used() == 2*int64(len(text))+64<<10 })
	idle.Close()
	eventually(t, "the piece is released", func() bool { return bodies.Used() == 2*int64(len(text)) })
	unfinished(t, "127.0.0.4", address, len(text), text[:len(text)-1])
	unfinished(t, "127.0.0.4", address, len(text), text[:len(text)-1])
	eventually(t, "all memory is reserved", func() bool { return bodies.Used() >= 4*int64(len(text)) })
	if resp, body := answerOn(t, unfinished(t, "127.0.0.3", address, len(text), text)); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, `"error_type":"overloaded"`) {
		t.Errorf("over the total: %s %s", resp.Status, body)
	}
	first.Close()
	eventually(t, "memory is free after a client left", func() bool {
		resp, _ := answerOn(t, unfinished(t, "127.0.0.2", address, len(text), text))
		return resp.StatusCode == http.StatusOK
	})
	io.WriteString(second, text[len(text)-1:])
	if resp, body := answerOn(t, second); resp.StatusCode != http.StatusOK {
		t.Errorf("a body that is completed late: %s %s", resp.Status, body)
	}
}

func TestUnannouncedBodiesReleaseMemory(t *testing.T) {
	up := serve(t, answerEmpty)
	bodies := admission.NewPool(admission.Limits{Total: 2 << 20})
	g := startGate(t, up, func(s settings) { s.handler.Bodies = bodies })
	for _, size := range []int{100, 64 << 10, 64<<10 + 1, 200 << 10, 1 << 20} {
		text := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"pad":"`
		text += strings.Repeat("x", size-len(text)-3) + `"}}`
		resp, err := http.Post(g.URL+"/mcp", "application/json", io.MultiReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		body := readBody(t, resp)
		resp.Body.Close()
		if len(text) != size || !strings.Contains(body, `"result"`) {
			t.Errorf("%d bytes: %s %.200s", size, resp.Status, body)
		}
	}
	for sent, want := range map[int]int64{100: 64 << 10, 64<<10 + 1: 128 << 10, 200 << 10: 256 << 10} {
		slow := unfinished(t, "127.0.0.1", g.Listener.Addr().String(), -1, strings.Repeat(" ", sent))
		eventually(t, "memory is reserved for twice the arrived bytes", func() bool { return bodies.Used() == want })
		slow.Close()
		eventually(t, "all memory is released", func() bool { return bodies.Used() == 0 })
	}
	cut := unfinished(t, "127.0.0.1", g.Listener.Addr().String(), -1, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	cut.(*net.TCPConn).CloseWrite() // before the chunk that ends the body
	if resp, body := answerOn(t, cut); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "ended early") {
		t.Errorf("a body that is cut off: %s %s", resp.Status, body)
	}
	over, err := http.Post(g.URL+"/mcp", "application/json", io.MultiReader(strings.NewReader(strings.Repeat(" ", 1<<20+1))))
	if err != nil {
		t.Fatal(err)
	}
	over.Body.Close()
	if over.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("one byte over the limit: %s", over.Status)
	}
	eventually(t, "all memory is released", func() bool { return bodies.Used() == 0 })
}

func TestOneClientLeavesSlotsToOthers(t *testing.T) {
	release := make(chan struct{})
	entered := make(chan struct{}, 10)
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "stuck") {
			entered <- struct{}{}
			<-release
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	t.Cleanup(func() { close(release) })
	g := startGate(t, up, func(s settings) { s.handler.Limits.Requests = admission.Limits{Total: 6, Client: 2} })
	address := g.Listener.Addr().String()
	const stuck = `{"jsonrpc":"2.0","id":1,"method":"stuck"}`
	for range 2 {
		unfinished(t, "127.0.0.2", address, len(stuck), stuck)
		<-entered
	}
	resp, body := answerOn(t, unfinished(t, "127.0.0.2", address, len(stuck), "{")) // the gate does not read this body
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, `"client_limit"`) {
		t.Errorf("a third request: %s %s", resp.Status, body)
	}
	if resp, body := answerOn(t, unfinished(t, "127.0.0.3", address, len(ping), ping)); resp.StatusCode != http.StatusOK {
		t.Errorf("another client: %s %s", resp.Status, body)
	}
}

func TestListenersReleaseBodies(t *testing.T) {
	const pad, listeners = 1 << 19, 32
	g := startGate(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", asEvents)
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}), nil)
	padding := strings.Repeat(" ", pad)
	message, headers := listenFor(`"resourcesListChanged":true`)
	before := heapAfterGC()
	for range listeners { // raw connections, because an http.Client would use memory too
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", g.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n")
		for i := 0; i < len(headers); i += 2 {
			io.WriteString(conn, headers[i]+": "+headers[i+1]+"\r\n")
		}
		fmt.Fprintf(conn, "Content-Length: %d\r\n\r\n", len(padding)+len(message))
		io.WriteString(conn, padding)
		io.WriteString(conn, message)
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "200 OK") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	eventually(t, "listening clients keep almost no body memory", func() bool { return g.handler.Used()["bodies"] < listeners*100 })
	if grown := int64(heapAfterGC()) - int64(before); grown > listeners*pad/2 {
		t.Errorf("the heap grew by %d KiB for %d KiB of bodies", grown>>10, listeners*pad>>10)
	}
}

func heapAfterGC() uint64 {
	runtime.GC()
	return heapNow()
}
