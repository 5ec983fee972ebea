// Package peer has the servers for comparison: an upstream that answers the calls of package
// workload, and a plain reverse proxy. Each runs in a separate process, so that its CPU time
// and memory can be measured separately.
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

// Serve serves h on a free loopback port, and the metrics of the process on another, until ctx
// ends. It logs both ports like the gate.
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
		{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}, // like a gate
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

// figures serves the one requested line of Prometheus text.
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

// UntilClosed returns a context that ends when r does. So a process whose input is a pipe ends
// with the process at the other end.
func UntilClosed(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends the process when the input ends
		_, err := io.Copy(io.Discard, r)
		cancel(errors.Join(errors.New("standard input is closed"), err))
	}()
	return ctx
}
