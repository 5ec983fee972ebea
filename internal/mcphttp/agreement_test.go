package mcphttp_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// A reading is a message as one kind of server parses it.
type reading struct {
	Method string
	Params struct {
		Name, URI string
		Arguments struct {
			Path    string
			Account float64
		}
	}
}

// forbidden reports whether the policy of newStrictFixture denies or holds r.
func (r reading) forbidden() bool {
	p := r.Params
	switch strings.ToLower(strings.TrimSpace(r.Method)) {
	case "tools/call", "prompts/get":
		return strings.HasPrefix(p.Name, "drop_") || strings.HasPrefix(p.Name, "hold_") ||
			strings.HasPrefix(p.Name, "ask_") && (strings.HasPrefix(p.Arguments.Path, "/etc/") || p.Arguments.Account == 1<<53)
	case "resources/read", "resources/subscribe":
		return strings.HasPrefix(p.URI, "file:///etc/")
	default:
		return false
	}
}

// goReadings returns the messages that a Go program reads: the first value, names in any case, and the last
// of two members.
func goReadings(body []byte) []reading {
	var raw json.RawMessage
	if json.NewDecoder(bytes.NewReader(body)).Decode(&raw) != nil {
		return nil
	}
	var batch []json.RawMessage
	if json.Unmarshal(raw, &batch) != nil {
		batch = []json.RawMessage{raw}
	}
	readings := make([]reading, len(batch))
	for i, one := range batch {
		_ = json.Unmarshal(one, &readings[i]) // keeps the members that were decoded
	}
	return readings
}

// cReadings returns the messages that a C program reads, which ends strings at U+0000: the first of two
// members, names in any case.
func cReadings(body []byte) []reading {
	var batch []json.RawMessage
	if json.Unmarshal(body, &batch) != nil {
		batch = []json.RawMessage{body}
	}
	readings := make([]reading, len(batch))
	for i, m := range batch {
		r, params := &readings[i], cMember(m, "params")
		arguments := cMember(params, "arguments")
		r.Method, r.Params.Name, r.Params.URI = cText(cMember(m, "method")), cText(cMember(params, "name")), cText(cMember(params, "uri"))
		r.Params.Arguments.Path = cText(cMember(arguments, "path"))
		_ = json.Unmarshal(cMember(arguments, "account"), &r.Params.Arguments.Account)
	}
	return readings
}

// cMember returns the first member with a name.
func cMember(object json.RawMessage, name string) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(object))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil
	}
	for d.More() {
		var value json.RawMessage
		token, err := d.Token()
		if err != nil || d.Decode(&value) != nil {
			return nil
		}
		key, _ := token.(string)
		if key, _, _ = strings.Cut(key, "\x00"); strings.EqualFold(key, name) {
			return value
		}
	}
	return nil
}

func cText(value json.RawMessage) string {
	var text string
	_ = json.Unmarshal(value, &text)
	text, _, _ = strings.Cut(text, "\x00")
	return text
}

// nodeReader prints the messages that a JavaScript program reads, directly and from copies by Object.assign.
const nodeReader = `
const url = u => { try { return new URL(u).href } catch { return u } }
const plain = u => { try { return decodeURIComponent(u) } catch { return u } }
const text = v => typeof v === 'string' ? v : ''
const shown = m => {
  const p = Object(m.params), a = Object(p.arguments)
  return [p.uri, url(p.uri), url(plain(p.uri)), plain(url(p.uri))].map(uri => ({method: text(m.method), params: {
    name: text(p.name), uri: text(uri), arguments: {path: text(a.path), account: typeof a.account === 'number' ? a.account : 0}}}))
}
require('readline').createInterface({input: process.stdin}).on('line', line => {
  let found = []
  try {
    for (const m of [JSON.parse(Buffer.from(line, 'base64').toString())].flat(3)) {
      const copy = Object.assign({}, m)
      copy.params = Object.assign({}, copy.params)
      copy.params.arguments = Object.assign({}, copy.params.arguments)
      found.push(...shown(Object(m)), ...shown(copy))
    }
  } catch {}
  console.log(JSON.stringify(found))
})`

// startReader starts a JavaScript program and returns a function that queries it.
func startReader(t *testing.T) func(body []byte) []reading {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "-e", nodeReader)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	return func(body []byte) (readings []reading) {
		fmt.Fprintln(in, base64.StdEncoding.EncodeToString(body))
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &readings)
		}
		if err != nil {
			t.Fatal(err)
		}
		return readings
	}
}

// newStrictFixture starts a gate that denies drop_*, paths under /etc and some arguments of
// ask_*, holds hold_*, and forwards everything else.
func newStrictFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, func(s *catalog.Settings, _ *approval.Config, w *conversation.Waiting) {
		snapshot, _, err := policy.Compile(policy.Config{
			Rules: []policy.Rule{
				{Match: "drop_*", Action: policy.Deny},
				{Match: "file:///etc/*", Action: policy.Deny},
				{Match: "hold_*", Action: policy.Approve},
				{Match: "ask_*", Action: policy.AskPolicies},
			},
			Default:   policy.Rule{Action: policy.Forward},
			Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}},
			Cedar: []policy.Source{{Name: "p.cedar", Text: []byte(`permit (principal, action, resource);
forbid (principal, action, resource) when { context.arguments has path && context.arguments.path like "/etc/*" };
forbid (principal, action, resource) when { context.arguments has account && context.arguments.account == 9007199254740992 };`)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Policy, w.Hold = snapshot, time.Millisecond
	})
}

// The test sends calls in unusual spellings. No message that reaches the upstream may be
// denied, or held and unapproved, as read by a Go, C or JavaScript program.
func TestUpstreamsReadCallsAsJudged(t *testing.T) {
	var mu sync.Mutex
	var received [][]byte
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		received = append(received, body)
		w.WriteHeader(http.StatusAccepted)
	})
	h := newStrictFixture(t)
	h.gateway = startGate(t, up, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = h.catalog, h.approvals, conversation.Waiting{Hold: time.Millisecond, Heartbeat: time.Second}
	})
	javaScript := startReader(t)
	passed := 0
	rapid.Check(t, func(t *rapid.T) {
		var message string
		for range 20 {
			message = oddPacket(t)
			h.raw(message)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, body := range received {
			for _, r := range slices.Concat(goReadings(body), cReadings(body), javaScript(body)) {
				if r.forbidden() {
					t.Fatalf("the upstream got %q and reads %+v", body, r)
				}
			}
		}
		passed, received = passed+len(received), nil
	})
	if passed == 0 {
		t.Error("no message reached the upstream")
	}
	t.Logf("%d messages reached the upstream", passed)
}

// oneOf returns one of the texts. The first is the usual one.
func oneOf(t *rapid.T, usual string, others ...string) string {
	if rapid.IntRange(0, 39).Draw(t, "odd") > 0 {
		return usual
	}
	return rapid.SampledFrom(append(others, usual)).Draw(t, "text")
}

func any1(t *rapid.T, texts ...string) string { return rapid.SampledFrom(texts).Draw(t, "text") }

// oddName returns a member name, possibly in another spelling.
func oddName(t *rapid.T, name string) string {
	escaped := fmt.Sprintf(`\u%04x`, name[0]) + name[1:]
	return `"` + oneOf(t, name, strings.ToUpper(name), strings.ToUpper(name[:1])+name[1:], strings.ReplaceAll(name, "s", "\u017f"), escaped, "__proto__", `\u005f_proto__`, name+" ", name+`\u0000`) + `"`
}

// oddObject returns an object with the given members, some of which may be missing or
// duplicated.
func oddObject(t *rapid.T, members ...string) string {
	var parts []string
	for i := 0; i < len(members); i += 2 {
		part := oddName(t, members[i]) + oneOf(t, ":", " : ", ":\n", ":\u00a0") + members[i+1]
		switch oneOf(t, "", "missing", "twice", "twice") {
		case "missing":
		case "twice":
			parts = append(parts, part, oddName(t, members[i])+":"+members[i+1])
		default:
			parts = append(parts, part)
		}
	}
	return "{" + strings.Join(parts, oneOf(t, ",", ", ", ",,")) + oneOf(t, "}", "}", "]", ",}")
}

func oddArguments(t *rapid.T) string {
	arguments := oddObject(t, "path", any1(t, `"/etc/passwd"`, `"/tmp/x"`, `"\/etc\/x"`, `null`),
		"account", any1(t, "1", "9007199254740992", "9007199254740993", "9007199254740992.5", "9.007199254740993e15", "1e400"))
	return oneOf(t, arguments, "null", "["+arguments+"]", `{"__proto__":`+arguments+`}`)
}

func oddMessage(t *rapid.T) string {
	method := any1(t, "tools/call", "tools/call", "tools/call", "prompts/get", "resources/read", "resources/read", "ping")
	method = oneOf(t, method, strings.ToUpper(method), method+" ", `\u1680`+method, method+`\u0000`, strings.ReplaceAll(method, "/", `\/`))
	uri := any1(t, "file:///etc/passwd", "FILE:///etc/passwd", "file:/etc/x", "file:///x/%252e%252e/etc/x", "file:///e%09tc/x", "file:///home/x", "file://localhost/etc/x", "file:///%65tc/x", "file:///x/../etc/x")
	params := oddObject(t, "name", `"`+any1(t, "drop_x", "hold_x", "get_x", "ask_x", "ask_x")+`"`, "uri", `"`+uri+`"`, "arguments", oddArguments(t))
	params = oneOf(t, params, "["+params+"]", "null", `{"name":"ask_x","__proto__":`+params+`}`)
	return oddObject(t, "jsonrpc", oneOf(t, `"2.0"`, `"2\u002e0"`, "2.0"), "id", oneOf(t, "1", `"1"`, "null", "1.0", "[1]"), "method", `"`+method+`"`, "params", params)
}

// oddPacket returns one or several messages, possibly with surrounding bytes.
func oddPacket(t *rapid.T) string {
	message := oddMessage(t)
	return oneOf(t, message, "["+message+","+oddMessage(t)+"]", "[["+message+"]]", "\ufeff"+message, message+message, message+"\x00", "\n "+message)
}

func TestAnswerMatchesAnySpellingOfID(t *testing.T) {
	h := newFixture(t, nil)
	for _, kind := range []string{asJSON, asEvents} {
		for asked, answered := range map[string]string{`1e2`: `100`, `-0`: `0`, `1.0`: `1`} {
			message := `{"jsonrpc":"2.0","id":` + answered + `,"result":{"ok":true}}`
			if kind == asEvents {
				message = "data: " + message + "\n\n"
			}
			h.answer = answerWith(kind, message)
			wantText(t, asked, h.ask(toolCall(asked, "get_x", "")), `{"ok":true}`)
		}
	}
}
