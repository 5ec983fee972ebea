package httpserver

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

// limitedConnOf returns the limitedConn below a connection of [http.Server].
func limitedConnOf(c net.Conn) (*limitedConn, bool) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	bounded, ok := c.(*limitedConn)
	return bounded, ok
}

// connKey is the context key of a request's connection.
type connKey struct{}

// withConn is the ConnContext of an [http.Server].
func (c Config) withConn(ctx context.Context, conn net.Conn) context.Context {
	if c.Context != nil {
		ctx = c.Context(ctx, conn)
	}
	if limited, ok := limitedConnOf(conn); ok {
		return context.WithValue(ctx, connKey{}, limited)
	}
	return ctx
}

// connStateChanged is the ConnState of an [http.Server]. A connection becomes idle when
// its request has been answered.
func (c Config) connStateChanged(conn net.Conn, state http.ConnState) {
	if limited, ok := limitedConnOf(conn); ok && state == http.StateIdle {
		limited.slot.SetIdle()
	}
	if c.State != nil && state != http.StateHijacked { // a stream stays open until streamClosed
		c.State(conn, state)
	}
}

// streamClosed reports that the connection of a stream was closed.
func (c Config) streamClosed(conn net.Conn) {
	if c.State != nil {
		c.State(conn, http.StateClosed)
	}
}

// lingerTimeout is how long a refused client may go on sending its body.
const lingerTimeout = time.Second

// trackUse marks a connection as in use while next serves a request of it. It aborts a
// request whose connection was already closed in favour of a new one. A connection that
// waits to be closed with part of its body unread counts as idle.
func trackUse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, ok := r.Context().Value(connKey{}).(*limitedConn)
		if !ok || !conn.slot.Use() {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
		if r.ContentLength == 0 || w.Header().Get("Connection") != "close" {
			return
		}
		control := http.NewResponseController(w)
		if control.Flush() != nil || control.SetReadDeadline(time.Now().Add(lingerTimeout)) != nil {
			panic(http.ErrAbortHandler)
		}
		conn.slot.SetIdle()
	})
}

// maxOperatorBody is larger than any request body of an operator.
const maxOperatorBody = 64<<10 + 1

// readBody reads the body of a request, or the first part of a large one, into memory.
// The client is not authenticated yet, so the time is limited and the connection counts
// as idle meanwhile. readBody reports false if the connection was closed.
func readBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) bool {
	conn, ok := r.Context().Value(connKey{}).(*limitedConn)
	if !ok || http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout)) != nil {
		return false
	}
	conn.slot.SetIdle()
	var body bytes.Buffer
	_, err := io.CopyN(&body, r.Body, maxOperatorBody)
	if !conn.slot.Use() {
		return false
	}
	if errors.Is(err, io.EOF) {
		r.Body = io.NopCloser(&body)
		return true
	}
	w.Header().Set("Connection", "close") // otherwise net/http reads the rest before it answers
	r.Body = io.NopCloser(io.MultiReader(&body, r.Body))
	return true
}
