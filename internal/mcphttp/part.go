package mcphttp

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/several"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A partRequest is the part of a request that one server of an endpoint gets.
type partRequest struct {
	server *several.Server
	method string
	header http.Header
	body   []byte
}

// part returns the exchange of one server for a part of the request of x. Everything about it is as
// if the client had sent that to an endpoint with this server only. It is answered at w.
func (x *exchange) part(ctx context.Context, w http.ResponseWriter, of partRequest) *exchange {
	r := x.r.WithContext(ctx)
	r.Method, r.Header, r.Body, r.ContentLength = of.method, of.header, http.NoBody, 0
	p := newExchange(x.h, w, r)
	p.client.shown = x.r.WithContext(ctx)
	p.client.shown.Header = x.r.Header.Clone()
	p.client.path, p.client.upstream = x.client.path, of.server.Client
	p.client.agent, p.client.epoch, p.client.authorization = x.client.agent, x.client.epoch, x.client.authorization
	p.client.ctx.Principal = x.client.ctx.Principal
	p.body.text = of.body
	return p
}

// run serves the part, and reports whether its answer is broken off.
func (x *exchange) run() (broken bool) {
	return x.record(x.account.Safely(func() error {
		switch x.r.Method {
		case http.MethodGet:
			return x.withSlot(x.h.streams, x.get)
		case http.MethodDelete:
			return x.withSlot(x.h.requests, x.delete)
		default:
			return x.withSlot(x.h.requests, x.post)
		}
	}, x.reply.Refuse))
}

// headerFor returns the headers of a request for a server.
func headerFor(s *several.Server, from http.Header) http.Header {
	header := make(http.Header, len(from))
	for name, values := range from {
		if s.Passes(name) {
			header[name] = slices.Clone(values)
		}
	}
	header.Del(sessionHeader)
	return header
}

// A recorder keeps the answer of a server in memory.
type recorder struct {
	head   http.Header
	status int
	body   bytes.Buffer
	limit  int
	events *eventWrapper // gets an event stream instead; may be nil
}

func newRecorder(limit int) *recorder { return &recorder{head: make(http.Header), limit: limit} }

// Header implements [http.ResponseWriter].
func (r *recorder) Header() http.Header { return r.head }

// WriteHeader implements [http.ResponseWriter].
func (r *recorder) WriteHeader(status int) { r.status = status }

// Write implements [http.ResponseWriter].
func (r *recorder) Write(p []byte) (int, error) {
	if r.events != nil && strings.HasPrefix(r.head.Get("Content-Type"), "text/event-stream") {
		return r.events.Write(p)
	}
	if r.body.Len()+len(p) > r.limit {
		return 0, jsonrpc.ErrTooLarge
	}
	return r.body.Write(p)
}

// FlushError is for [http.ResponseController].
func (r *recorder) FlushError() error { return nil }

// SetWriteDeadline is for [http.ResponseController].
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

// answer returns the response to a request in the recorded answer, or nil.
func (r *recorder) answer(id []byte) *jsonrpc.Message {
	isAnswer := func(m *jsonrpc.Message, err error) bool {
		return err == nil && m.Kind == jsonrpc.Response && (jsonrpc.SameID(m.ID.Bytes, id) || m.Error.Present())
	}
	if !strings.HasPrefix(r.head.Get("Content-Type"), "text/event-stream") {
		m, err := jsonrpc.ParseMessage(r.body.Bytes(), jsonrpc.Limits{})
		if !isAnswer(m, err) {
			return nil
		}
		return m
	}
	events := jsonrpc.NewEventReader(&r.body, r.limit)
	for {
		e, err := events.Next()
		if err != nil {
			return nil
		}
		if m, err := jsonrpc.ParseMessage(e.Data, jsonrpc.Limits{}); isAnswer(m, err) {
			return m
		}
	}
}

// A partWriter passes the answer of one server on to the client. Events get ids of their server.
// Statuses about the session or the credentials of the gate at the server are not for the client.
type partWriter struct {
	http.ResponseWriter

	server   *several.Server
	session  *several.Session       // of the client with the endpoint; may be nil
	learn    func(*jsonrpc.Message) // gets the answer if it is small; may be nil
	reached  *bool                  // whether the server has answered
	withheld int                    // the status that the client does not get, or 0
	isJSON   bool
	small    []byte // the begin of a JSON answer

	mu     sync.Mutex
	events *eventWrapper // nil if the answer is no event stream
}

// Unwrap is for [http.ResponseController].
func (w *partWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w *partWriter) WriteHeader(status int) {
	header := w.Header()
	if header.Get(sessionHeader) != "" {
		if header.Del(sessionHeader); w.session != nil {
			header.Set(sessionHeader, w.session.ID)
		}
	}
	header.Del("Www-Authenticate")
	refused := *w.reached && (status == http.StatusUnauthorized || status == http.StatusForbidden)
	if refused || status == http.StatusNotFound && w.session != nil {
		w.withheld = status
		clear(header)
		return
	}
	w.isJSON = strings.HasPrefix(header.Get("Content-Type"), "application/json")
	if strings.HasPrefix(header.Get("Content-Type"), "text/event-stream") {
		w.events = &eventWrapper{server: w.server, session: w.session, learn: w.learn, to: w.ResponseWriter.Write}
	}
	w.ResponseWriter.WriteHeader(status)
}

// maxLearned is the largest answer that the gate reads for the id of a task.
const maxLearned = 64 << 10

// Write implements [http.ResponseWriter].
func (w *partWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.withheld != 0:
		return len(p), nil
	case w.events != nil:
		return w.events.Write(p)
	case w.isJSON && w.learn != nil && len(w.small)+len(p) <= maxLearned:
		w.small = append(w.small, p...)
	default:
		w.small = nil
	}
	return w.ResponseWriter.Write(p)
}

// end passes on what is left of the last event, and learns from the answer.
func (w *partWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.events != nil {
		w.events.flush()
	}
	if m, err := jsonrpc.ParseMessage(w.small, jsonrpc.Limits{}); w.learn != nil && err == nil {
		w.learn(m)
	}
}

// maxWrapped is the largest event in which ids are changed. A larger one is an answer, or a request
// whose answer no server gets.
const maxWrapped = 1 << 20

// An eventWrapper passes on the events of a server with ids that name the server.
type eventWrapper struct {
	server  *several.Server
	session *several.Session // may be nil
	learn   func(*jsonrpc.Message)
	to      func([]byte) (int, error)
	whole   bool                     // drop events that are too large, instead of passing them on in parts
	pass    func(event []byte) error // takes complete events instead of to; may be nil
	limit   int                      // the size of a large event; zero means maxWrapped

	framer jsonrpc.Framer
	held   []byte
	large  bool // a part of the present event was passed on or dropped
}

// Write implements [io.Writer].
func (w *eventWrapper) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 {
		n, complete := w.framer.Next(p)
		w.held, p = append(w.held, p[:n]...), p[n:]
		var err error
		switch {
		case complete && !w.large:
			err = w.event(w.held)
		case complete || len(w.held) > cmp.Or(w.limit, maxWrapped):
			w.large = !complete
			if !w.whole {
				_, err = w.to(w.held)
			}
		default:
			continue
		}
		w.held = w.held[:0]
		if err != nil {
			return 0, err
		}
	}
	if cap(w.held) > maxLearned && len(w.held) == 0 {
		w.held = nil
	}
	return written, nil
}

// event passes on a complete event.
func (w *eventWrapper) event(text []byte) error {
	if w.pass != nil {
		return w.pass(text)
	}
	_, err := w.to(w.wrapped(text))
	return err
}

// flush passes on the incomplete rest of the stream.
func (w *eventWrapper) flush() {
	switch {
	case len(w.held) == 0:
	case !w.whole:
		_, _ = w.to(w.held)
	case !w.large && w.pass != nil:
		_ = w.pass(append(w.held, "\n\n"...)) // the stream has ended within its last event
	}
	w.held = nil
}

// wrapped returns an event as the client gets it.
func (w *eventWrapper) wrapped(text []byte) []byte {
	e, ok := jsonrpc.EventIn(text)
	if !ok {
		return text // a comment
	}
	changed := e.HasID && e.ID != ""
	if changed {
		e.ID = w.server.WrapEvent(e.ID)
	}
	if m, err := jsonrpc.ParseMessage(e.Data, jsonrpc.Limits{}); err == nil {
		if m.Kind == jsonrpc.Response && w.learn != nil {
			w.learn(m)
		}
		if data := w.server.ForClient(w.session, m); m.Kind != jsonrpc.Response && !bytes.Equal(data, m.Raw) {
			e.Data, changed = data, true
		}
	}
	if !changed {
		return text
	}
	return jsonrpc.AppendEvent(nil, e)
}

// A sharedStream is an event stream to which several servers write.
type sharedStream struct {
	out *response
	mu  sync.Mutex
}

// send writes and flushes complete events.
func (s *sharedStream) send(events []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.sendNow(events); err != nil {
		return 0, conversation.ErrGone
	}
	return len(events), nil
}

// A streamWriter writes the events of one server to a shared stream.
type streamWriter struct {
	head   http.Header
	status int
	mu     sync.Mutex
	events eventWrapper
	other  []byte // the begin of another answer
}

// refusal returns the error of an answer without events.
func (w *streamWriter) refusal() *jsonrpc.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := jsonrpc.ParseMessage(w.other, jsonrpc.Limits{})
	if err != nil {
		m = &jsonrpc.Message{}
	}
	return errorIn(m)
}

// errorIn returns the error in a response.
func errorIn(m *jsonrpc.Message) *jsonrpc.Error {
	code, ok := m.Error.Member("code").Int()
	if !ok {
		return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no server of this endpoint offers this"}
	}
	text, _ := m.Error.Member("message").Text()
	return &jsonrpc.Error{Code: int(code), Message: text, Data: bytes.Clone(m.Error.Member("data").Bytes)}
}

// Header implements [http.ResponseWriter].
func (w *streamWriter) Header() http.Header { return w.head }

// WriteHeader implements [http.ResponseWriter].
func (w *streamWriter) WriteHeader(status int) { w.status = status }

// Write implements [http.ResponseWriter].
func (w *streamWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status != http.StatusOK || !strings.HasPrefix(w.head.Get("Content-Type"), "text/event-stream") {
		w.other = append(w.other, p[:min(len(p), maxLearned-len(w.other))]...)
		return len(p), nil
	}
	return w.events.Write(p)
}

// FlushError is for [http.ResponseController].
func (w *streamWriter) FlushError() error { return nil }

// SetWriteDeadline is for [http.ResponseController]. The shared stream has its own deadlines.
func (w *streamWriter) SetWriteDeadline(time.Time) error { return nil }
