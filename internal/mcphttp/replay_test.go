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
	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// The agents of the tests about sealed texts.
type replayer struct{ session, name, token string }

var (
	one     = replayer{session: "s-1"}
	two     = replayer{session: "s-2"}
	ann     = replayer{session: "s-1", name: "ann", token: "token-of-ann-0123456789"}
	annElse = replayer{session: "s-2", name: "ann", token: "token-of-ann-0123456789"}
	bob     = replayer{session: "s-1", name: "bob", token: "token-of-bob-0123456789"}
)

// headers are those of a request by the agent in an era.
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

// A presentation hands a sealed text to a gate in one of the places where clients
// put such texts.
type presentation func(h *fixture, who replayer, text string) string

func asState(h *fixture, who replayer, text string) string {
	return h.ask(toolCall("26", "hold_x", `,"requestState":"`+text+`",`+modernMeta("")), who.headers(modernVersion, "tools/call", "hold_x")...)
}

func asStateOfOtherCall(h *fixture, who replayer, text string) string {
	return h.ask(toolCall("26", "hold_y", `,"requestState":"`+text+`",`+modernMeta("")), who.headers(modernVersion, "tools/call", "hold_y")...)
}

func asStateOfForwardedCall(h *fixture, who replayer, text string) string {
	return h.ask(toolCall("26", "get_x", `,"requestState":"`+text+`",`+modernMeta("")), who.headers(modernVersion, "tools/call", "get_x")...)
}

func asLegacyState(h *fixture, who replayer, text string) string {
	return h.ask(toolCall("26", "hold_x", `,"requestState":"`+text+`"`), who.headers(legacyVersion, "", "")...)
}

func asPlace(h *fixture, who replayer, text string) string {
	return h.sendAs(http.MethodGet, "", append(who.headers(legacyVersion, "", ""), "Last-Event-ID", text)...).wait(h.t)
}

func asModernPlace(h *fixture, who replayer, text string) string {
	headers := []string{"MCP-Protocol-Version", modernVersion, "Mcp-Session-Id", "", "Last-Event-ID", text}
	if who.token != "" {
		headers = append(headers, "Authorization", "Bearer "+who.token)
	}
	return h.sendAs(http.MethodGet, "", headers...).wait(h.t)
}

func asCursor(h *fixture, who replayer, text string) string {
	return h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list","params":{"cursor":"`+text+`"}}`, who.headers(legacyVersion, "", "")...)
}

func asModernCursor(h *fixture, who replayer, text string) string {
	return h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list","params":{"cursor":"`+text+`",`+modernMeta("")+`}}`, who.headers(modernVersion, "tasks/list", "")...)
}

// A sealed text is one that the gate hands to an agent. The agent makes the call
// hold_x for it, if it is about a call.
type sealed struct {
	name   string
	obtain func(h *fixture, who replayer) string
	use    presentation // as it is meant
}

var (
	stateText = sealed{"requestState", func(h *fixture, who replayer) string {
		return stateIn(h.t, h.ask(modernCall("hold_x", ""), who.headers(modernVersion, "tools/call", "hold_x")...))
	}, asState}
	placeText = sealed{"Last-Event-ID", func(h *fixture, who replayer) string {
		held := h.send(toolCall("7", "hold_x", ""), who.headers(legacyVersion, "", "")...)
		held.wait(h.t)
		return sealedIn(h.t, `(?m)^id: ?(tg1\.\S+)`, held.body)
	}, asPlace}
	// Of the gate's own tasks there are more than a page has.
	ownCursor = sealed{"cursor of own tasks", func(h *fixture, who replayer) string {
		for i := range pageSize + 1 {
			h.ask(strings.Replace(toolCall("7", "hold_x", `,"task":{}`), `"x":1`, fmt.Sprintf(`"x":"task %d"`, i), 1), who.headers(legacyVersion, "", "")...)
		}
		return cursorIn(h.t, h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list"}`, who.headers(legacyVersion, "", "")...))
	}, asCursor}
	upstreamCursor = sealed{"cursor of the upstream's tasks", func(h *fixture, who replayer) string {
		return cursorIn(h.t, h.ask(`{"jsonrpc":"2.0","id":8,"method":"tasks/list"}`, who.headers(legacyVersion, "", "")...))
	}, asCursor}
)

// pageSize is how many of its own tasks the gate lists at a time.
const pageSize = 50

func sealedIn(t *testing.T, pattern, text string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no sealed text in %s", text)
	}
	return found[1]
}

// newReplayFixture starts a gate that keeps clients waiting so briefly that they get
// texts to come again with.
func newReplayFixture(t *testing.T, adjust func(*approval.Config)) *fixture {
	t.Helper()
	h := newFixture(t, func(_ *gate.Settings, c *approval.Config, w *conversation.Waiting) {
		w.Hold = 10 * time.Millisecond
		if adjust != nil {
			adjust(c)
		}
	})
	h.texts = keyring.Ephemeral()
	h.inFrontOf("test")
	for _, who := range []replayer{one, two, ann, annElse, bob} {
		key := gate.ClientKey(policy.Principal{ID: who.name, Anonymous: who.name == ""}, who.session, "")
		h.gate.Meet(t.Context(), gate.Client{Upstream: "test", Key: key}, gate.Facts{Tasks: true, ListTasks: true, Session: met})
	}
	h.answer = func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tasks":[{"taskId":"theirs"}],"nextCursor":"theirs","content":[{"type":"text","text":"done"}],"as":"of theirs"}}`, id)
	}
	return h
}

// inFrontOf puts the gate in front of an upstream with the given name. It knows ann
// and bob, and lets anonymous clients in as well.
func (h *fixture) inFrontOf(upstream string) {
	h.t.Helper()
	recogniser, err := identity.New(identity.Config{Now: time.Now, Anonymous: true, Tokens: []identity.Token{
		{Name: "ann", Hash: bearer.HashOf(ann.token)}, {Name: "bob", Hash: bearer.HashOf(bob.token)},
	}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.gateway = startGate(h.t, h.target, func(s settings) {
		s.upstream.Name = upstream
		s.handler.Gate, s.handler.Desk, s.handler.Waiting, s.handler.Identity = h.gate, h.desk, h.waiting, recogniser
		s.handler.Texts = h.texts
	})
}

// The answers to a sealed text that is presented while its call is pending.
const (
	waits     = "has not run" // the client waits for its own call, and is told to come again
	page      = `"taskId"`    // the client gets a page of its own tasks
	upstreams = "of theirs"   // the upstream answers, for the modern era has no such method
	foreign   = "was not issued to this client"
	badCursor = `"invalid_cursor"`
)

// Issue 8, keys and sessions: every text that the gate seals works for the client it
// was given to, in its place, and for nobody else and nowhere else. None of the
// replays runs anything or holds anything new.
func TestReplayedTexts(t *testing.T) {
	tests := []struct {
		name    string
		text    sealed
		of, by  replayer
		present presentation
		want    string
	}{
		{"by its client", stateText, ann, ann, asState, `"requestState"`},
		{"in another session of its principal", stateText, ann, annElse, asState, `"requestState"`},
		{"by another principal", stateText, ann, bob, asState, foreign},
		{"by an anonymous client", stateText, ann, one, asState, foreign},
		{"for another call", stateText, ann, ann, asStateOfOtherCall, "belongs to another call"},
		{"for a call that needs no approval", stateText, ann, ann, asStateOfForwardedCall, "belongs to another call"},
		{"in the other era", stateText, ann, ann, asLegacyState, "cannot carry requestState"},
		{"as a place", stateText, ann, ann, asPlace, foreign},
		{"as a cursor", stateText, ann, ann, asCursor, badCursor},

		{"by its client", placeText, one, one, asPlace, waits},
		{"in another session", placeText, one, two, asPlace, foreign},
		{"by a principal in the same session", placeText, one, ann, asPlace, foreign},
		{"in another session of its principal", placeText, ann, annElse, asPlace, waits},
		{"by another principal", placeText, ann, bob, asPlace, foreign},
		// The modern era has no GET. A place that the gate sealed still belongs to its owner.
		{"in the other era", placeText, ann, ann, asModernPlace, waits},
		{"in the other era by another principal", placeText, ann, bob, asModernPlace, foreign},
		{"as a state", placeText, ann, ann, asState, foreign},
		{"as a cursor", placeText, ann, ann, asCursor, badCursor},

		{"by its client", ownCursor, one, one, asCursor, page},
		{"in another session", ownCursor, one, two, asCursor, badCursor},
		{"by another principal", ownCursor, ann, bob, asCursor, badCursor},
		{"in another session of its principal", ownCursor, ann, annElse, asCursor, page},
		{"in the other era", ownCursor, ann, ann, asModernCursor, upstreams},
		{"as a state", ownCursor, ann, ann, asState, foreign},
		{"as a place", ownCursor, ann, ann, asPlace, foreign},

		{"by its client", upstreamCursor, one, one, asCursor, page},
		{"in another session", upstreamCursor, one, two, asCursor, badCursor},
		{"by another principal", upstreamCursor, ann, bob, asCursor, badCursor},
		{"in another session of its principal", upstreamCursor, ann, annElse, asCursor, page},
		{"in the other era", upstreamCursor, ann, ann, asModernCursor, upstreams},
		{"as a state", upstreamCursor, ann, ann, asState, foreign},
		{"as a place", upstreamCursor, ann, ann, asPlace, foreign},
	}
	for _, tt := range tests {
		t.Run(tt.text.name+" "+tt.name, func(t *testing.T) {
			h := newReplayFixture(t, nil)
			text := tt.text.obtain(h, tt.of)
			held := h.held()
			for range 2 { // none is spent by use
				wantText(t, "answer", tt.present(h, tt.by, text), tt.want)
			}
			if now := h.held(); now != held {
				t.Errorf("%d calls are held; want the %d of before", now, held)
			}
			h.wantNoCall()
		})
	}
}

// held returns how many calls are pending.
func (h *fixture) held() int {
	h.t.Helper()
	page, err := h.desk.Cases().Pending(h.t.Context(), casefile.Filter{})
	if err != nil {
		h.t.Fatal(err)
	}
	return len(page.Approvals)
}

// wantNoCall demands that no tool was called.
func (h *fixture) wantNoCall() {
	h.t.Helper()
	if ran := h.ran(); slices.ContainsFunc(ran, func(line string) bool { return line != " " }) {
		h.t.Errorf("ran %q; want no call of a tool", ran)
	}
}

// A text of one upstream's client is worth nothing at another upstream of the same
// gate.
func TestReplayedAtAnotherUpstream(t *testing.T) {
	for _, text := range []sealed{stateText, placeText, upstreamCursor} {
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

// refusedPlace is in the answer to a place that was used.
const refusedPlace = "method_not_allowed"

// callTexts are those that are about a call.
var callTexts = []sealed{stateText, placeText}

// After its call has ended a text still gets what became of it, for its own client
// only, and nothing runs again. A place on a stream gets it once: there are clients
// that come back for ever as long as they are answered. If the first one still waited
// for the run, the second gets it too. The stream of a cancelled call has no answer.
func TestReplayedAfterTheEnd(t *testing.T) {
	var ahead atomic.Int64 // of the desk's clock
	ends := []struct {
		name string
		end  func(h *fixture, id task.ID)
		want string
		runs int
	}{
		{"approved", func(h *fixture, id task.ID) { h.approve(id) }, `"text":"done"`, 1},
		{"rejected", func(h *fixture, id task.ID) { h.reject(id, "too early") }, "did not run", 0},
		{"cancelled", func(h *fixture, id task.ID) {
			if _, err := h.desk.Cancel(h.t.Context(), task.AnyOwner().Ref(id), approval.Withdrawal{By: "ann"}); err != nil {
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
					if text.name == placeText.name && (i > 0 && !waited || tt.name == "cancelled") {
						want = refusedPlace
					}
					answer := ""
					h.askUntil("", func() string {
						answer = text.use(h, ann, given)
						return answer
					})
					if i == 1 && waited && strings.Contains(answer, refusedPlace) && text.name == placeText.name {
						want = refusedPlace // the run had ended before the first one came
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

// Twenty replays at a time, some of them by somebody else, run the call once.
func TestReplayedInParallel(t *testing.T) {
	for _, text := range callTexts {
		t.Run(text.name, func(t *testing.T) {
			h := newReplayFixture(t, nil)
			given := text.obtain(h, ann)
			id := h.pending(1)[0]
			var replays sync.WaitGroup
			for range 20 {
				replays.Go(func() {
					for answer := ""; !strings.Contains(answer, `"text":"done"`) && !strings.Contains(answer, refusedPlace); {
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

// The answers to an upstream's questions reach it once, however often they are
// handed in with the state.
func TestReplayedAnswers(t *testing.T) {
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
	replay := func(who replayer) string {
		more := `,"requestState":"` + given + `","inputResponses":{"a":{"roots":[]}},` + modernMeta("")
		return h.ask(toolCall("26", "hold_x", more), who.headers(modernVersion, "tools/call", "hold_x")...)
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
