package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

func TestFormatDuration(t *testing.T) {
	tests := map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59*time.Second + 999*time.Millisecond: "59s", 90 * time.Second: "1m30s",
		15 * time.Minute: "15m", 90 * time.Minute: "1h30m", 50 * time.Hour: "2d",
	}
	for d, want := range tests {
		if got := formatDuration(d); got != want {
			t.Errorf("formatDuration(%v) = %s; want %s", d, got, want)
		}
	}
}

// Foreign text stays in its column of a table, and its length is limited.
func TestTableLimitsForeignText(t *testing.T) {
	now := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	a := review.Approval{
		ID: "tg_aaaaaaaa-1", Tool: "x\ny\tz", Principal: strings.Repeat("long", 100), State: task.InputRequired,
		Explanation: review.Explanation{Workflow: "w", Reason: "because"},
		CreatedAt:   now.Add(-time.Minute), ExpiresAt: now.Add(time.Minute),
	}
	b := a
	b.ID, b.State, b.Principal = "tg_aaaaaaaa-2", task.Expired, "ann"
	a.Agent = &review.Agent{Presence: gatetask.OwnerGone, LastContact: now.Add(-12 * time.Minute)}
	var out strings.Builder
	if err := (&screen{w: &out}).table([]review.Approval{a, b}, now); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	want := []string{"tg_aaaaaaaa-2", `x\ny\u0009z`, "effects", "unknown", "ann", "w", "1m0s", "-", "expired", "-", "because"}
	if diff := cmp.Diff(want, strings.Fields(lines[2])); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(lines[1], "pending  gone 12m  because") {
		t.Errorf("the agent is not shown as gone: %s", lines[1])
	}
	if n := strings.Count(lines[1], "long"); n != maxCell/4 {
		t.Errorf("the requester is shown in full %d times", n)
	}
}

// The arguments of a call take one line of the terminal, whatever characters they have.
func TestListFitsTheTerminal(t *testing.T) {
	for _, arguments := range []string{
		`{"path":"` + strings.Repeat("x", 500) + `"}`, `{"path":"` + strings.Repeat("漢字", 100) + `"}`, `{"path":"/x"}`,
	} {
		a := review.Approval{ID: "tg_1", Arguments: jsontext.Value(arguments)}
		line := (&screen{columns: 80}).argumentLine(a)
		if width := ansi.StringWidth(line); width > 80 || strings.Count(line, "\n") != 1 || !strings.HasPrefix(line, `    {"path":"`) {
			t.Errorf("%d columns: %q", width, line)
		}
		if whole := len(arguments) < 20; whole == strings.Contains(line, "…") {
			t.Errorf("whole %t: %q", whole, line)
		}
	}
	if line := (&screen{columns: 80}).argumentLine(review.Approval{}); line != "" {
		t.Errorf("%q without arguments", line)
	}
}

func TestStateText(t *testing.T) {
	now := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	by := gatetask.Decision{By: "bob\x1b", At: now.Add(-time.Minute), Reason: "as agreed"}
	approved := []gatetask.Decision{by}
	tests := []struct {
		a    review.Approval
		want string
	}{
		{review.Approval{State: task.Approved, Decisions: review.Decisions{Approvals: approved}}, `approved by bob\u001b 1m0s ago (as agreed)`},
		{review.Approval{State: task.Executing, Decisions: review.Decisions{Approvals: approved}}, `approved by bob\u001b 1m0s ago (as agreed), running`},
		{review.Approval{State: task.Completed, Decisions: review.Decisions{Approvals: approved}}, `approved by bob\u001b 1m0s ago (as agreed), completed`},
		{review.Approval{State: task.Completed}, "completed"},
		{review.Approval{State: task.Completed, NoApprovalNeeded: true}, "no approval needed, completed"},
		{review.Approval{State: task.Rejected, Decisions: review.Decisions{Rejection: &by}}, `rejected by bob\u001b 1m0s ago (as agreed)`},
		{
			review.Approval{State: task.Expired, Failure: &task.Failure{Reason: "nobody came", Ran: task.RanNo}},
			"expired: nobody came; it did not run",
		},
		{
			review.Approval{State: task.Failed, Decisions: review.Decisions{Approvals: approved}, Failure: &task.Failure{Stage: lifecycle.StageExecutorLost, Ran: task.RanUnknown}},
			"failed: executor_lost; outcome unknown: it may have run",
		},
		{
			review.Approval{State: task.Failed, Decisions: review.Decisions{Approvals: approved}, Failure: &task.Failure{Stage: lifecycle.StageUpstreamError, Ran: task.RanYes}},
			"failed: upstream_error; it ran",
		},
	}
	for _, tt := range tests {
		if got := stateText(tt.a, now); got != tt.want {
			t.Errorf("stateText = %s; want %s", got, tt.want)
		}
	}
}

// The screen marks truncated arguments. A list shows their beginning on one line, and an
// approver sees all of them.
func TestArguments(t *testing.T) {
	long := jsontext.Value(`{"text":"` + strings.Repeat("x", 100_000) + `"}`)
	cut := jsontext.Value(`"{\"text\":\"\u001b…"`)
	tests := []struct {
		name       string
		a          review.Approval
		line, full string
	}{
		{"none", review.Approval{Tool: "t"}, "t", "none"},
		{"short", review.Approval{Tool: "t", Arguments: jsontext.Value(`{"a":[1]}`)}, `t {"a":[1]}`, "{\n  \"a\": [\n    1\n  ]\n}"},
		{
			"cut off",
			review.Approval{Tool: "t", Arguments: cut, ArgumentsTruncated: true},
			`t {"text":"\u001b…`, `{"text":"\u001b…` + "\n(truncated)",
		},
		{"invalid JSON", review.Approval{Tool: "t", Arguments: jsontext.Value(`{`)}, "t {", "unreadable"},
		{"empty truncated arguments", review.Approval{Tool: "t", Arguments: jsontext.Value(`{}`), ArgumentsTruncated: true}, "t unreadable", "unreadable\n(truncated)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.line, callText(tt.a)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.full, argumentText(tt.a)); diff != "" {
				t.Error(diff)
			}
		})
	}
	endless := review.Approval{Arguments: long}
	if n := len(callText(endless)); n > maxCell+len("…") {
		t.Errorf("a line of %d", n)
	}
	if text := argumentText(endless); strings.Count(text, "x") < 100_000 {
		t.Errorf("%d bytes of %d are shown", len(text), len(long))
	}
}

// A name that differs from another one only in spaces is marked, and a warning explains the
// mark.
func TestNameWithSpaces(t *testing.T) {
	a := review.Approval{ID: "tg_aaaaaaaa-1", Tool: `delete_file\u0020`, Principal: `ops-bot\u0020`, State: task.InputRequired}
	var list strings.Builder
	if err := (&screen{w: &list}).table([]review.Approval{a}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	shown := (&screen{}).details(a, time.Time{})
	for _, want := range []string{`delete_file\u0020 (!)`, `ops-bot\u0020 (!)`, `tool delete_file\u0020: Spaces at an end, or several in a row`} {
		if !strings.Contains(list.String(), want) || !strings.Contains(shown, want) {
			t.Errorf("no %s in\n%s\n%s", want, &list, shown)
		}
	}
}

// A name with letters that look like others is marked wherever it is shown, as in the inbox,
// and a warning names the letters.
func TestLookalikeNamesAreMarked(t *testing.T) {
	now := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	a := review.Approval{
		ID: "tg_aaaaaaaa-1", Tool: "d\u0435lete", Principal: "\u03bfps", State: task.InputRequired, ExpiresAt: now,
		Arguments: jsontext.Value(`{"p\u0430th":"\u0430 value may have any letters","deep":[{"id\u00a0":1,"id":"\u0456d"}]}`),
	}
	plainOne := review.Approval{ID: "tg_bbbbbbbb-1", Tool: "delete", Principal: "ops", State: task.InputRequired, ExpiresAt: now, Arguments: jsontext.Value(`{"path":"x"}`)}
	tool := "tool d\u0435lete: Not plain Latin letters: \u0435 is U+0435 Cyrillic"
	requester := "requester \u03bfps: Not plain Latin letters: \u03bf is U+03BF Greek"
	argument := "argument p\u0430th: Not plain Latin letters: \u0430 is U+0430 Cyrillic"
	var list, event strings.Builder
	if err := (&screen{w: &list}).table([]review.Approval{a, plainOne}, now); err != nil {
		t.Fatal(err)
	}
	shown := (&screen{}).details(a, now)
	if err := (&screen{w: &event}).event(client.Event{Kind: client.Pending, Approval: a}, now); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"list": list.String(), "show": shown, "watch": event.String()} {
		if !strings.Contains(text, "d\u0435lete (!)") || !strings.Contains(text, "\u03bfps (!)") {
			t.Errorf("%s does not mark the names:\n%s", what, text)
		}
	}
	value := "value \u0456d: Characters that look like others: \u0456 is U+0456 Cyrillic"
	for _, warning := range []string{tool, requester, argument, value} {
		if !strings.Contains(list.String(), "(!) tg_aaaaaaaa "+warning) || !strings.Contains(shown, warning) {
			t.Errorf("no warning %q in\n%s\n%s", warning, &list, shown)
		}
	}
	if strings.Contains(list.String(), "(!) tg_bbbbbbbb") || strings.Count(shown, "Not plain") != 3 {
		t.Errorf("an unexpected warning in\n%s\n%s", &list, shown)
	}
}

// If a call does not fit on the screen, its cautions are repeated before the question, and its
// summary comes last.
func TestQuestionRepeatsTheCautions(t *testing.T) {
	a := spoof(100, "  ")
	a.Tool, a.Principal = `drop_database\u0020`, `evil-bot\u0020`
	around := review.Context{Objection: "you have already approved this call", ToolChange: &review.ToolChange{Unknown: true}}
	var out strings.Builder
	on := &screen{w: &out, columns: 100, lines: 24}
	if err := (question{on, on}).show(a, around, toApprove(&grantFlags{}, "")); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(out.String(), "more than fit on the screen")
	for _, want := range []string{
		"\nobjection   you have already approved", "\ncaution     it is not known whether the tool has changed",
		"\nwarning     tool drop_database\\u0020: Spaces at an end", "(and 1 more)", "\ntool        drop_database", "\nrequester   evil-bot", "\nApprove this call?",
	} {
		_, rest, found := strings.Cut(text, want)
		if !found {
			t.Fatalf("%q is missing or out of order:\n%s", want, out.String())
		}
		text = "\n" + rest
	}
}

// spoof returns a call of drop_database with a value that looks like another call on a
// terminal of this width, if the terminal breaks the lines. filler is a character of two
// columns.
func spoof(columns int, filler string) review.Approval {
	var v strings.Builder
	v.WriteString(strings.Repeat("x", columns-len(`              "a": "`)))
	for range 20 {
		v.WriteString(strings.Repeat(filler, columns/2))
	}
	for _, line := range []string{
		"id          tg_5427d904", "state       pending", "tool        read_file (tools/call on upstream files)", "risk        only reads",
		"requester   ann", "age         3s", "left        9m57s", "call digest 1b2c", "shown       9a8b", "arguments   {",
	} {
		v.WriteString(line + strings.Repeat(" ", columns-len(line)))
	}
	text, _ := jsontext.AppendQuote([]byte(`{"a":`), v.String())
	return review.Approval{
		ID: "tg_real", State: task.InputRequired, Tool: "drop_database", Method: "tools/call", Upstream: "files", Principal: "evil-bot",
		Arguments: append(text, '}'), ExpiresAt: time.Now().Add(time.Minute),
	}
}

// On a terminal, a call takes two lines of the list: the reason is cut if all other columns fit.
func TestListCutsTheReason(t *testing.T) {
	calls := []review.Approval{{ID: "tg_1", State: task.InputRequired, Tool: "refund", Arguments: jsontext.Value(`{"a":1}`)}}
	calls[0].Workflow, calls[0].Reason = "finance", strings.Repeat("x ", 60)
	for columns, lines := range map[int]int{120: 3, 85: 3, 60: 8} {
		var out strings.Builder
		if err := (&screen{w: &out, columns: columns, lines: 24}).table(calls, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), "\n"); got != lines || !strings.Contains(out.String(), "pending") {
			t.Errorf("%d columns: %d lines; want %d:\n%s", columns, got, lines, out.String())
		}
	}
}

// A question on a terminal names the call unmistakably: only labels begin at the left margin,
// and the summary is on the screen together with the question.
func TestQuestionNamesTheCall(t *testing.T) {
	for _, columns := range []int{20, 40, 80, 81, 200} {
		for _, filler := range []string{"  ", "\u6f22", "\U0001F44D", "\u0301\u0301", "\U0001F3FD"} {
			var out strings.Builder
			on := &screen{w: &out, columns: columns, lines: 24}
			if err := (question{on, on}).show(spoof(max(columns, 60), filler), review.Context{}, consent{func(review.Context) string { return "This also allows more.\n" }, "Approve this call? Type yes to approve: ", ""}); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(out.String(), "\n")
			for _, line := range lines[:len(lines)-1] { // the last one is the question
				if w := max(ansi.StringWidth(line), ansi.StringWidthWc(line)); w > columns {
					t.Fatalf("a line of %d columns on a terminal of %d: %q", w, columns, line)
				}
				if strings.HasPrefix(line, "tool ") && !strings.Contains(line, "drop_dat") {
					t.Errorf("part of a value begins at the left margin: %q", line)
				}
			}
			last := strings.Join(lines[len(lines)-min(24, len(lines)):], "\n")
			for _, want := range []string{"tg_real", "drop_dat", "unknown", "evil-bot", "allows more", "Type yes"} {
				if columns > 20 && !strings.Contains(last, want) {
					t.Errorf("%d columns: the last lines do not have %q:\n%s", columns, want, last)
				}
			}
		}
	}
}

// A call that fits on the screen is shown once, and programs get unbroken lines.
func TestQuestionIsPrintedOnce(t *testing.T) {
	a := spoof(80, "  ")
	var call, rest strings.Builder
	if err := (question{&screen{w: &call}, &screen{w: &rest}}).show(a, review.Context{}, toApprove(&grantFlags{}, "")); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(call.String(), "↪") || strings.Count(call.String(), "\ntool ") != 1 || rest.String() != "Approve this call? Type yes to approve: " {
		t.Errorf("%s\n%s", &call, &rest)
	}
	a.Arguments = nil
	var out strings.Builder
	on := &screen{w: &out, columns: 80, lines: 24}
	if err := (question{on, on}).show(a, review.Context{}, toApprove(&grantFlags{}, "")); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\ntool ") != 1 {
		t.Errorf("a short call is not shown once:\n%s", &out)
	}
}

// Tables break the lines of foreign text, too: continuation lines are indented.
func TestTablesAreBrokenIntoLines(t *testing.T) {
	now := time.Now()
	fake := strings.Repeat("x", 60) + strings.Repeat("tg_5427d904   read_file   only reads   ann   ", 4)
	a := review.Approval{ID: "tg_aaaaaaaa-1", Tool: "drop", State: task.InputRequired, Explanation: review.Explanation{Reason: fake}, Principal: fake}
	entry := auditlog.Entry{Note: task.Note{Reason: fake}}
	grant := review.Grant{ID: "gr_1", By: []string{fake}}
	entry.Tool, grant.Tool, grant.Principal = fake, fake, fake
	for columns := 10; columns < 300; columns++ {
		var out strings.Builder
		s := &screen{w: &out, columns: columns, lines: 24}
		if err := errors.Join(s.table([]review.Approval{a}, now), s.steps([]auditlog.Entry{entry}), s.grantTable([]review.Grant{grant}, now),
			s.grant(grant, now), s.event(client.Event{Kind: client.Pending, Approval: a}, now)); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := ansi.StringWidth(strings.TrimSuffix(line, "\n")); n > columns || strings.HasPrefix(line, "tg_5427d904") {
				t.Fatalf("%d columns on a terminal of %d: %q", n, columns, line)
			}
		}
	}
}
