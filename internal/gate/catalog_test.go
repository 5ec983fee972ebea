package gate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A client that makes up cursors, or says more of itself than anybody wants to
// know, makes the gate remember no more than others do.
func TestCatalogIsBoundedForOneClient(t *testing.T) {
	const bound = 40 << 20
	g := newGate(t, nil, policy.Rule{Match: "*", Action: policy.Forward})
	c := gate.Client{Upstream: "test", Key: "one"}
	page := []byte(strings.Repeat("x", 1<<20)) // shared, so that a gate which keeps all does not need more than that
	size := 0
	for i := range 203 {
		g.Learn(t.Context(), c, gate.Page{Method: "tools/list", Cursor: fmt.Sprint(i), Result: page}, jsonrpc.Value{})
	}
	for i := range 203 {
		if kept, ok := g.Remembered(c, "tools/list", fmt.Sprint(i)); ok {
			size += len(kept)
		}
	}
	if size == 0 || size > bound {
		t.Errorf("%d bytes of one client's pages are kept", size)
	}

	cursor, size := strings.Repeat("c", 1<<20), 0
	for i := range 203 {
		g.Learn(t.Context(), c, gate.Page{Method: "tools/list", Cursor: cursor + fmt.Sprint(i)}, jsonrpc.Value{})
	}
	for i := range 203 {
		if _, ok := g.Remembered(c, "tools/list", cursor+fmt.Sprint(i)); ok {
			size += len(cursor)
		}
	}
	if size > bound {
		t.Errorf("%d bytes of one client's cursors are kept", size)
	}

	name := strings.Repeat("n", 1<<20)
	for i := range 203 {
		g.Meet(gate.Client{Upstream: "test", Key: fmt.Sprint(i)}, gate.Facts{Session: policy.Session{Client: name, Version: name, Protocol: name}})
	}
	size = 0
	for i := range 203 {
		s := g.About(gate.Client{Upstream: "test", Key: fmt.Sprint(i)}).Session
		size += len(s.Client) + len(s.Version) + len(s.Protocol)
	}
	if size == 0 || size > 1<<20 {
		t.Errorf("%d bytes of names of clients are kept", size)
	}
}
