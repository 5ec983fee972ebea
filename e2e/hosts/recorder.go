package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A recorder is a proxy between a host and the gate. It forwards everything immediately, and
// records all messages with their times.
type recorder struct {
	proxy *httputil.ReverseProxy
	now   func() time.Time
	start time.Time

	mu      sync.Mutex
	file    *os.File
	number  int
	traffic traffic
}

// traffic is the summary of a recorder.
type traffic struct {
	Calls     int      `json:"calls"`              // requests of tools/call
	Polls     int      `json:"polls,omitzero"`     // requests of tasks/get
	Streams   int      `json:"streams,omitzero"`   // GET requests to the endpoint
	Cancels   []string `json:"cancels,omitempty"`  // reasons of notifications/cancelled
	Versions  []string `json:"versions,omitempty"` // of the protocol, as the headers say
	Client    string   `json:"client,omitzero"`    // its name and version
	Progress  bool     `json:"progress,omitzero"`  // calls carry a progress token
	Abandoned int      `json:"abandoned,omitzero"` // requests that the host aborted
	Deletes   int      `json:"deletes,omitzero"`   // sessions that the host ended
}

// numberKey is the key of a request's number in its context.
type numberKey struct{}

// shownHeaders are the recorded headers.
var shownHeaders = []string{"Accept", "Last-Event-Id", "Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id", "User-Agent"}

func newRecorder(target string, file *os.File, now func() time.Time) (*recorder, error) {
	gate, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	r := &recorder{now: now, start: now(), file: file}
	r.proxy = &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(gate); p.Out.Host = p.In.Host },
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ModifyResponse: func(res *http.Response) error {
			n, _ := res.Request.Context().Value(numberKey{}).(int)
			r.write(n, "< %s %s", res.Status, res.Header.Get("Content-Type"))
			res.Body = &recordedBody{ReadCloser: res.Body, recorder: r, number: n}
			return nil
		},
	}
	return r, nil
}

// ServeHTTP implements [http.Handler].
func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // the host has disconnected
	}
	n := r.count(q, body)
	var shown []string
	for _, name := range shownHeaders {
		if v := q.Header.Get(name); v != "" {
			shown = append(shown, name+": "+v)
		}
	}
	r.write(n, "> %s %s [%s] %s", q.Method, q.URL.Path, strings.Join(shown, "; "), body)
	q.Body = io.NopCloser(bytes.NewReader(body))
	defer r.abandoned(q.Context(), n) // the proxy may panic to abort a connection
	r.proxy.ServeHTTP(w, q.WithContext(context.WithValue(q.Context(), numberKey{}, n)))
}

// abandoned records a request that the host aborted.
func (r *recorder) abandoned(ctx context.Context, number int) {
	if ctx.Err() == nil {
		return
	}
	r.write(number, "> the host gave this request up")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traffic.Abandoned++
}

// A message has the fields that the recorder reads.
type message struct {
	Method string `json:"method"`
	Params struct {
		Reason string `json:"reason"`
		Meta   struct {
			ProgressToken jsontext.Value `json:"progressToken"`
			ClientInfo    clientInfo     `json:"io.modelcontextprotocol/clientInfo"`
		} `json:"_meta"`
		ClientInfo clientInfo `json:"clientInfo"`
	} `json:"params"`
}

type clientInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// count records a request and returns its number.
func (r *recorder) count(q *http.Request, body []byte) int {
	var m message
	_ = json.Unmarshal(body, &m) // a body that is not a message counts only as a request
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	t := &r.traffic
	t.note(q)
	t.message(m)
	return r.number
}

// note counts an HTTP request.
func (t *traffic) note(q *http.Request) {
	if v := q.Header.Get("Mcp-Protocol-Version"); v != "" && !slices.Contains(t.Versions, v) {
		t.Versions = append(t.Versions, v)
	}
	switch {
	case q.Method == http.MethodGet && q.URL.Path == endpoint:
		t.Streams++
	case q.Method == http.MethodDelete:
		t.Deletes++
	}
}

// message counts a message.
func (t *traffic) message(m message) {
	for _, c := range []clientInfo{m.Params.ClientInfo, m.Params.Meta.ClientInfo} {
		if c.Name != "" {
			t.Client = c.Name + " " + c.Version
		}
	}
	switch m.Method {
	case "tools/call":
		t.Calls++
		t.Progress = t.Progress || m.Params.Meta.ProgressToken != nil
	case "tasks/get":
		t.Polls++
	case "notifications/cancelled":
		t.Cancels = append(t.Cancels, m.Params.Reason)
	}
}

func (r *recorder) counted() traffic {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.traffic
}

// write adds a line to the file. Errors are ignored, because they affect only the log, not the
// result.
func (r *recorder) write(number int, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.file, "%8.2f #%d %s\n", r.now().Sub(r.start).Seconds(), number, fmt.Sprintf(format, args...))
}

// A recordedBody is the body of an answer that is recorded while it is read.
type recordedBody struct {
	io.ReadCloser
	recorder *recorder
	number   int
}

// Read implements [io.Reader].
func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.recorder.write(b.number, "< %s", strings.ReplaceAll(strings.TrimRight(string(p[:n]), "\n"), "\n", "⏎"))
	}
	return n, err
}
