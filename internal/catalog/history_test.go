package catalog_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// failing are records that can fail, and that count reads.
type failing struct {
	gatestore.Records
	down  atomic.Bool
	reads atomic.Int64
	later time.Duration // by how much the gate's clock is ahead
	put   func()        // is called once, after a record was put; may be nil
}

func (f *failing) PutRecord(ctx context.Context, r gatestore.Record) error {
	err := f.Records.PutRecord(ctx, r)
	if then := f.put; then != nil {
		f.put = nil
		then()
	}
	return err
}

func (f *failing) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	f.reads.Add(1)
	if f.down.Load() {
		return gatestore.Record{}, &task.Error{Kind: task.ErrUnavailable, Action: action.GetRecord}
	}
	return f.Records.GetRecord(ctx, name)
}

const byHints = `
permit (principal, action == ThoughtGate::Action::"call", resource) when { context.annotations.readOnlyHint };
@approval("default") permit (principal, action == ThoughtGate::Action::"call", resource) unless { context.annotations.readOnlyHint };
`

func newCatalogWithHints(t *testing.T, observe bool) (*catalog.Catalog, *failing) {
	t.Helper()
	snapshot, _, err := policy.Compile(policy.Config{
		Default: policy.Rule{Action: policy.AskPolicies}, Cedar: []policy.Source{{Name: "hints", Text: []byte(byHints)}}, Observe: observe,
		Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}, "strict": {Quorum: 2, Timeout: time.Hour}},
	})
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	records := &failing{Records: store}
	g := catalog.New(&catalog.Settings{Policy: snapshot}, func() time.Time { return time.Now().Add(records.later) }, slog.New(slog.DiscardHandler), nil)
	g.UseHistory(toolhistory.Store{Records: records, Journal: store})
	return g, records
}

func verdictOn(t *testing.T, g *catalog.Catalog, tool string) policy.Verdict {
	t.Helper()
	j, err := g.Judge(t.Context(), client("a"), message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`), catalog.RequestInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return j.Verdict
}

// If the store fails, policy uses only hints of tools whose history is cached. A forwarded call
// does not read the store.
func TestUnknownHintsDoNotCountWithoutStore(t *testing.T) {
	g, records := newCatalogWithHints(t, false)
	const known, other = `{"name":"known","annotations":{"readOnlyHint":true}}`, `{"name":"other","annotations":{"readOnlyHint":true}}`
	listPage(t, g, client("a"), "", "["+known+"]")
	before := records.reads.Load()
	for range 3 {
		if v := verdictOn(t, g, "known"); v.Action != policy.Forward {
			t.Fatalf("a tool that was first seen so: %+v", v)
		}
	}
	if n := records.reads.Load() - before; n != 0 {
		t.Errorf("forwarded calls read the store %d times", n)
	}
	records.down.Store(true)
	listPage(t, g, client("a"), "", "["+known+","+other+"]")
	if v := verdictOn(t, g, "known"); v.Action != policy.Forward {
		t.Errorf("a tool with a cached history: %+v", v)
	}
	if v := verdictOn(t, g, "other"); v.Action != policy.Approve {
		t.Errorf("a tool whose history could not be stored: %+v", v)
	}
	records.down.Store(false)
	if v := verdictOn(t, g, "other"); v.Action != policy.Forward {
		t.Errorf("after its history could be stored: %+v", v)
	}
}

// If verdicts are only observed, a changed tool is recorded once. Its later calls do not read the
// store.
func TestObservedChangeIsRecordedOnce(t *testing.T) {
	g, records := newCatalogWithHints(t, true)
	listPage(t, g, client("a"), "", `[{"name":"wipe"}]`)
	listPage(t, g, client("a"), "", `[{"name":"wipe","annotations":{"readOnlyHint":true}}]`)
	v := verdictOn(t, g, "wipe")
	if v.Action != policy.Forward || v.Would == nil || v.Would.Action != policy.Approve || !v.Would.Changed {
		t.Fatalf("the verdict is %+v", v)
	}
	before := records.reads.Load()
	verdictOn(t, g, "wipe")
	if n := records.reads.Load() - before; n != 0 {
		t.Errorf("a call that is only observed read the store %d times", n)
	}
}

// A client sees that calls of a changed tool can be tasks, because they are held.
func TestChangedToolIsShownAsHeld(t *testing.T) {
	snapshot, _, err := policy.Compile(policy.Config{
		Default: policy.Rule{Action: policy.AskPolicies}, Workflows: map[string]policy.Workflow{"lax": {Quorum: 1, Timeout: time.Hour}, "strict": {Quorum: 2, Timeout: time.Hour}},
		Cedar: []policy.Source{{Name: "hints", Text: []byte(`permit (principal, action == ThoughtGate::Action::"call", resource) unless { context.annotations.title == "x" };`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := catalog.New(&catalog.Settings{Policy: snapshot}, time.Now, slog.New(slog.DiscardHandler), nil)
	shown := func(definition string) string {
		listPage(t, g, client("a"), "", "["+definition+"]")
		_, support := g.View(client("a"), "tools/list").Entry("wipe", "", value(definition))
		return support
	}
	if support := shown(`{"name":"wipe"}`); support != "" {
		t.Errorf("at first it is shown as %q", support)
	}
	if support := shown(`{"name":"wipe","inputSchema":{"type":"object"}}`); support != "optional" {
		t.Errorf("after a change it is shown as %q", support)
	}
	if v := verdictOn(t, g, "wipe"); v.Action != policy.Approve || v.Workflow != "strict" {
		t.Errorf("without a workflow called default, the verdict is %+v; want the strictest workflow", v)
	}
}

// The strictest definition counts in any order: twice in one list, in two lists at the same time,
// and before and after the store has lost its records.
func TestStrictestDefinitionCounts(t *testing.T) {
	const silent, readOnly = `{"name":"wipe"}`, `{"name":"wipe","annotations":{"readOnlyHint":true}}`
	tests := map[string]func(*testing.T, *catalog.Catalog, *failing){
		"twice in one list": func(t *testing.T, g *catalog.Catalog, _ *failing) {
			listPage(t, g, client("a"), "", "["+silent+","+readOnly+"]")
		},
		"two lists at once": func(t *testing.T, g *catalog.Catalog, records *failing) {
			records.put = func() { listPage(t, g, client("b"), "", "["+silent+"]") }
			listPage(t, g, client("a"), "", "["+readOnly+"]")
		},
		"records are lost": func(t *testing.T, g *catalog.Catalog, records *failing) {
			listPage(t, g, client("a"), "", "["+silent+"]")
			lost, err := records.ListRecords(t.Context(), gatestore.RecordQuery{Limit: 100})
			if err != nil || len(lost) != 1 {
				t.Fatal(lost, err)
			}
			if err := records.DeleteRecord(t.Context(), lost[0].Name); err != nil {
				t.Fatal(err)
			}
			records.later = time.Hour
			listPage(t, g, client("a"), "", "["+readOnly+"]")
		},
	}
	for name, list := range tests {
		t.Run(name, func(t *testing.T) {
			g, records := newCatalogWithHints(t, false)
			list(t, g, records)
			if v := verdictOn(t, g, "wipe"); v.Action != policy.Approve || !v.Changed {
				t.Errorf("the verdict is %+v", v)
			}
			changes, err := toolhistory.Store{Records: records}.Changes(t.Context(), 10)
			if err != nil || len(changes) != 1 {
				t.Errorf("an operator can accept %+v, %v", changes, err)
			}
		})
	}
}
