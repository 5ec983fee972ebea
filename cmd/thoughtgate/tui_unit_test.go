package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// longCall returns a pending call with arguments of many lines.
func longCall(digest string) review.Approval {
	a := review.Approval{ID: "tg_1", State: task.InputRequired, Tool: "delete_file", Digests: review.Digests{ShownDigest: digest}}
	a.Arguments = jsontext.Value(`[` + strings.TrimSuffix(strings.Repeat(`"line",`, 100), ",") + `]`)
	return a
}

// opened returns a screen on which a call is open.
func opened(t *testing.T, a review.Approval) *tui {
	t.Helper()
	screen := &tui{open: &detail{call: review.Approval{ID: a.ID}}}
	screen.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	screen.Update(shownMsg{id: a.ID, call: a})
	return screen
}

func press(screen *tui, key string) tea.Cmd {
	codes := map[string]rune{"enter": tea.KeyEnter, "end": tea.KeyEnd, "home": tea.KeyHome, "space": ' '}
	if code, named := codes[key]; named {
		_, cmd := screen.Update(tea.KeyPressMsg{Code: code})
		return cmd
	}
	_, cmd := screen.Update(tea.KeyPressMsg{Code: []rune(key)[0], Text: key})
	return cmd
}

// The list leaves the arguments the space that short names do not take, and a long name takes no more than its column.
func TestListGivesSpaceToArguments(t *testing.T) {
	a := review.Approval{ID: "tg_1", State: task.InputRequired, Tool: "refund", Principal: "ci", Arguments: jsontext.Value(`{"payment":"pay_2026_11_19"}`)}
	screen := &tui{calls: []review.Approval{a}}
	screen.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	if text := screen.render(); !strings.Contains(text, string(a.Arguments)) {
		t.Errorf("the arguments are cut:\n%s", text)
	}
	screen.calls[0].Tool = strings.Repeat("x", 100)
	if text := screen.render(); !strings.Contains(text, `{"payment"`) {
		t.Errorf("the name of the tool takes the line:\n%s", text)
	}
}

// A call can be approved only after every line was on the screen. Jumping to the end is not
// enough.
func TestApproveOnlyWhenAllSeen(t *testing.T) {
	screen := opened(t, longCall("one"))
	for _, key := range []string{"end", "home", "a"} {
		press(screen, key)
	}
	if lines, bytes := screen.open.unseen(); screen.prompt != nil || lines < 50 || bytes < 50*len("line") {
		t.Fatalf("%d lines, %d bytes unseen, prompt %v", lines, bytes, screen.prompt)
	}
	for range 8 {
		press(screen, "space")
	}
	press(screen, "a")
	if screen.prompt == nil || screen.prompt.what != approval.Approve || screen.prompt.unread != 0 {
		t.Fatalf("prompt %v", screen.prompt)
	}
	screen.prompt = nil

	// Lines seen at one width count as seen at another width. Lines of a changed call do not.
	screen.Update(tea.WindowSizeMsg{Width: 50, Height: 12})
	if lines, _ := screen.open.unseen(); lines != 0 {
		t.Errorf("%d lines are unseen after a change of the size", lines)
	}
	screen.Update(shownMsg{id: "tg_1", call: longCall("two")})
	press(screen, "a")
	if lines, _ := screen.open.unseen(); lines == 0 || screen.prompt != nil {
		t.Errorf("a changed call counts as seen: %v", screen.prompt)
	}

	// A terminal that is too small shows no lines of the call, so they do not count as seen.
	tiny := &tui{open: &detail{call: review.Approval{ID: "tg_1"}}}
	tiny.Update(tea.WindowSizeMsg{Width: 80, Height: 5})
	tiny.Update(shownMsg{id: "tg_1", call: longCall("one")})
	for range 200 {
		press(tiny, "space")
	}
	if lines, _ := tiny.open.unseen(); lines != len(tiny.open.lines) {
		t.Errorf("%d of %d lines are unseen", lines, len(tiny.open.lines))
	}
}

// The prompt is for the shown version of the call. If the gate then shows the call
// differently, the prompt closes until the approver has read the new version.
func TestPromptClosesWhenTheCallChanges(t *testing.T) {
	for _, key := range []string{"a", "r"} {
		screen := opened(t, longCall("one"))
		for range 8 {
			press(screen, "space")
		}
		press(screen, key)
		screen.Update(shownMsg{id: "tg_1", call: longCall("one")})
		if screen.prompt == nil {
			t.Fatalf("%s: the prompt closes although the call is unchanged", key)
		}
		screen.prompt.since = time.Now().Add(-time.Minute)
		screen.prompt.insert("as agreed")
		screen.Update(shownMsg{id: "tg_1", call: longCall("two")})
		if cmd := press(screen, "enter"); cmd != nil || screen.prompt != nil {
			t.Errorf("%s: an answer about another version of the call counts", key)
		}
		if !strings.Contains(screen.notice, "read it again") || screen.open.reason != "as agreed" {
			t.Errorf("%s: the notice is %q, the reason %q", key, screen.notice, screen.open.reason)
		}
		press(screen, "a")
		if screen.prompt != nil {
			t.Errorf("%s: the other version counts as seen", key)
		}
	}
}

// A decision that is being sent has the digest of the version that was shown when it was made.
func TestDecisionNamesTheShownVersion(t *testing.T) {
	var sent string
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = string(body)
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer gate.Close()
	screen := opened(t, longCall("one"))
	screen.ctx = t.Context()
	var err error
	if screen.gate, err = client.New(client.Config{URL: gate.URL, Token: "t"}); err != nil {
		t.Fatal(err)
	}
	press(screen, "r")
	screen.prompt.since = time.Now().Add(-time.Minute)
	cmd := press(screen, "enter")
	screen.Update(shownMsg{id: "tg_1", call: longCall("two")})
	if screen.prompt == nil {
		t.Error("the prompt closes before the gate has answered")
	}
	if cmd(); !strings.Contains(sent, `"shownDigest":"one"`) {
		t.Errorf("sent %s", sent)
	}
}

// An approval without reading everything includes the number of unseen bytes.
func TestApprovalWithoutReadingIsRecorded(t *testing.T) {
	screen := opened(t, longCall("one"))
	press(screen, "w")
	_, bytes := screen.open.unseen()
	if screen.prompt == nil || screen.prompt.unread != bytes || bytes == 0 {
		t.Fatalf("prompt %v for %d bytes", screen.prompt, bytes)
	}
}

// Enter is ignored shortly after the prompt opens, so that a key that is held down decides
// nothing.
func TestEarlyEnterIsIgnored(t *testing.T) {
	screen := opened(t, longCall("one"))
	press(screen, "r")
	screen.prompt.since = time.Now()
	if cmd := press(screen, "enter"); cmd != nil || screen.prompt.sent {
		t.Error("an early enter counts")
	}
	screen.prompt.since = time.Now().Add(-time.Minute)
	if cmd := press(screen, "enter"); cmd == nil || !screen.prompt.sent {
		t.Error("enter does not count")
	}
	if cmd := press(screen, "enter"); cmd != nil {
		t.Error("the decision is sent twice")
	}
}

// If an approver presses enter again during the decision, the notice about its result stays.
// The next key with an effect removes it.
func TestNoticeStays(t *testing.T) {
	screen := opened(t, longCall("one"))
	after := longCall("one")
	after.State = task.Failed
	press(screen, "r")
	screen.Update(decidedMsg{id: after.ID, what: approval.Reject, after: after})
	screen.Update(shownMsg{id: after.ID, call: after})
	press(screen, "enter")
	if want := "rejected; the call does not run"; screen.notice != want {
		t.Errorf("the notice is %q, not %q", screen.notice, want)
	}
	press(screen, "space")
	if screen.notice != "" {
		t.Errorf("the notice %q is still shown", screen.notice)
	}
}

// Only labels begin at the left margin, at every width and with any text of the agent.
func TestContinuationLinesAreIndented(t *testing.T) {
	a := longCall("one")
	spoof := strings.Repeat("x", 61) + "state       approved\nstate       approved\r\x1b[1;1Hstate"
	a.Tool, a.Description, a.Reason, a.Principal, a.Workflow = spoof, spoof, spoof, spoof, spoof
	a.ClientReason = &review.Untrusted{Text: spoof}
	quoted, err := jsontext.AppendQuote(nil, spoof)
	if err != nil {
		t.Fatal(err)
	}
	a.Arguments = jsontext.Value(`{"a":` + string(quoted) + `}`)
	around := review.Context{
		Approvers: []string{spoof}, Objection: spoof, ToolChange: &review.ToolChange{}, Earlier: []review.Approval{a, a},
		History: []auditlog.Entry{{Note: task.Note{Step: spoof, Actor: spoof, Reason: spoof, Outcome: spoof}}},
	}
	ours := regexp.MustCompile(`^(?:(?:id|state|tool|warning|description|risk|hints|requester|agent|held|workflow|age|left|agent says|call digest|shown|arguments|also sent|objection|caution|approvers|earlier|history) +| {12})`)
	for width := minWidth; width < 120; width++ {
		d := &detail{}
		d.show(a, around, false)
		d.wrapLines(width)
		states := 0
		for _, line := range d.lines {
			if !ours.MatchString(line) || strings.ContainsAny(line, "\x1b\r") {
				t.Fatalf("width %d: %q", width, line)
			}
			if strings.HasPrefix(line, "state") {
				states++
			}
		}
		if states != 1 {
			t.Errorf("width %d: %d lines show the state", width, states)
		}
	}
}

// The texts of a desktop notification are plain letters in separate arguments: they cannot be
// options, markup or scripts.
func TestNotificationIsHarmless(t *testing.T) {
	hostile := "--icon=/etc/passwd\" & <b>x</b>\n\\n$(id)`id`\x1b[2J\u202edеl"
	a := review.Approval{Tool: hostile, Principal: hostile}
	for _, program := range []string{"notify-send", "osascript"} {
		command := desktopCommand(func(name string) (string, error) {
			if name == program {
				return "/bin/" + name, nil
			}
			return "", errors.New("not found")
		})
		title, text := notification(a)
		argv := command(title, text)
		if got := argv[len(argv)-2:]; got[0] != title || got[1] != text || argv[0] != "/bin/"+program {
			t.Errorf("%s: %q", program, argv)
		}
		if strings.Contains(strings.Join(argv[:len(argv)-2], " "), "passwd") {
			t.Errorf("%s: %q", program, argv)
		}
		if !regexp.MustCompile(`^Tool [A-Za-z0-9 ._/@?:…-]+$`).MatchString(text) {
			t.Errorf("%q", text)
		}
	}
	if desktopCommand(func(string) (string, error) { return "", errors.New("not found") }) != nil {
		t.Error("a command is returned although no program is installed")
	}
}

// The list is sorted by the time left, keeps its selection, and fits the screen.
func TestListFitsTheScreen(t *testing.T) {
	screen := &tui{now: time.Now()}
	screen.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	for i := range 60 {
		a := longCall("")
		a.ID = task.ID(fmt.Sprintf("tg_%02d", i))
		a.Tool = strings.Repeat("wide 漢字 ", 9)
		a.ExpiresAt = screen.now.Add(time.Duration(100-i) * time.Second)
		screen.Update(eventMsg{Kind: "pending", Approval: a})
	}
	press(screen, "G")
	if foot := "calls 42-60 of 60, most urgent first"; !strings.Contains(screen.render(), foot) {
		t.Errorf("%q is not on the screen:\n%s", foot, screen.render())
	}
	lines := strings.Split(screen.render(), "\n")
	if len(lines) != 24 || !strings.Contains(screen.render(), "> ") {
		t.Errorf("%d lines", len(lines))
	}
	screen.Update(eventMsg{Kind: "settled", Approval: review.Approval{ID: screen.selected}})
	if screen.index() != len(screen.calls)-1 || len(screen.calls) != 59 {
		t.Errorf("selected %d of %d", screen.index(), len(screen.calls))
	}
}

// The list opens at the most urgent call, in whatever order the gate tells of them. From the first
// key on, the approver selects.
func TestListOpensAtTheMostUrgentCall(t *testing.T) {
	screen := &tui{now: time.Now()}
	screen.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	tell := func(id task.ID, left time.Duration) {
		a := longCall("")
		a.ID, a.ExpiresAt = id, screen.now.Add(left)
		screen.Update(eventMsg{Kind: "pending", Approval: a})
	}
	tell("tg_a", 10*time.Minute)
	tell("tg_b", time.Minute)
	tell("tg_c", 20*time.Minute)
	if screen.selected != "tg_b" {
		t.Errorf("selected %s; want the call with the least time left", screen.selected)
	}
	if strings.Contains(screen.render(), "calls 1-") {
		t.Error("a list that fits has a scroll mark")
	}
	press(screen, "j")
	tell("tg_d", time.Second)
	if screen.selected != "tg_a" {
		t.Errorf("selected %s; want the call that the approver selected", screen.selected)
	}
}
