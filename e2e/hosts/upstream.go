package main

import (
	"context"
	"net"
	"net/http"
	"time"
)

// serve runs an HTTP server on a loopback address until stop is called.
func serve(ctx context.Context, h http.Handler) (address string, stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	return "http://" + l.Addr().String(), func() {
		_ = server.Close() // open connections are no longer needed
		<-done
	}, nil
}

// A legacyServer is an upstream that does not support 2026-07-28.
type legacyServer struct{ http.Handler }

// ServeHTTP implements [http.Handler]. A server of 2025-11-25 answers an unknown
// version of the protocol with 400, and ignores headers that it does not know.
func (s legacyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if version := r.Header.Get("Mcp-Protocol-Version"); version > "2025-11-25" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: unsupported protocol version"}}`))
		return
	}
	s.Handler.ServeHTTP(w, r)
}
