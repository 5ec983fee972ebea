package translate_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv/taskserver"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A client with a task answers only questions of this task, although others share its session with the
// server and the server's ids can be guessed.
func TestAnswersOfOtherTasks(t *testing.T) {
	s := taskserver.New()
	tr := newTranslator(t, time.Minute, s.Legacy)
	mallory, victim := agent{t: t, tr: tr, meta: tasksMeta}, agent{t: t, tr: tr, meta: tasksMeta}
	own, other := idIn(t, mallory.do("tools/call", `"name":"confirm"`)), idIn(t, victim.do("tools/call", `"name":"confirm"`))
	key := keyIn(victim.do("tasks/get", about(other)))
	guessed := "q-" + base64.RawURLEncoding.EncodeToString([]byte(`"question of task-2"`))
	ownKey := keyIn(mallory.do("tasks/get", about(own)))
	_, seal, _ := strings.Cut(ownKey, ".")
	for _, forged := range []string{key, guessed, guessed + ".", guessed + "." + seal} {
		expect(t, "update", mallory.do("tasks/update", about(own)+`,"inputResponses":{"`+forged+`":{"action":"accept"}}`), `"result":{"resultType":"complete"}`)
		if got := s.Status("task-2"); got != "input_required" {
			t.Fatalf("with the key %s, a client has answered the question of another; its task is %s", forged, got)
		}
	}
	mallory.do("tasks/update", about(own)+`,"inputResponses":{"`+ownKey+`":{"action":"accept"}}`)
	expect(t, "the own task", mallory.do("tasks/get", about(own)), "done answered")
}

// changed is a server whose answers with an old text have another.
func changed(serve http.HandlerFunc, old, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || strings.Contains(r.Header.Get("Mcp-Method"), "listen") {
			serve(w, r)
			return
		}
		got := httptest.NewRecorder()
		serve(got, r)
		maps.Copy(w.Header(), got.Header())
		w.WriteHeader(got.Code)
		io.WriteString(w, strings.ReplaceAll(got.Body.String(), old, text))
	}
}

// A task without a usable id is no answer.
func TestBrokenTaskIDs(t *testing.T) {
	for _, id := range []string{`1.0`, `{}`, `null`, `""`, `"` + strings.Repeat("x", 100_000) + `"`} {
		for _, meta := range []string{tasksMeta, modernMeta} {
			ann := agent{t: t, tr: newTranslator(t, time.Minute, changed(taskserver.New().Legacy, `"task-1"`, id)), principal: "ann", meta: meta}
			if got := ann.do("tools/call", `"name":"slow"`); strings.Contains(got, `"result"`) || strings.Contains(got, "taskId") {
				t.Errorf("a call with a task with the id %.20s: %s", id, got)
			}
		}
		old := initialized(t, newTranslator(t, time.Minute, changed(taskserver.New().Modern, `"task-1"`, id)), "ann", "2025-11-25")
		if got := old.do("tools/call", `"name":"slow","task":{}`); strings.Contains(got, "taskId") {
			t.Errorf("a modern task with the id %.20s: %s", id, got)
		}
	}
}

// Times that no client can wait for are not passed on.
func TestBrokenTimesOfTasks(t *testing.T) {
	for given, want := range map[string]string{"-1": `"ttl":null`, "9007199254740991": `"ttl":2147483647`, "null": `"ttl":null`, `"1"`: `"ttl":null`, "1e400": `"ttl":null`} {
		s := taskserver.New()
		server := changed(changed(s.Modern, `"ttlMs":60000`, `"ttlMs":`+given), `"pollIntervalMs":50`, `"pollIntervalMs":`+given)
		ann := initialized(t, newTranslator(t, time.Minute, server), "ann", "2025-11-25")
		for _, got := range []string{ann.do("tools/call", `"name":"slow","task":{}`), ann.do("tasks/get", about("task-1"))} {
			expect(t, given, got, `"status":"working"`, want)
			if strings.Contains(got, `"pollInterval":-`) || strings.Contains(got, `"pollInterval":9`) {
				t.Errorf("%s: %s", given, got)
			}
		}
	}
}

// A server's unknown status of a task is no status for a client.
func TestBrokenStatus(t *testing.T) {
	ann := initialized(t, newTranslator(t, time.Minute, changed(taskserver.New().Modern, `"working"`, `"asleep"`)), "ann", "2025-11-25")
	for _, got := range []string{ann.do("tools/call", `"name":"slow","task":{}`), ann.do("tasks/get", about("task-1")), ann.do("tasks/cancel", about("task-1")), ann.do("tasks/list", "")} {
		if strings.Contains(got, "asleep") {
			t.Errorf("the client learns %s", got)
		}
	}
}

// A client that asks for a task that cannot be remembered waits for the result.
func TestTaskThatCannotBeRemembered(t *testing.T) {
	for name, fill := range map[string]func(ann agent, store *failingStore){
		"no space": func(ann agent, _ *failingStore) {
			for _, text := range []string{"x", "y"} {
				for size := 32 << 10; size > 0; size /= 2 {
					ann.do("resources/subscribe", `"uri":"`+strings.Repeat(text, size)+`"`)
				}
			}
		},
		"no store": func(_ agent, store *failingStore) { store.down = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := taskserver.New()
			server := httptest.NewServer(http.HandlerFunc(s.Modern))
			t.Cleanup(server.Close)
			store := &failingStore{Records: memstore.New(memstore.Options{})}
			tr := newReplica(t, time.Minute, server.URL, store)
			ann := initialized(t, tr, "ann", "2025-11-25")
			fill(ann, store)
			ended := make(chan string, 1)
			go func() { ended <- ann.do("tools/call", `"name":"slow","task":{}`) }()
			waitFor(t, "the task", func() bool { return s.Status("task-1") != "" })
			s.Set("task-1", "completed")
			expect(t, "the call", <-ended, `"result":{"content":[{"type":"text","text":"done "}]}`)
		})
	}
}

// A failingStore is a store that takes no records.
type failingStore struct {
	gatestore.Records

	down bool
}

func (s *failingStore) PutRecord(ctx context.Context, r gatestore.Record) error {
	if s.down {
		return errors.New("the store takes no records")
	}
	return s.Records.PutRecord(ctx, r)
}

// A client of a modern server gets the steps of its own tasks only.
func TestStepsOfOtherTasks(t *testing.T) {
	s := taskserver.New()
	tr := newTranslator(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") != "subscriptions/listen" {
			s.Modern(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, id := range []string{"task-2", "task-1"} {
			io.WriteString(w, `data: {"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"`+id+`","status":"completed"}}`+"\n\n")
		}
	})
	ann, bob := initialized(t, tr, "ann", "2025-11-25"), initialized(t, tr, "bob", "2025-11-25")
	ann.do("tools/call", `"name":"slow","task":{}`)
	bob.do("tools/call", `"name":"slow","task":{}`)
	resp, leave, err := open(t, tr, sent{principal: "ann", session: ann.session})
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	defer resp.Body.Close()
	expect(t, "the first step", nextEvent(t, bufio.NewScanner(resp.Body)), `"taskId":"task-1"`)
}

// However often a client names a task, the server is asked for it once at a time.
func TestListenToOneTaskOften(t *testing.T) {
	s := taskserver.New()
	tr := newTranslator(t, time.Minute, s.Legacy)
	ann := agent{t: t, tr: tr, principal: "ann", meta: tasksMeta}
	id := idIn(t, ann.do("tools/call", `"name":"slow"`))
	resp, leave, err := open(t, tr, ann.request("subscriptions/listen", `"notifications":{"taskIds":["`+id+strings.Repeat(`","`+id, 50)+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	defer resp.Body.Close()
	expect(t, "first", nextEvent(t, bufio.NewScanner(resp.Body)), `"taskIds":["`+id+`"]`)
}

// One client cannot take the space for the questions of all.
func TestManyTasksWithQuestions(t *testing.T) {
	s := taskserver.New()
	tr := newTranslator(t, time.Minute, s.Legacy)
	ann := agent{t: t, tr: tr, principal: "ann", meta: tasksMeta}
	asked := 0
	for range 40 {
		if strings.Contains(ann.do("tasks/get", about(idIn(t, ann.do("tools/call", `"name":"confirm"`)))), "inputRequests") {
			asked++
		}
	}
	if asked != 32 {
		t.Errorf("a client has the questions of %d tasks; want 32", asked)
	}
	bob := agent{t: t, tr: tr, principal: "bob", meta: tasksMeta}
	expect(t, "another client", bob.do("tasks/get", about(idIn(t, bob.do("tools/call", `"name":"confirm"`)))), "inputRequests")
}

// One client cannot take the space for the results of all, also not with many sessions.
func TestManyFinishedTasks(t *testing.T) {
	tr := newTranslator(t, time.Minute, changed(taskserver.New().Modern, "at once", strings.Repeat("x", 1<<20-1000)))
	kept := 0
	for range 4 {
		ann := initialized(t, tr, "ann", "2025-11-25")
		for range 6 {
			if strings.Contains(ann.do("tools/call", `"name":"plain","task":{}`), "taskId") {
				kept++
			}
		}
	}
	if kept > 16 {
		t.Errorf("one client has %d results of 1 MB", kept)
	}
	bob := initialized(t, tr, "bob", "2025-11-25")
	expect(t, "another client", bob.do("tools/call", `"name":"plain","task":{}`), "taskId")
}
