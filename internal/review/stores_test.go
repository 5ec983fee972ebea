package review_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// A countingStore counts how often whole tasks are read.
type countingStore struct {
	gatestore.Store

	documents atomic.Int64
}

func (s *countingStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	s.documents.Add(1)
	return s.Store.Get(ctx, ref)
}

func (s *countingStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	page, err := s.Store.List(ctx, q)
	if !q.Heads && !q.Outlines {
		s.documents.Add(int64(len(page.Tasks)))
	}
	return page, err
}

// openers return a function for each kind of store that opens one.
func openers() map[string]func(*testing.T) gatestore.Store {
	sqlite := func(t *testing.T) gatestore.Store {
		return opened[*sqlitestore.Store](t)(sqlitestore.Open(t.Context(), sqlitestore.Options{File: filepath.Join(t.TempDir(), "tasks.db")}))
	}
	return map[string]func(*testing.T) gatestore.Store{
		"memory": func(t *testing.T) gatestore.Store {
			return opened[*memstore.Store](t)(memstore.New(memstore.Options{MaxBytes: 1 << 30}), nil)
		},
		"SQLite": sqlite,
		"sealed SQLite": func(t *testing.T) gatestore.Store {
			keys, err := sealedstore.ParseKeys("one:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))))
			if err != nil {
				t.Fatal(err)
			}
			return sealedstore.New(sqlite(t), keys)
		},
		"PostgreSQL": func(t *testing.T) gatestore.Store {
			server, err := testenv.StartPostgres(t.Context())
			if !testenv.Available(t, err) {
				t.SkipNow()
			}
			t.Cleanup(func() { server.Stop() })
			return opened[*pgstore.Store](t)(pgstore.Open(t.Context(), pgstore.Options{URL: server.URL()}))
		},
		"Redis": func(t *testing.T) gatestore.Store {
			server, err := testenv.StartRedis(t.Context())
			if !testenv.Available(t, err) {
				t.SkipNow()
			}
			t.Cleanup(func() { server.Stop() })
			return opened[*redisstore.Store](t)(redisstore.Open(t.Context(), redisstore.Options{URL: server.URL()}))
		},
	}
}

// opened returns the store that was opened, and closes it at the end of the test.
func opened[S gatestore.Store](t *testing.T) func(S, error) gatestore.Store {
	return func(s S, err error) gatestore.Store {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
}

// newService returns a new service on a store, as after a restart of the gate.
func newService(t *testing.T, store gatestore.Store) *approval.Service {
	t.Helper()
	service, err := approval.New(approval.Config{
		Store: store, Judge: func(policy.Call) policy.Verdict { return policy.Verdict{} },
		Workflow: func(string) (approval.Workflow, bool) {
			return approval.Workflow{Timeout: time.Hour, Redact: []string{"arguments.password"}}, true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// After a restart a gate lists 300 pending calls of up to 1 MB each without reading whole
// tasks, in every kind of store.
func TestRestartedGateListsPreviewsOnly(t *testing.T) {
	const calls = 300
	for kind, open := range openers() {
		t.Run(kind, func(t *testing.T) {
			text := strings.Repeat("x", 1<<20)
			if kind != "memory" && kind != "SQLite" {
				text = text[:1<<16] // because writing 300 MB to each of them takes long
			}
			store := &countingStore{Store: open(t)}
			held, _, err := newService(t, store).Hold(t.Context(), approval.Call{
				Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files",
				Verdict: policy.Verdict{Action: policy.Approve, Workflow: "ops"},
				Message: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{"path":"/a","password":"hunter2","text":%q}}}`, text),
			})
			if err != nil {
				t.Fatal(err)
			}
			for range calls - 1 {
				held.ID = task.NewID(time.Now())
				if err := store.Create(t.Context(), held, task.Limits{}); err != nil {
					t.Fatal(err)
				}
			}
			cases := newService(t, store).Viewer()
			store.documents.Store(0)
			began := time.Now()
			queue, err := cases.Queue(t.Context(), review.Filter{})
			if err != nil || queue.Pending != calls || len(queue.Groups) != 1 || len(queue.Groups[0].Calls) != calls {
				t.Fatalf("%d calls in %d groups, %v", queue.Pending, len(queue.Groups), err)
			}
			t.Logf("listed within %v", time.Since(began))
			for _, a := range queue.Groups[0].Calls {
				if !a.ArgumentsTruncated || !strings.Contains(string(a.Arguments), "/") || strings.Contains(string(a.Arguments), "hunter2") {
					t.Fatalf("listed call %.300v", a)
				}
			}
			page, err := cases.Pending(t.Context(), review.Filter{Limit: 100})
			if err != nil || len(page.Approvals) != 100 || page.Next == "" {
				t.Errorf("%d calls on a page, %v", len(page.Approvals), err)
			}
			if n := store.documents.Load(); n > 0 {
				t.Errorf("%d whole tasks read", n)
			}
		})
	}
}

// After a restart a gate knows the last approved definition of a tool, in every kind of store.
// A sealed store keeps it encrypted.
func TestChangeIsKnownAfterRestart(t *testing.T) {
	for kind, open := range openers() {
		t.Run(kind, func(t *testing.T) {
			store := open(t)
			hold := func(path, digest string) task.Task {
				t.Helper()
				held, _, err := newService(t, store).Hold(t.Context(), approval.Call{
					Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files", Tool: approval.Tool{Digest: digest},
					Verdict: policy.Verdict{Action: policy.Approve, Workflow: "ops"},
					Message: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{"path":%q}}}`, path),
				})
				if err != nil {
					t.Fatal(err)
				}
				return held
			}
			first, service := hold("/a", "v2-aa"), newService(t, store)
			seen, err := service.Viewer().Show(t.Context(), first.ID)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := service.Decide(t.Context(), first.ID, approval.Approver{Name: "alice"}, approval.Ruling{Decision: approval.Approve, Shown: seen.ShownDigest}); err != nil {
				t.Fatal(err)
			}
			for range 6 { // so that the journal has no recent entry about it
				if err := store.Append(t.Context(), slices.Repeat([]task.Note{{At: time.Now(), Step: "held", Tool: "other"}}, 1000)...); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := store.Sweep(t.Context(), time.Now().Add(48*time.Hour), 10); err != nil {
				t.Fatal(err)
			}
			_, changed, err := newService(t, store).Viewer().ShowWithChange(t.Context(), hold("/b", "v2-bb").ID)
			if err != nil || changed == nil || changed.ID != first.ID {
				t.Errorf("changed: %+v, %v", changed, err)
			}
			if sealed, ok := store.(*sealedstore.Store); ok {
				all, err := sealed.Unwrap().ListRecords(t.Context(), gatestore.RecordQuery{Limit: 100})
				if err != nil || len(all) == 0 {
					t.Fatalf("%d records, %v", len(all), err)
				}
				for _, r := range all {
					if sealedstore.KeyOfRecord(r) == "" || strings.Contains(string(r.Value), "v2-aa") {
						t.Errorf("not encrypted: %s %q", r.Name, r.Value)
					}
				}
			}
		})
	}
}

// An earlier version redacted only the arguments of a batch. Its stored previews are not shown.
func TestEarlierPreviewOfBatchIsNotShown(t *testing.T) {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	now := time.Now()
	const shown = `[{"method":"tools/call","params":{"name":"write","_meta":{"password":"hunter2"}}}]`
	stored, err := task.New(task.Draft{
		ID: task.NewID(now), Owner: "ann", Workflow: "ops", TTL: time.Hour, PollInterval: time.Second,
		Call:    task.Call{Upstream: "files", Method: review.MethodBatch, Name: "write", Arguments: shown, Message: `[]`},
		Verdict: gatetask.Verdict{Facts: `{"Principal":{"ID":"ann"},"Preview":{"Arguments":` + shown + `,"Redacted":"arguments.password"}}`},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	if stored, err = lifecycle.Apply(stored, lifecycle.Submit{By: "gate", Quorum: 1, Deadline: now.Add(time.Hour)}, now); err != nil {
		t.Fatal(err)
	}
	if err := store.Create(t.Context(), stored, task.Limits{}); err != nil {
		t.Fatal(err)
	}
	page, err := newService(t, store).Viewer().Pending(t.Context(), review.Filter{})
	if err != nil || len(page.Approvals) != 1 || string(page.Approvals[0].Arguments) != strings.Replace(shown, "hunter2", "[redacted]", 1) {
		t.Errorf("list %+v, %v", page, err)
	}
}

// A call that an earlier version held has no preview. It is listed anyway, with the current
// redactions.
func TestCallWithoutPreviewIsListed(t *testing.T) {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	now := time.Now()
	stored, err := task.New(task.Draft{
		ID: task.NewID(time.Now()), Owner: "ann", Workflow: "ops", TTL: time.Hour, PollInterval: time.Second,
		Call:    task.Call{Upstream: "files", Method: "tools/call", Name: "write", Arguments: `{"path":"/a","password":"hunter2"}`, Message: `{}`},
		Verdict: gatetask.Verdict{Facts: `{"Principal":{"ID":"ann"}}`},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	if stored, err = lifecycle.Apply(stored, lifecycle.Submit{By: "gate", Quorum: 1, Deadline: now.Add(time.Hour)}, now); err != nil {
		t.Fatal(err)
	}
	if err := store.Create(t.Context(), stored, task.Limits{}); err != nil {
		t.Fatal(err)
	}
	page, err := newService(t, store).Viewer().Pending(t.Context(), review.Filter{})
	if err != nil || len(page.Approvals) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if got, want := string(page.Approvals[0].Arguments), `{"path":"/a","password":"[redacted]"}`; got != want {
		t.Errorf("arguments = %s; want %s", got, want)
	}
}
