package listener

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

// A request for a stream of events is taken over from net/http, which keeps three
// buffers and a large stack for each request that it serves: most streams are idle, and
// there may be many.

// asksForEvents reports whether r asks for a stream of events.
func asksForEvents(r *http.Request) bool {
	return r.Method == http.MethodGet && r.ProtoAtLeast(1, 1) && r.ContentLength == 0 &&
		strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

// takeOver serves a request for a stream of events on its connection, in a goroutine of
// its own. It reports false if net/http has to serve it.
func (l *liveHandler) takeOver(w http.ResponseWriter, r *http.Request) bool {
	server, ok := w.(http.Hijacker)
	if !ok || !asksForEvents(r) {
		return false
	}
	conn, _, err := server.Hijack()
	if err != nil { // net/http does not close the connection any more
		if bounded, ok := r.Context().Value(connKey{}).(*boundedConn); ok {
			l.streams.close(bounded)
		}
		l.served()
		panic(http.ErrAbortHandler)
	}
	go l.serveStream(conn, r)
	return true
}

// serveStream serves a request, and closes its connection.
func (l *liveHandler) serveStream(conn net.Conn, r *http.Request) {
	defer l.served()
	ctx, leave := context.WithCancel(context.WithoutCancel(r.Context()))
	var reading sync.WaitGroup
	defer reading.Wait()
	defer l.streams.close(conn)
	defer leave()
	if !l.streams.add(conn, leave) {
		return
	}
	reading.Go(func() { awaitEnd(conn, leave) })
	l.answer(ctx, &streamWriter{conn: conn, leave: leave, header: http.Header{}}, r.WithContext(ctx))
}

// maxBehind is how much a client may send behind its request before it loses its stream.
const maxBehind = 64 << 10

// awaitEnd calls leave when the client has closed its connection. What the client sends
// behind its request is not answered: the connection ends with the stream.
func awaitEnd(conn net.Conn, leave func()) {
	defer leave()
	var piece [64]byte
	for read := 0; read < maxBehind; {
		n, err := conn.Read(piece[:])
		if err != nil {
			return
		}
		read += n
	}
}

// answer has the handler answer a request, and completes the answer, unless the handler
// has broken off.
func (l *liveHandler) answer(ctx context.Context, w *streamWriter, r *http.Request) {
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

// streams are the connections that were taken over.
type streams struct {
	log    *slog.Logger
	closed func(net.Conn) // is called when a connection is closed

	mu   sync.Mutex
	open map[net.Conn]context.CancelFunc // with what ends the request
	over bool                            // none may be open any more
}

// add takes a connection in, with what ends its request. It reports false if none may be
// open.
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

// cut closes all connections. Their requests may still be served.
func (s *streams) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for conn, leave := range s.open {
		_ = conn.Close() // first, so that no answer seems complete
		leave()
	}
}
