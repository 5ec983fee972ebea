package app_test

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
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

// asAgent is like say, for an agent that sends a header.
func asAgent(t *testing.T, address string, header [2]string, method, params string) string {
	t.Helper()
	_, answer, _ := request(t, http.DefaultClient, http.MethodPost, "http://"+address+"/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`, header[0], header[1])
	return answer
}

// An agent with many unfetched results is refused at a quarter of the store, but other agents
// are not. Delivered results free their space.
func TestAgentsShareTheStore(t *testing.T) {
	fillShareOfStore(t, func(int) [2]string { return [2]string{"Authorization", "Bearer " + bobToken} })
}

// Agents without an identity have one share for their address. A new session has no share of
// its own.
func TestSessionsOfOneAddressShareTheStore(t *testing.T) {
	fillShareOfStore(t, func(n int) [2]string { return [2]string{"Mcp-Session-Id", fmt.Sprint("session-", n)} })
}

// fillShareOfStore makes calls, each with a header of greedy, until one is refused. Then it
// makes calls as another agent.
func fillShareOfStore(t *testing.T, greedy func(n int) [2]string) {
	t.Helper()
	for _, store := range []string{"memory:", "sqlite:" + filepath.Join(t.TempDir(), "gate.db")} {
		t.Run(store[:6], func(t *testing.T) {
			t.Cleanup(http.DefaultClient.CloseIdleConnections)
			a, stop := start(t, holding(answering(t, strings.Repeat("x", 900<<10)), store)+"storage: {max_size: 16MiB}\n"+
				fmt.Sprintf("identity: {anonymous: true, tokens: [{name: ann, hash: '%s'}, {name: bob, hash: '%s'}]}\n", identity.HashOf(annToken), identity.HashOf(bobToken)))
			run := func(as [2]string, n int) (id, created string) {
				created = asAgent(t, a.AgentAddr(), as, "tools/call", fmt.Sprintf(`{"name":"hold_x","arguments":{"n":%d},"task":{"ttl":86400000}}`, n))
				_, rest, _ := strings.Cut(created, `"taskId":"`)
				if id, _, _ = strings.Cut(rest, `"`); id == "" {
					return "", created
				}
				approve(t, a.OperatorAddr(), id)
				for !strings.Contains(asAgent(t, a.AgentAddr(), as, "tasks/get", `{"taskId":"`+id+`"}`), `"completed"`) {
				}
				return id, created
			}
			var first, last string
			n := 0
			for ; last == ""; n++ {
				id, created := run(greedy(n), n)
				first = cmp.Or(first, id)
				if id == "" {
					last = created
				} else if n > 8 {
					t.Fatal("the agent uses more than a quarter of the store")
				}
			}
			if !strings.Contains(last, `"error_type":"storage_exceeded"`) {
				t.Errorf("the agent at its limit: %s", last)
			}
			modest := [2]string{"Authorization", "Bearer " + annToken}
			for n := range 40 { // more than fits
				id, created := run(modest, n)
				if id == "" {
					t.Fatalf("call %d of the other agent: %s", n, created)
				}
				if result := asAgent(t, a.AgentAddr(), modest, "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(result, "xxxx") {
					t.Fatalf("result %d of the other agent: %.300s", n, result)
				}
			}
			asAgent(t, a.AgentAddr(), greedy(0), "tasks/result", `{"taskId":"`+first+`"}`)
			if id, created := run(greedy(n), n); id == "" {
				t.Errorf("after the delivery of a result: %s", created)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
