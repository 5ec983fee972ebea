package listener

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// boundedOf returns the connection that a server calls c.
func boundedOf(c net.Conn) (*boundedConn, bool) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	bounded, ok := c.(*boundedConn)
	return bounded, ok
}

// connKey is under which a request's context has its connection.
type connKey struct{}

// withConn is the ConnContext of an [http.Server].
func (c Config) withConn(ctx context.Context, conn net.Conn) context.Context {
	if c.Context != nil {
		ctx = c.Context(ctx, conn)
	}
	if bounded, ok := boundedOf(conn); ok {
		return context.WithValue(ctx, connKey{}, bounded)
	}
	return ctx
}

// changed is the ConnState of an [http.Server]. A connection is idle once its request
// has been answered.
func (c Config) changed(conn net.Conn, state http.ConnState) {
	if bounded, ok := boundedOf(conn); ok && state == http.StateIdle {
		bounded.place.SetIdle()
	}
	if c.State != nil && state != http.StateHijacked { // a stream is open, see closed
		c.State(conn, state)
	}
}

// closed says that the connection of a stream is closed.
func (c Config) closed(conn net.Conn) {
	if c.State != nil {
		c.State(conn, http.StateClosed)
	}
}

// lingering is how long a client that was refused may go on sending its body.
const lingering = time.Second

// busy says that a connection is in use while next serves a request of it. What
// arrives when its connection has given way is not served: nobody would hear the
// answer. A connection that is to be closed with some of the body unread, gives
// way to others until then.
func busy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, ok := r.Context().Value(connKey{}).(*boundedConn)
		if !ok || !conn.place.Use() {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
		if r.ContentLength == 0 || w.Header().Get("Connection") != "close" {
			return
		}
		control := http.NewResponseController(w)
		if control.Flush() != nil || control.SetReadDeadline(time.Now().Add(lingering)) != nil {
			panic(http.ErrAbortHandler)
		}
		conn.place.SetIdle()
	})
}

// maxOperatorBody is more than any request of an operator has.
const maxOperatorBody = 64<<10 + 1

// readFirst reads the body of a request into memory, or the first part of a large one.
// Its client has limited time for that, and meanwhile the connection gives way to
// others: anybody can send a request, long before it is known who they are. It reports
// false if the connection has given way, or is broken.
func readFirst(w http.ResponseWriter, r *http.Request, patience time.Duration) bool {
	conn, ok := r.Context().Value(connKey{}).(*boundedConn)
	if !ok || http.NewResponseController(w).SetReadDeadline(time.Now().Add(patience)) != nil {
		return false
	}
	conn.place.SetIdle()
	var body bytes.Buffer
	_, err := io.CopyN(&body, r.Body, maxOperatorBody)
	if !conn.place.Use() {
		return false
	}
	if errors.Is(err, io.EOF) {
		r.Body = io.NopCloser(&body)
		return true
	}
	w.Header().Set("Connection", "close") // or the server would wait for the rest before it answers
	r.Body = io.NopCloser(io.MultiReader(&body, r.Body))
	return true
}
