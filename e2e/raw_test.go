package e2e_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// modernMeta is the metadata of a modern request.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// request returns the text of a request in the site's era, with the given members of params.
func (s *site) request(id, method, members string) string {
	if s.modern() {
		if members != "" {
			members += ","
		}
		members += modernMeta
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + members + `}}`
}

// An answer is a complete HTTP response.
type answer struct {
	status int
	header http.Header
	body   string
}

// post sends body and returns the whole answer. headers are pairs: a later pair replaces an
// earlier one, and an empty value removes the header.
func (s *site) post(t *testing.T, body string, headers ...string) answer {
	t.Helper()
	return s.send(t, http.MethodPost, body, headers...)
}

func (s *site) send(t *testing.T, method, body string, headers ...string) answer {
	t.Helper()
	resp, err := newHTTPClient(t).Do(s.newRequest(t, method, body, headers...))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

func (s *site) newRequest(t *testing.T, method, body string, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(soon(t), method, s.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Del(headers[i])
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	return r
}

// open returns the headers of later requests: those of a new session, or the protocol version.
func (s *site) open(t *testing.T) []string {
	t.Helper()
	headers := []string{"Mcp-Protocol-Version", s.version}
	if s.modern() {
		return headers
	}
	resp := s.post(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+s.version+`","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	id := resp.header.Get("Mcp-Session-Id")
	if resp.status != http.StatusOK || id == "" {
		t.Fatalf("initialize: %d %s", resp.status, resp.body)
	}
	headers = append(headers, "Mcp-Session-Id", id)
	if got := s.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, headers...); got.status != http.StatusAccepted {
		t.Fatalf("initialized: %d %s", got.status, got.body)
	}
	return headers
}

// An event is one server-sent event.
type event struct{ name, id, data string }

// A stream is an open event stream.
type stream struct {
	lines *bufio.Scanner
	close func() // drops the connection
}

func (s *site) stream(t *testing.T, method, body string, headers ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(soon(t))
	client := newHTTPClient(t)
	resp, err := client.Do(s.newRequest(t, method, body, headers...).WithContext(ctx))
	for err == nil && resp.StatusCode == http.StatusConflict { // the server has not yet noticed that the earlier reader is gone
		_ = resp.Body.Close()
		time.Sleep(2 * time.Millisecond)
		resp, err = client.Do(s.newRequest(t, method, body, headers...).WithContext(ctx))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	opened := &stream{lines: bufio.NewScanner(resp.Body), close: cancel}
	t.Cleanup(cancel)
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("got %s, %s; want a stream", resp.Status, kind)
	}
	return opened
}

// next returns the next event of the stream.
func (s *stream) next(t *testing.T) event {
	t.Helper()
	var e event
	for s.lines.Scan() {
		field, value, _ := strings.Cut(s.lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.data += value
		case "":
			if e != (event{}) {
				return e
			}
		}
	}
	t.Fatalf("the stream ended: %v", s.lines.Err())
	return e
}
