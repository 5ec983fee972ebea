package app_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
)

// recorded returns the entries of a store whose gate has stopped, in the order of their times, and
// verifies their chains.
func recorded(t *testing.T, s storage.Settings) []callrecord.Entry {
	t.Helper()
	store, err := s.OpenUnverified(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var all []callrecord.Entry
	for e, err := range callrecord.All(t.Context(), store, callrecord.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if r, err := callrecord.Verify(t.Context(), store); err != nil || !r.OK() || r.Entries != len(all) || r.Dropped > 0 {
		t.Errorf("Verify returned %+v, %v", r, err)
	}
	slices.SortStableFunc(all, func(a, b callrecord.Entry) int { return a.Time.Compare(b.Time) }) // an end may be written late
	return all
}

// summary returns the parts of entries that tests compare.
func summary(all []callrecord.Entry) []string {
	var lines []string
	for _, e := range all {
		line := fmt.Sprintf("%s %s %s: %s by %s: %s", e.Event, e.Method, e.Name, e.Action, e.Rule, e.Outcome)
		if e.Workflow != "" {
			line += ", workflow " + e.Workflow
		}
		if e.ID != "" {
			line += ", held"
		}
		if len(e.By) > 0 && !e.Decided.IsZero() {
			line += ", decided by " + strings.Join(e.By, " ")
		}
		lines = append(lines, line)
	}
	return lines
}

const modernClient = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// sayModern makes a call as a modern client with tasks.
func sayModern(t *testing.T, address, tool, arguments string) string {
	t.Helper()
	_, answer, _ := request(t, http.DefaultClient, http.MethodPost, "http://"+address+"/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+arguments+`,`+modernClient+`}}`,
		"Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
	return answer
}

// toolServer returns the URL of a server whose tools fail as their names say, and answer with
// events if the name says so.
func toolServer(t *testing.T) string {
	up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer := `"result":{"content":[{"type":"text","text":"ran"}]}`
		switch {
		case bytes.Contains(body, []byte(`get_broken`)):
			answer = `"error":{"code":-32000,"message":"broken"}`
		case bytes.Contains(body, []byte(`get_failing`)):
			answer = `"result":{"isError":true,"content":[{"type":"text","text":"failed"}]}`
		case bytes.Contains(body, []byte(`get_500`)):
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		answer = `{"jsonrpc":"2.0","id":` + idOf(body) + `,` + answer + `}`
		if bytes.Contains(body, []byte("_events")) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "event: message\ndata: "+answer+"\n\n")
			return
		}
		if body[0] == '[' {
			answer = "[" + answer + "]"
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answer)
	}))
	t.Cleanup(up.Close)
	return up.URL
}

// Everything that policy judges is recorded with what became of it.
func TestCallsAreRecorded(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	file := "sqlite:" + filepath.Join(t.TempDir(), "gate.db")
	text := strings.Replace(holding(toolServer(t), file), "rules: [", "tasks: {max_pending_per_owner: 2}\nrules: [{match: 'get_*', name: reading, action: forward}, ", 1)
	a, stop := start(t, text)
	for _, tool := range []string{"get_x", "get_broken", "get_failing", "get_500", "get_x_events", "get_broken_events", "get_failing_events", "drop_x"} {
		say(t, a.AgentAddr(), "tools/call", `{"name":"`+tool+`","arguments":{"path":"/tmp/x"}}`)
	}
	say(t, a.AgentAddr(), "tools/list", `{}`)
	say(t, a.AgentAddr(), "resources/read", `{"uri":"file:///x"}`)
	sayModern(t, a.AgentAddr(), "get_x", `{"path":"/tmp/x"}`)
	sayModern(t, a.AgentAddr(), "drop_x", `{"path":"/tmp/y"}`)
	id := createTask(t, a.AgentAddr(), "hold_x")
	approve(t, a.OperatorAddr(), id)
	say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`)
	decide(t, a.OperatorAddr(), createTask(t, a.AgentAddr(), "hold_y"), "reject")
	say(t, a.AgentAddr(), "tasks/cancel", `{"taskId":"`+createTask(t, a.AgentAddr(), "hold_z")+`"}`)
	createTask(t, a.AgentAddr(), "hold_1")
	createTask(t, a.AgentAddr(), "hold_2")
	say(t, a.AgentAddr(), "tools/call", `{"name":"hold_3","task":{}}`)
	if answer := sayModern(t, a.AgentAddr(), "hold_modern", `{}`); !strings.Contains(answer, "tg_") {
		t.Errorf("modern: %s", answer)
	}
	request(t, http.DefaultClient, http.MethodPost, "http://"+a.AgentAddr()+"/mcp",
		`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_x"}},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"drop_x"}}]`,
		"Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2025-03-26")
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	all := recorded(t, storage.Settings{DSN: file})
	want := []string{
		"judged tools/call get_x: forward by rule reading: success",
		"judged tools/call get_broken: forward by rule reading: error",
		"judged tools/call get_failing: forward by rule reading: tool_error",
		"judged tools/call get_500: forward by rule reading: error",
		"judged tools/call get_x_events: forward by rule reading: success",
		"judged tools/call get_broken_events: forward by rule reading: error",
		"judged tools/call get_failing_events: forward by rule reading: tool_error",
		"judged tools/call drop_x: deny by default: denied",
		"judged resources/read file:///x: deny by default: denied",
		"judged tools/call get_x: forward by rule reading: success",
		"judged tools/call drop_x: deny by default: denied",
		"judged tools/call hold_x: approve by rules[1]: held, workflow default, held",
		"ended tools/call hold_x: approve by rules[1]: completed, workflow default, held, decided by operator",
		"judged tools/call hold_y: approve by rules[1]: held, workflow default, held",
		"ended tools/call hold_y: approve by rules[1]: rejected, workflow default, held, decided by operator",
		"judged tools/call hold_z: approve by rules[1]: held, workflow default, held",
		"ended tools/call hold_z: approve by rules[1]: cancelled, workflow default, held",
		"judged tools/call hold_1: approve by rules[1]: held, workflow default, held",
		"judged tools/call hold_2: approve by rules[1]: held, workflow default, held",
		"judged tools/call hold_3: approve by rules[1]: refused, workflow default",
		"judged tools/call hold_modern: approve by rules[1]: held, workflow default, held",
		"judged tools/call get_x: forward by rule reading: success",
		"judged tools/call drop_x: deny by default: denied",
	}
	if diff := cmp.Diff(want, summary(all)); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	first, modern, other := all[0], all[9], all[10]
	if first.Digest == "" || first.Digest != modern.Digest || first.Digest == other.Digest || first.Arguments != nil {
		t.Errorf("digests: %q, %q and %q; want the first two equal", first.Digest, modern.Digest, other.Digest)
	}
	if first.Took <= 0 || first.Snapshot == "" || first.Upstream == "" || modern.Client.Name != "c" || modern.Client.Protocol != "2026-07-28" {
		t.Errorf("incomplete: %+v and %+v", first, modern)
	}
	if all[11].ID != all[12].ID || all[11].ID != id || all[12].Took <= 0 {
		t.Errorf("held call %s is recorded as %+v and %+v", id, all[11], all[12])
	}
}

// The record outlives the gate that wrote it, and a sealed one has no argument in plain text.
func TestRecordIsSealedAndKept(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	const secret, hidden = "Xylophone", "Glockenspiel"
	dir := t.TempDir()
	keys := "k1:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), 32))
	s := storage.Settings{DSN: "sqlite:" + filepath.Join(dir, "gate.db"), Keys: keys}
	for _, detail := range []string{"full", "redacted", "digests"} {
		text := strings.Replace(holding(answering(t, "done"), s.DSN), "rules: [", "rules: [{match: 'get_*', action: forward}, ", 1) +
			"storage: {keys: '" + keys + "'}\nrecord: {arguments: " + detail + "}\nworkflows: {default: {redact: [arguments.password]}}\n"
		a, stop := start(t, text)
		say(t, a.AgentAddr(), "tools/call", `{"name":"get_x","arguments":{"path":"`+secret+`","password":"`+hidden+`"}}`)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if content, err := os.ReadFile(name); err != nil || bytes.Contains(content, []byte(secret)) || bytes.Contains(content, []byte("get_x")) {
			t.Errorf("%s has the record in plain text: %v", name, err)
		}
	}
	all := recorded(t, s)
	if len(all) != 3 {
		t.Fatalf("%d entries after three runs", len(all))
	}
	for i, want := range []string{`{"path":"` + secret + `","password":"` + hidden + `"}`, `{"path":"` + secret + `","password":"[redacted]"}`, ""} {
		if e := all[i]; string(e.Arguments) != want || e.Digest != all[0].Digest || e.Digest == "" || e.Redacted != (i == 1) {
			t.Errorf("run %d recorded %s with digest %q; want %s", i, e.Arguments, e.Digest, want)
		}
	}
}

// Blocks that were written before there were keys stay as they are, and are sealed by the command
// that seals the held calls.
func TestRecordFromBeforeTheKeysIsKept(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s := storage.Settings{DSN: "sqlite:" + filepath.Join(t.TempDir(), "gate.db")}
	keys := "k1:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), 32))
	for i, more := range []string{"", "storage: {keys: '" + keys + "'}\n", "storage: {keys: '" + keys + "'}\n"} {
		a, stop := start(t, holding(answering(t, "done"), s.DSN)+more)
		say(t, a.AgentAddr(), "tools/call", fmt.Sprintf(`{"name":"drop_%d"}`, i))
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	s.Keys = keys
	store, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range callrecord.All(t.Context(), store, callrecord.Filter{}) {
		if err == nil || !strings.Contains(err.Error(), "thoughtgate store rekey") {
			t.Errorf("an unsealed block is read: %v", err)
		}
		break
	}
	if r, err := callrecord.Verify(t.Context(), store); err != nil || r.OK() || r.Blocks != 3 {
		t.Errorf("with an unsealed block: %+v, %v", r, err)
	}
	if _, err := storage.Rekey(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	for r, err := range gatestore.EachRecord(t.Context(), store.Unwrap(), gatestore.RecordQuery{Limit: 10}) {
		if err != nil || sealedstore.KeyOfRecord(r) != "k1" {
			t.Errorf("record %s is sealed with key %q: %v", r.Name, sealedstore.KeyOfRecord(r), err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"judged tools/call drop_0: deny by default: denied", "judged tools/call drop_1: deny by default: denied",
		"judged tools/call drop_2: deny by default: denied",
	}
	if diff := cmp.Diff(want, summary(recorded(t, s))); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// Calls through a pipe are recorded, too.
func TestWrapRecordsCalls(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	file := "sqlite:" + filepath.Join(t.TempDir(), "gate.db")
	t.Run("calls", func(t *testing.T) {
		w := startWrap(t, "version: 1\noperators: {listen: 127.0.0.1:0, token: secret-of-the-operators}\nstore: '"+file+"'\nupstreams: [{url: http://127.0.0.1:1/}]\n"+
			"rules: [{match: 'get_*', action: forward}, {match: 'hold_*', action: approve}]\ndefault: deny\n", "files", toolServer(t))
		for i, tool := range []string{"get_x", "get_failing", "drop_x"} {
			w.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":{"a":1}}}`, i, tool))
			w.hear(fmt.Sprintf(`"id":%d`, i))
		}
		w.say(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"hold_x","task":{}}}`)
		w.hear(`"id":9`)
	})
	all := recorded(t, storage.Settings{DSN: file})
	want := []string{
		"judged tools/call get_x: forward by rules[0]: success",
		"judged tools/call get_failing: forward by rules[0]: tool_error",
		"judged tools/call drop_x: deny by default: denied",
		"judged tools/call hold_x: approve by rules[1]: held, workflow default, held",
	}
	if diff := cmp.Diff(want, summary(all)); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(all, func(e callrecord.Entry) bool { return e.Upstream != "files" || e.Principal != "local:tester" }) {
		t.Errorf("upstreams or principals: %+v", all)
	}
}

// With max_size: 0 nothing is recorded.
func TestRecordIsOff(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	file := "sqlite:" + filepath.Join(t.TempDir(), "gate.db")
	a, stop := start(t, holding(answering(t, "done"), file)+"record: {max_size: 0}\n")
	say(t, a.AgentAddr(), "tools/call", `{"name":"drop_x"}`)
	createTask(t, a.AgentAddr(), "hold_x")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if all := recorded(t, storage.Settings{DSN: file}); len(all) > 0 {
		t.Errorf("recorded %v", summary(all))
	}
}

// The history of a gate with the default settings has what approvers were shown, also after the task
// was deleted and the gate was started again. So has the API, for administrators.
func TestHistoryReadsTheRecord(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	file := "sqlite:" + filepath.Join(t.TempDir(), "gate.db")
	text := holding(answering(t, "done"), file) + "workflows: {default: {redact: [arguments.password]}}\n"
	a, stop := start(t, text)
	created := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_user","arguments":{"user":4711,"password":"hunter2"},"task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	decide(t, a.OperatorAddr(), id, "reject")
	other := createTask(t, a.AgentAddr(), "hold_x")
	decide(t, a.OperatorAddr(), other, "reject")
	for run := range 2 {
		ask := func(path string) string {
			_, page, _ := request(t, http.DefaultClient, http.MethodGet, "http://"+a.OperatorAddr()+path, "", "Authorization", "Bearer secret-of-the-operators")
			return page
		}
		page := ask("/history?q=4711")
		for _, want := range []string{"hold_user", ">4711<", "[redacted]", "Rejected by operator", id} {
			if !strings.Contains(page, want) {
				t.Errorf("run %d: the history lacks %s:\n%s", run, want, page)
			}
		}
		if strings.Contains(page, "hunter2") || strings.Contains(page, other) {
			t.Errorf("run %d: the history has too much:\n%s", run, page)
		}
		for query, want := range map[string]int{"text=4711": 1, "text=hunter2": 0, "by=operator": 2, "by=eve": 0, "event=ended": 2, "event=judged": 2, "by=operator&event=judged": 0} {
			if got := strings.Count(ask("/api/calls?"+query), "\n"); got != want {
				t.Errorf("run %d: /api/calls?%s has %d entries; want %d", run, query, got, want)
			}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if run == 0 {
			a, stop = start(t, text)
		}
	}
	for _, e := range recorded(t, storage.Settings{DSN: file}) {
		if want := `{"user":4711,"password":"[redacted]"}`; e.Arguments != nil || e.ID == id && e.Event == callrecord.Ended && string(e.Shown) != want {
			t.Errorf("recorded: %+v; want %s", e, want)
		}
	}
}
