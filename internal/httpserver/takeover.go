package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
)

// Requests for event streams are hijacked from net/http, which keeps three buffers and a
// large stack for each running request. There may be thousands of streams, most of them
// idle.

// asksForEvents reports whether r asks for a stream of events.
func asksForEvents(r *http.Request) bool {
	return r.Method == http.MethodGet && r.ProtoAtLeast(1, 1) && r.ContentLength == 0 &&
		strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

// takeOver serves a request for an event stream in a new goroutine. It reports false if
// net/http must serve the request.
func (l *swappableHandler) takeOver(w http.ResponseWriter, r *http.Request) bool {
	server, ok := w.(http.Hijacker)
	if !ok || !asksForEvents(r) {
		return false
	}
	conn, _, err := server.Hijack()
	if err != nil { // net/http no longer closes the connection
		if limited, ok := r.Context().Value(connKey{}).(*limitedConn); ok {
			l.streams.close(limited)
		}
		l.serving.End()
		panic(http.ErrAbortHandler)
	}
	go l.serveStream(conn, r)
	return true
}

// serveStream serves a request, and closes its connection.
func (l *swappableHandler) serveStream(conn net.Conn, r *http.Request) {
	defer l.serving.End()
	ctx, leave := context.WithCancel(context.WithoutCancel(r.Context()))
	var reading sync.WaitGroup
	defer reading.Wait()
	defer l.streams.close(conn)
	defer leave()
	if !l.streams.add(conn, leave) {
		return
	}
	reading.Go(func() { watchClient(conn, leave) })
	l.answer(ctx, &streamWriter{conn: conn, leave: leave, header: http.Header{}}, r.WithContext(ctx))
}

// maxExtraInput is how many bytes a client may send after its request before its stream
// is closed.
const maxExtraInput = 64 << 10

// watchClient calls leave when the client has closed the connection. It discards further
// input, because the connection ends with the stream.
func watchClient(conn net.Conn, leave func()) {
	defer leave()
	var piece [64]byte
	for read := 0; read < maxExtraInput; {
		n, err := conn.Read(piece[:])
		if err != nil {
			return
		}
		read += n
	}
}

// answer calls the handler and completes the answer, unless the handler panics.
func (l *swappableHandler) answer(ctx context.Context, w *streamWriter, r *http.Request) {
	defer func() {
		cause := recover()
		if err, ok := cause.(error); cause == nil || ok && errors.Is(err, http.ErrAbortHandler) {
			return
		}
		l.streams.log.ErrorContext(ctx, "panic", "panic", cause, "stack", string(debug.Stack()))
	}()
	(*l.current.Load()).ServeHTTP(w, r)
	w.end()
}

// streams are the hijacked connections.
type streams struct {
	log    *slog.Logger
	closed func(net.Conn) // is called when a connection was closed

	mu   sync.Mutex
	open map[net.Conn]context.CancelFunc // the functions end the requests
	over bool                            // no more streams may open
}

// add adds a connection with the function that ends its request. It reports false after
// closeAll.
func (s *streams) add(conn net.Conn, leave context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	if s.open == nil {
		s.open = make(map[net.Conn]context.CancelFunc)
	}
	s.open[conn] = leave
	return true
}

// close closes a connection.
func (s *streams) close(conn net.Conn) {
	_ = conn.Close()
	s.closed(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
}

// closeAll closes all connections. Their handlers may still run.
func (s *streams) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for conn, leave := range s.open {
		_ = conn.Close() // before leave, so that no answer looks complete
		leave()
	}
}
