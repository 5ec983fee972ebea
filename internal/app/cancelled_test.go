package app_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A call that is cancelled before a decision keeps its summary and its digest, but not its
// message. So an agent cannot fill the store with cancelled calls.
func TestCancelledCallsUseLittleSpace(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	file := filepath.Join(t.TempDir(), "gate.db")
	a, stop := start(t, holding(answering(t, "done"), "sqlite:"+file))
	const calls = 40
	large := strings.Repeat("x", 1_000_000)
	var last string
	for i := range calls {
		created := say(t, a.AgentAddr(), "tools/call", fmt.Sprintf(`{"name":"hold_x","arguments":{"n":%d,"text":"%s"},"task":{"ttl":86400000}}`, i, large))
		_, rest, _ := strings.Cut(created, `"taskId":"`)
		last, _, _ = strings.Cut(rest, `"`)
		if ended := say(t, a.AgentAddr(), "tasks/cancel", `{"taskId":"`+last+`"}`); !strings.Contains(ended, `"cancelled"`) {
			t.Fatalf("call %d: %.300s, then %.300s", i, created, ended)
		}
	}
	if status := say(t, a.AgentAddr(), "tasks/get", `{"taskId":"`+last+`"}`); !strings.Contains(status, `"cancelled"`) {
		t.Errorf("tasks/get: %s", status)
	}
	if result := say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+last+`"}`); !strings.Contains(result, "cancelled") {
		t.Errorf("tasks/result: %s", result)
	}
	for _, path := range []string{"/api/approvals/" + last, "/api/approvals?state=cancelled"} {
		_, shown, _ := request(t, http.DefaultClient, http.MethodGet, "http://"+a.OperatorAddr()+path, "", "Authorization", "Bearer secret-of-the-operators")
		if !strings.Contains(shown, `"digest":"`) || !strings.Contains(shown, `"argumentsTruncated":true`) || !strings.Contains(shown, "xxxxx") {
			t.Errorf("%s: %.500s; want the digest and the beginning of the arguments", path, shown)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d calls of 1 MB, each cancelled: %d KiB on disk", calls, info.Size()>>10)
	if info.Size() > 8<<20 {
		t.Errorf("%d calls of 1 MB, each cancelled, take %d MiB on disk", calls, info.Size()>>20)
	}
}

// asAgent is like say, for an agent with its own session.
func asAgent(t *testing.T, address, session, method, params string) string {
	t.Helper()
	_, answer, _ := request(t, http.DefaultClient, http.MethodPost, "http://"+address+"/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`, "Mcp-Session-Id", session)
	return answer
}

// An agent with many unfetched results is refused at a quarter of the store, but other agents
// are not. Delivered results free their space.
func TestAgentsShareTheStore(t *testing.T) {
	for _, store := range []string{"memory:", "sqlite:" + filepath.Join(t.TempDir(), "gate.db")} {
		t.Run(store[:6], func(t *testing.T) {
			t.Cleanup(http.DefaultClient.CloseIdleConnections)
			a, stop := start(t, holding(answering(t, strings.Repeat("x", 900<<10)), store)+"storage: {max_size: 16MiB}\n")
			run := func(session string, n int) (id, created string) {
				created = asAgent(t, a.AgentAddr(), session, "tools/call", fmt.Sprintf(`{"name":"hold_x","arguments":{"n":%d},"task":{"ttl":86400000}}`, n))
				_, rest, _ := strings.Cut(created, `"taskId":"`)
				if id, _, _ = strings.Cut(rest, `"`); id == "" {
					return "", created
				}
				approve(t, a.OperatorAddr(), id)
				for !strings.Contains(asAgent(t, a.AgentAddr(), session, "tasks/get", `{"taskId":"`+id+`"}`), `"completed"`) {
				}
				return id, created
			}
			var last string
			for n := 0; last == ""; n++ {
				if id, created := run("greedy", n); id == "" {
					last = created
				} else if n > 8 {
					t.Fatal("an agent uses more than a quarter of the store")
				}
			}
			if !strings.Contains(last, `"error_type":"storage_exceeded"`) {
				t.Errorf("the agent at its limit: %s", last)
			}
			for n := range 40 { // more than fits
				id, created := run("modest", n)
				if id == "" {
					t.Fatalf("call %d of the other agent: %s", n, created)
				}
				if result := asAgent(t, a.AgentAddr(), "modest", "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(result, "xxxx") {
					t.Fatalf("result %d of the other agent: %.300s", n, result)
				}
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
