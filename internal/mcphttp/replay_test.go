package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A replayer is an agent that sends sealed texts.
type replayer struct{ session, name, token string }

var (
	one          = replayer{session: "s-1"}
	two          = replayer{session: "s-2"}
	ann          = replayer{session: "s-1", name: "ann", token: "token-of-ann-0123456789"}
	annElsewhere = replayer{session: "s-2", name: "ann", token: "token-of-ann-0123456789"}
	bob          = replayer{session: "s-1", name: "bob", token: "token-of-bob-0123456789"}
)

// headers returns the headers of the agent in an era.
func (r replayer) headers(version, method, name string) []string {
	h := []string{"MCP-Protocol-Version", version, "Mcp-Session-Id", r.session}
	if version == modernVersion {
		h = []string{"MCP-Protocol-Version", version, "Mcp-Session-Id", "", "Mcp-Method", method, "Mcp-Name", name}
	}
	if r.token != "" {
		h = append(h, "Authorization", "Bearer "+r.token)
	}
	return h
}

const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"
)

// A presentation sends a sealed text to the gate in one of the places where clients put such
// texts.
type presentation func(h *fixture, agent replayer, text string) string

func asState(h *fixture, agent replayer, text string) string {
	return h.ask(toolCall("26", "hold_x", `,"requestState":"`+text+`",`+modernMeta("")), agent.headers(modernVersion, "tools/call", "hold_x")...)
}

func asStateOfOtherCall(h *fixture, agent replayer, text string) string {
	return h.ask(toolCall("26", "hold_y", `,"requestState":"`+text+`",`+modernMeta("")), agent.headers(modernVersion, "tools/call", "hold_y")...)
}

func asStateOfForwardedCall(h *fixture, agent replayer, text string) string {
	return h.ask(toolCall("26", "get_x", `,"requestState":"`+text+`",`+modernMeta("")), agent.headers(modernVersion, "tools/call", "get_x")...)
}

func asLegacyState(h *fixture, agent replayer, text string) string {
	return h.ask(toolCall("26", "hold_x", `,"requestState":"`+text+`"`), agent.headers(legacyVersion, "", "")...)
}

func asEventID(h *fixture, agent replayer, text string) string {
	return h.sendAs(http.MethodGet, "", append(agent.headers(legacyVersion, "", ""), "Last-Event-ID", text)...).wait(h.t)
}

func asModernEventID(h *fixture, agent replayer, text string) string {
	headers := []string{"MCP-Protocol-Version", modernVersion, "Mcp-Session-Id", "", "Last-Event-ID", text}
	if agent.token != "" {
		headers = append(headers, "Authorization", "Bearer "+agent.token)
	}
	return h.sendAs(http.MethodGet, "", headers...).wait(h.t)
}

func asCursor(h *fixture, agent replayer, text string) string {
	return h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list","params":{"cursor":"`+text+`"}}`, agent.headers(legacyVersion, "", "")...)
}

func asModernCursor(h *fixture, agent replayer, text string) string {
	return h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list","params":{"cursor":"`+text+`",`+modernMeta("")+`}}`, agent.headers(modernVersion, "tasks/list", "")...)
}

// A sealed text is one that the gate gives to an agent. If it is about a call, the agent calls
// hold_x first.
type sealed struct {
	name   string
	obtain func(h *fixture, agent replayer) string
	use    presentation // the intended use
}

var (
	stateText = sealed{"requestState", func(h *fixture, agent replayer) string {
		return stateIn(h.t, h.ask(modernCall("hold_x", ""), agent.headers(modernVersion, "tools/call", "hold_x")...))
	}, asState}
	eventIDText = sealed{"Last-Event-ID", func(h *fixture, agent replayer) string {
		held := h.send(toolCall("7", "hold_x", ""), agent.headers(legacyVersion, "", "")...)
		held.wait(h.t)
		return sealedIn(h.t, `(?m)^id: ?(tg1\.\S+)`, held.body)
	}, asEventID}
	// More tasks than fit on a page.
	ownCursor = sealed{"cursor of own tasks", func(h *fixture, agent replayer) string {
		for i := range pageSize + 1 {
			h.ask(strings.Replace(toolCall("7", "hold_x", `,"task":{}`), `"x":1`, fmt.Sprintf(`"x":"task %d"`, i), 1), agent.headers(legacyVersion, "", "")...)
		}
		return cursorIn(h.t, h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list"}`, agent.headers(legacyVersion, "", "")...))
	}, asCursor}
	upstreamCursor = sealed{"cursor of the upstream's tasks", func(h *fixture, agent replayer) string {
		return cursorIn(h.t, h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list"}`, agent.headers(legacyVersion, "", "")...))
	}, asCursor}
)

// pageSize is the number of own tasks per page.
const pageSize = 50

func sealedIn(t *testing.T, pattern, text string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no sealed text in %s", text)
	}
	return found[1]
}

// newReplayFixture starts a gate with short waits, so that clients get sealed texts.
func newReplayFixture(t *testing.T, adjust func(*approval.Config)) *fixture {
	t.Helper()
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, w *conversation.Waiting) {
		w.Hold = 10 * time.Millisecond
		if adjust != nil {
			adjust(c)
		}
	})
	h.texts = keyring.Ephemeral()
	h.inFrontOf("test")
	for _, agent := range []replayer{one, two, ann, annElsewhere, bob} {
		key := catalog.ClientKey(policy.Principal{ID: agent.name, Anonymous: agent.name == ""}, agent.session, "")
		h.catalog.LearnHandshake(t.Context(), catalog.Client{Upstream: "test", Key: key}, catalog.Handshake{Tasks: true, ListTasks: true, Session: met})
	}
	h.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tasks":[{"taskId":"theirs"}],"nextCursor":"theirs","content":[{"type":"text","text":"done"}],"as":"of theirs"}}`, id)
	}
	return h
}

// inFrontOf puts the gate in front of the named upstream. It knows ann and bob, and accepts
// anonymous clients.
func (h *fixture) inFrontOf(upstream string) {
	h.t.Helper()
	h.gateway = startGate(h.t, h.target, func(s settings) {
		s.upstream.Name = upstream
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting, s.handler.Identity = h.catalog, h.approvals, h.waiting, annAndBob(h.t)
		s.handler.Texts = h.texts
	})
}

// Expected answers to a sealed text while its call is pending.
const (
	waits     = "has not run" // the client waits for its own call, and is told to call again
	page      = `"taskId"`    // the client gets a page of its own tasks
	upstreams = "of theirs"   // the upstream answers, for the modern era has no such method
	foreign   = "was not issued to this client"
	badCursor = `"invalid_cursor"`
)

// Issue 8, keys and sessions: every sealed text works only for its client and for its purpose.
// A replay neither runs nor holds a call.
func TestSealedTextsWorkOnlyForTheirClient(t *testing.T) {
	tests := []struct {
		name    string
		text    sealed
		of, by  replayer
		present presentation
		want    string
	}{
		{"by its client", stateText, ann, ann, asState, `"requestState"`},
		{"in another session of its principal", stateText, ann, annElsewhere, asState, `"requestState"`},
		{"by another principal", stateText, ann, bob, asState, foreign},
		{"by an anonymous client", stateText, ann, one, asState, foreign},
		{"for another call", stateText, ann, ann, asStateOfOtherCall, "belongs to another call"},
		{"for a call that needs no approval", stateText, ann, ann, asStateOfForwardedCall, "belongs to another call"},
		{"in the other era", stateText, ann, ann, asLegacyState, "cannot carry requestState"},
		{"as an event ID", stateText, ann, ann, asEventID, foreign},
		{"as a cursor", stateText, ann, ann, asCursor, badCursor},

		{"by its client", eventIDText, one, one, asEventID, waits},
		{"in another session", eventIDText, one, two, asEventID, foreign},
		{"by a principal in the same session", eventIDText, one, ann, asEventID, foreign},
		{"in another session of its principal", eventIDText, ann, annElsewhere, asEventID, waits},
		{"by another principal", eventIDText, ann, bob, asEventID, foreign},
		// The modern era has no GET, but a sealed event ID still belongs to its owner.
		{"in the other era", eventIDText, ann, ann, asModernEventID, waits},
		{"in the other era by another principal", eventIDText, ann, bob, asModernEventID, foreign},
		{"as a state", eventIDText, ann, ann, asState, foreign},
		{"as a cursor", eventIDText, ann, ann, asCursor, badCursor},

		{"by its client", ownCursor, one, one, asCursor, page},
		{"in another session", ownCursor, one, two, asCursor, badCursor},
		{"by another principal", ownCursor, ann, bob, asCursor, badCursor},
		{"in another session of its principal", ownCursor, ann, annElsewhere, asCursor, page},
		{"in the other era", ownCursor, ann, ann, asModernCursor, upstreams},
		{"as a state", ownCursor, ann, ann, asState, foreign},
		{"as an event ID", ownCursor, ann, ann, asEventID, foreign},

		{"by its client", upstreamCursor, one, one, asCursor, page},
		{"in another session", upstreamCursor, one, two, asCursor, badCursor},
		{"by another principal", upstreamCursor, ann, bob, asCursor, badCursor},
		{"in another session of its principal", upstreamCursor, ann, annElsewhere, asCursor, page},
		{"in the other era", upstreamCursor, ann, ann, asModernCursor, upstreams},
		{"as a state", upstreamCursor, ann, ann, asState, foreign},
		{"as an event ID", upstreamCursor, ann, ann, asEventID, foreign},
	}
	for _, tt := range tests {
		t.Run(tt.text.name+" "+tt.name, func(t *testing.T) {
			h := newReplayFixture(t, nil)
			text := tt.text.obtain(h, tt.of)
			held := h.held()
			for range 2 { // sealed texts can be used again
				wantText(t, "answer", tt.present(h, tt.by, text), tt.want)
			}
			if now := h.held(); now != held {
				t.Errorf("%d calls are held; want the %d of before", now, held)
			}
			h.wantNoCall()
		})
	}
}

// held returns the number of pending calls.
func (h *fixture) held() int {
	h.t.Helper()
	page, err := h.approvals.Viewer().Pending(h.t.Context(), review.Filter{})
	if err != nil {
		h.t.Fatal(err)
	}
	return len(page.Approvals)
}

// wantNoCall checks that no tool was called.
func (h *fixture) wantNoCall() {
	h.t.Helper()
	if ran := h.ran(); slices.ContainsFunc(ran, func(line string) bool { return line != " " }) {
		h.t.Errorf("ran %q; want no call of a tool", ran)
	}
}

func TestSealedTextIsBoundToUpstream(t *testing.T) {
	for _, text := range []sealed{stateText, eventIDText, upstreamCursor} {
		t.Run(text.name, func(t *testing.T) {
			h := newReplayFixture(t, nil)
			given := text.obtain(h, ann)
			h.inFrontOf("other")
			answer := text.use(h, ann, given)
			if !strings.Contains(answer, foreign) && !strings.Contains(answer, badCursor) {
				t.Errorf("answer %s; want a refusal", answer)
			}
			h.wantNoCall()
		})
	}
}

// refusedEventID is in the answer to a used event ID.
const refusedEventID = "method_not_allowed"

// callTexts are the texts about a call.
var callTexts = []sealed{stateText, eventIDText}

// After its call has ended, a text gives its own client the outcome, and nothing runs again. An
// event ID does so once, because some clients reconnect as long as they get answers; a second
// time only if the first was still waiting. The stream of a cancelled call has no answer.
func TestSealedTextAfterCallEnded(t *testing.T) {
	var ahead atomic.Int64 // of the approval service
	ends := []struct {
		name string
		end  func(h *fixture, id task.ID)
		want string
		runs int
	}{
		{"approved", func(h *fixture, id task.ID) { h.approve(id) }, `"text":"done"`, 1},
		{"rejected", func(h *fixture, id task.ID) { h.reject(id, "too early") }, "did not run", 0},
		{"cancelled", func(h *fixture, id task.ID) {
			if _, err := h.approvals.Cancel(h.t.Context(), task.AnyOwner().Ref(id), approval.Withdrawal{By: "ann"}); err != nil {
				h.t.Fatal(err)
			}
		}, "cancelled", 0},
		{"expired", func(_ *fixture, _ task.ID) { ahead.Add(int64(time.Hour + time.Second)) }, "did not run", 0},
	}
	for _, text := range callTexts {
		for _, tt := range ends {
			t.Run(text.name+" "+tt.name, func(t *testing.T) {
				h := newReplayFixture(t, func(c *approval.Config) {
					c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				})
				given := text.obtain(h, ann)
				tt.end(h, h.pending(1)[0])
				want, waited := tt.want, tt.runs > 0
				for i := range 3 {
					if text.name == eventIDText.name && (i > 0 && !waited || tt.name == "cancelled") {
						want = refusedEventID
					}
					answer := ""
					h.askUntil("", func() string {
						answer = text.use(h, ann, given)
						return answer
					})
					if i == 1 && waited && strings.Contains(answer, refusedEventID) && text.name == eventIDText.name {
						want = refusedEventID // the call had ended before the first replay
					}
					waited = waited && i == 0
					wantText(t, "the answer", answer, want)
					wantText(t, "another principal", text.use(h, bob, given), foreign)
				}
				if ran := h.ran(); len(ran) != tt.runs {
					t.Errorf("ran %q; want %d calls", ran, tt.runs)
				}
			})
		}
	}
}

// Twenty concurrent replays, some by another client, run the call once.
func TestParallelReplaysRunCallOnce(t *testing.T) {
	for _, text := range callTexts {
		t.Run(text.name, func(t *testing.T) {
			h := newReplayFixture(t, nil)
			given := text.obtain(h, ann)
			id := h.pending(1)[0]
			var replays sync.WaitGroup
			for range 20 {
				replays.Go(func() {
					for answer := ""; !strings.Contains(answer, `"text":"done"`) && !strings.Contains(answer, refusedEventID); {
						answer = text.use(h, ann, given)
					}
				})
				replays.Go(func() { wantText(t, "another principal", text.use(h, bob, given), foreign) })
			}
			h.approve(id)
			replays.Wait()
			if ran := h.ran(); !slices.Equal(ran, []string{`hold_x {"x":1}`}) {
				t.Errorf("ran %q; want the call once", ran)
			}
		})
	}
}

// A client may send its answers with the same state any number of times.
func TestReplayedAnswersReachUpstreamOnce(t *testing.T) {
	h := newReplayFixture(t, nil)
	var asked, answered atomic.Int32
	h.target = serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
		if err != nil {
			t.Errorf("the upstream got %s: %v", body, err)
			return
		}
		m, result := &p.Messages[0], `{"resultType":"complete","content":[{"type":"text","text":"done"}],"capabilities":{},"tools":[]}`
		switch {
		case m.Method != "tools/call":
		case m.Params.Member("inputResponses").Present():
			answered.Add(1)
		default:
			asked.Add(1)
			result = `{"resultType":"input_required","requestState":"theirs","inputRequests":{"a":{"method":"roots/list"}}}`
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(result)))
	})
	h.inFrontOf("test")
	given := stateText.obtain(h, ann)
	h.approve(h.pending(1)[0])
	eventually(t, "the upstream asks", func() bool { return strings.Contains(asState(h, ann, given), `"roots/list"`) })
	replay := func(agent replayer) string {
		more := `,"requestState":"` + given + `","inputResponses":{"a":{"roots":[]}},` + modernMeta("")
		return h.ask(toolCall("26", "hold_x", more), agent.headers(modernVersion, "tools/call", "hold_x")...)
	}
	wantText(t, "another principal", replay(bob), foreign)
	var replays sync.WaitGroup
	for range 20 {
		replays.Go(func() { replay(ann) })
	}
	replays.Wait()
	h.askUntil(`"text":"done"`, func() string { return asState(h, ann, given) })
	wantText(t, "after the end", replay(ann), `"text":"done"`)
	if asked.Load() != 1 || answered.Load() != 1 {
		t.Errorf("the upstream was called %d times, and %d times with the answers; want once each", asked.Load(), answered.Load())
	}
}
