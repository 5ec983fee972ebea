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
	conn, buffered, err := server.Hijack()
	if err != nil {
		return false
	}
	go l.serveStream(taken{conn: conn, r: r, silent: buffered.Reader.Buffered() == 0})
	return true
}

// taken is a request that was taken over.
type taken struct {
	conn   net.Conn
	r      *http.Request
	silent bool // nothing has arrived behind the request
}

// serveStream serves a request, and closes its connection.
func (l *liveHandler) serveStream(t taken) {
	defer l.served()
	ctx, leave := context.WithCancel(context.WithoutCancel(t.r.Context()))
	var reading sync.WaitGroup
	defer reading.Wait()
	defer l.streams.close(t.conn)
	defer leave()
	if !l.streams.add(t.conn) {
		return
	}
	if t.silent {
		reading.Go(func() { awaitEnd(t.conn, leave) })
	}
	l.answer(ctx, &streamWriter{conn: t.conn, leave: leave, header: http.Header{}}, t.r.WithContext(ctx))
}

// awaitEnd calls leave when the client has closed its connection. If the client sends
// something instead, it can be seen only by writing to it whether it is still there.
func awaitEnd(conn net.Conn, leave func()) {
	var one [1]byte
	if _, err := conn.Read(one[:]); err != nil {
		leave()
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
	open map[net.Conn]struct{}
	over bool // none may be open any more
}

// add takes a connection in. It reports false if none may be open.
func (s *streams) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	if s.open == nil {
		s.open = make(map[net.Conn]struct{})
	}
	s.open[conn] = struct{}{}
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
	for conn := range s.open {
		_ = conn.Close()
	}
}
