package app_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Two replicas write one record: in every store, for calls that one holds and the other decides,
// and for held batches. Each shows the calls of both.
func TestRecordOfReplicas(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for name, open := range map[string]func(t *testing.T) string{
		"PostgreSQL": func(t *testing.T) string {
			server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
			if !testenv.Available(t, err) {
				return ""
			}
			t.Cleanup(func() { server.Stop() })
			return server.URL()
		},
		"Redis": func(t *testing.T) string {
			server, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
			if !testenv.Available(t, err) {
				return ""
			}
			t.Cleanup(func() { server.Stop() })
			return server.URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			if url := open(t); url != "" {
				recordOf(t, url, 2)
			}
		})
	}
	t.Run("SQLite", func(t *testing.T) { recordOf(t, "sqlite:"+filepath.Join(t.TempDir(), "gate.db"), 1) })
}

// batchServer returns the URL of a server that answers calls, also in batches.
func batchServer(t *testing.T) string {
	up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var answers []string
		for _, m := range p.Messages {
			answers = append(answers, `{"jsonrpc":"2.0","id":`+string(m.ID.Bytes)+`,"result":{"content":[{"type":"text","text":"done"}]}}`)
		}
		answer := strings.Join(answers, ",")
		if body[0] == '[' {
			answer = "[" + answer + "]"
		}
		io.WriteString(w, answer)
	}))
	t.Cleanup(up.Close)
	return up.URL
}

func recordOf(t *testing.T, dsn string, replicas int) {
	text := strings.Replace(holding(batchServer(t), dsn), "rules: [", "rules: [{match: 'get_*', action: forward}, ", 1) + "storage: {timeout: 1m}\n"
	a, stopA := start(t, text)
	b, stopB := a, func() error { return nil }
	if replicas > 1 {
		b, stopB = start(t, text)
	}
	say(t, a.AgentAddr(), "tools/call", `{"name":"get_a"}`)
	say(t, b.AgentAddr(), "tools/call", `{"name":"drop_b"}`)
	held := createTask(t, a.AgentAddr(), "hold_x")
	approve(t, b.OperatorAddr(), held)
	if answer := say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+held+`"}`); !strings.Contains(answer, "done") {
		t.Fatalf("tasks/result: %s", answer)
	}
	eventually(t, "both calls of the agents are recorded", func() bool {
		return strings.Count(calls(t, b.OperatorAddr()), `"event":"judged"`) == 3
	})

	batch := make(chan string)
	go func() {
		_, answer, _ := request(t, http.DefaultClient, http.MethodPost, "http://"+a.AgentAddr()+"/mcp",
			`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_c","arguments":{"n":1}}},`+
				`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hold_c","arguments":{"n":1}}},`+
				`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"hold_d"}}]`,
			"Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2025-03-26")
		batch <- answer
	}()
	eventually(t, "the batch is held", func() bool { return strings.Contains(listed(t, b), `"id":"tg_`) })
	pending := listed(t, b)
	approve(t, b.OperatorAddr(), idBefore(pending+`"end"`, `"end"`))
	if answer := <-batch; strings.Count(answer, "done") != 3 {
		t.Errorf("the batch: %s", answer)
	}
	for _, stop := range []func() error{stopA, stopB} {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}

	all := recorded(t, storage.Settings{DSN: dsn})
	want := []string{
		"judged tools/call get_a: forward by rules[0]: success",
		"judged tools/call drop_b: deny by default: denied",
		"judged tools/call hold_x: approve by rules[1]: held, workflow default, held",
		"ended tools/call hold_x: approve by rules[1]: completed, workflow default, held, decided by operator",
		"judged tools/call get_c: forward by rules[0]: held, held",
		"judged tools/call hold_c: approve by rules[1]: held, workflow default, held",
		"judged tools/call hold_d: approve by rules[1]: held, workflow default, held",
		"ended batch get_c, hold_c, hold_d: approve by rules[1]: completed, workflow default, held, decided by operator",
	}
	if diff := cmp.Diff(want, summary(all)); diff != "" {
		t.Fatalf("record (-want +got):\n%s", diff)
	}
	if all[2].ID != held || all[3].ID != held {
		t.Errorf("the held call %s has the ids %q and %q", held, all[2].ID, all[3].ID)
	}
	for _, e := range all[4:] {
		if e.ID != all[4].ID || e.ID == held {
			t.Errorf("a call of the batch %s has the id %s", all[4].ID, e.ID)
		}
	}
	if all[4].Digest == "" || all[4].Digest != all[5].Digest {
		t.Errorf("equal arguments have the digests %q and %q", all[4].Digest, all[5].Digest)
	}
}

// calls returns the record as a replica shows it.
func calls(t *testing.T, address string) string {
	t.Helper()
	_, shown, _ := request(t, http.DefaultClient, http.MethodGet, "http://"+address+"/api/calls", "", "Authorization", "Bearer secret-of-the-operators")
	return shown
}
