package provenance_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/process"
	"github.com/thoughtgate/thoughtgate-go/internal/provenance"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

var quiet = slog.New(slog.DiscardHandler)

// request returns the context of a request by a program that this process has started, and that
// program.
func request(t *testing.T) (context.Context, testenv.Visitor) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	program := testenv.ConnectAs(t, os.Getuid(), l.Addr().String(), "")
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return provenance.WithConn(t.Context(), c), program
}

func self(t *testing.T) process.ID {
	t.Helper()
	id, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Every gate knows the agents of the gates that share its store, also after those gates have
// registered again. Other gates do not.
func TestGatesShareTheirAgents(t *testing.T) {
	ctx, program := request(t)
	store := memstore.New(memstore.Options{})
	token := gatetask.Via{Kind: gatetask.ViaAPI, Login: "token"}
	one, other := provenance.New(store, quiet), provenance.New(store, quiet)
	for range 2 {
		if got, err := other.Locate(ctx, token); err != nil || got.FromAgent != gatetask.FromAgentUnknown || got.PID == 0 || got.Program == "" {
			t.Errorf("without agents: %+v, %v", got, err)
		}
	}
	for range 2 {
		one.Register(t.Context(), self(t), time.Now())
		if got, err := other.Locate(ctx, token); err != nil || got.FromAgent != gatetask.FromAgentYes || got.Login != "token" {
			t.Errorf("with an agent: %+v, %v", got, err)
		}
	}
	if got, err := provenance.New(nil, quiet).Locate(ctx, token); err != nil || got.FromAgent != gatetask.FromAgentUnknown {
		t.Errorf("at a gate with another store: %+v, %v", got, err)
	}
	program.Leave()
	if got, err := other.Locate(ctx, token); !errors.Is(err, provenance.ErrClosed) || got.FromAgent != gatetask.FromAgentUnknown {
		t.Errorf("after the program has ended: %+v, %v", got, err)
	}
}

// An agent whose processes have ended is forgotten when another one registers.
func TestEndedAgentsAreForgotten(t *testing.T) {
	store := memstore.New(memstore.Options{})
	provenance.New(store, quiet).Register(t.Context(), self(t), time.Now())
	prefix := gatestore.RecordQuery{Prefix: "agents/", Limit: 10}
	all, err := store.ListRecords(t.Context(), prefix)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d records, %v", len(all), err)
	}
	ended := all[0]
	ended.Name += "0"
	ended.Value = []byte(`{"host":{"pid":1,"start":999999999},"gate":{"pid":1,"start":999999999}}`)
	if err := store.PutRecord(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	provenance.New(store, quiet).Register(t.Context(), self(t), time.Now())
	if left, err := store.ListRecords(t.Context(), prefix); err != nil || len(left) != 1 || left[0].Name != all[0].Name {
		t.Errorf("%v, %v", left, err)
	}
}

// A decision that did not come over a connection of this machine stays as it is.
func TestElsewhere(t *testing.T) {
	via := gatetask.Via{Kind: gatetask.ViaInbox, Login: "session"}
	if got, err := provenance.New(nil, quiet).Locate(t.Context(), via); got != via || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	ctx, _ := request(t)
	if got, err := (*provenance.Agents)(nil).Locate(ctx, via); got != via || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}
