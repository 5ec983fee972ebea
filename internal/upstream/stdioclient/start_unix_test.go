//go:build unix

package stdioclient

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

// A client that leaves while the server starts does not wait for it, and others get that server.
// Closing the gate ends a starting server.
func TestClientLeavingDuringStartKeepsServer(t *testing.T) {
	t.Parallel()
	greeted := filepath.Join(t.TempDir(), "greeted")
	c := script(`read -r line; : >"$0"; exec sleep 1000`, greeted)
	c.StartOnDemand(make(receiver, 10), []byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`))
	defer c.Close()
	ctx, leave := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.InitializeResult(ctx)
		first <- err
	}()
	await(t, greeted)
	c.mu.Lock()
	started := c.latest
	c.mu.Unlock()
	leave()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("a client that left: %v", err)
	}
	select {
	case <-started.exited:
		t.Error("the server has ended with its first client")
	default:
	}
	go func() {
		_, err := c.InitializeResult(t.Context())
		second <- err
	}()
	c.Close()
	if err := <-second; err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a client that waited for a server which was ended: %v", err)
	}
	if c.latest != started {
		t.Error("the server was started twice")
	}
}

// A server that ends while it starts is not used.
func TestServerEndingDuringStartIsNotUsed(t *testing.T) {
	t.Parallel()
	c := script(`exit`)
	c.StartOnDemand(make(receiver, 10), nil)
	defer c.Close()
	ch, err := c.launch()
	if err != nil {
		t.Fatal(err)
	}
	<-ch.ended
	c.use(ch)
	if c.current.Load() != nil {
		t.Error("messages are sent to a server that has ended")
	}
}
