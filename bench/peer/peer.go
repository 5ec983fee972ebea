// Package peer holds the servers that the gate is measured against and with: an
// upstream that answers the calls of package workload, and a plain reverse
// proxy. Each runs in a process of its own, so that its CPU time and memory can
// be told apart from the gate's.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// Serve serves h on a free loopback port, and the process's own figures on
// another, until ctx ends. It announces both ports on log as the gate does.
func Serve(ctx context.Context, h http.Handler, log *slog.Logger) error {
	var listen net.ListenConfig
	agents, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	operators, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, agents.Close())
	}
	servers := []*http.Server{
		{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}, // as a gate has
		{Handler: figures(), ReadHeaderTimeout: time.Minute},
	}
	served := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, l := range []net.Listener{agents, operators} {
		wg.Go(func() { served[i] = servers[i].Serve(l) })
	}
	log.InfoContext(ctx, "listening", "agents", agents.Addr().String(), "operators", operators.Addr().String())
	<-ctx.Done()
	var closed []error
	for _, s := range servers {
		closed = append(closed, s.Close())
	}
	wg.Wait()
	for _, err := range served {
		if !errors.Is(err, http.ErrServerClosed) {
			return err
		}
	}
	return errors.Join(closed...)
}

// figures serves the one line of Prometheus text that is asked for.
func figures() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if _, err := fmt.Fprintf(w, "go_memstats_mallocs_total %d\n", m.Mallocs); err != nil {
			return
		}
	})
	return mux
}

// UntilClosed returns a context that ends when r does. A process that was
// given a pipe dies with the process that holds the other end.
func UntilClosed(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // it lives as long as the process, and ends it
		_, err := io.Copy(io.Discard, r)
		cancel(errors.Join(errors.New("standard input is closed"), err))
	}()
	return ctx
}
