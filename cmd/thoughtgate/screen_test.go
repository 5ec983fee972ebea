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
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

func TestSpan(t *testing.T) {
	tests := map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59*time.Second + 999*time.Millisecond: "59s", 90 * time.Second: "1m30s",
		15 * time.Minute: "15m", 90 * time.Minute: "1h30m", 50 * time.Hour: "2d",
	}
	for d, want := range tests {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %s; want %s", d, got, want)
		}
	}
}

// Foreign text can neither leave its place in a table nor make it endless.
func TestTable(t *testing.T) {
	now := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	a := casefile.Approval{
		ID: "tg_aaaaaaaa-1", Tool: "x\ny\tz", Principal: strings.Repeat("long", 100), State: task.InputRequired,
		Background: casefile.Background{Workflow: "w", Reason: "because"},
		CreatedAt:  now.Add(-time.Minute), ExpiresAt: now.Add(time.Minute),
	}
	b := a
	b.ID, b.State, b.Principal = "tg_aaaaaaaa-2", task.Expired, "ann"
	a.Agent = &casefile.Agent{Presence: task.OwnerGone, LastContact: now.Add(-12 * time.Minute)}
	var out strings.Builder
	if err := (&screen{w: &out}).table([]casefile.Approval{a, b}, now); err != nil {
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
		t.Errorf("nothing says that the agent is gone: %s", lines[1])
	}
	if n := strings.Count(lines[1], "long"); n != maxCell/4 {
		t.Errorf("the requester is shown %d times long", n)
	}
}

func TestFate(t *testing.T) {
	now := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	by := task.Decision{By: "bob\x1b", At: now.Add(-time.Minute), Reason: "as agreed"}
	approved := []task.Decision{by}
	tests := []struct {
		a    casefile.Approval
		want string
	}{
		{casefile.Approval{State: task.Approved, Decisions: casefile.Decisions{Approvals: approved}}, `approved by bob\u001b 1m0s ago (as agreed)`},
		{casefile.Approval{State: task.Executing, Decisions: casefile.Decisions{Approvals: approved}}, `approved by bob\u001b 1m0s ago (as agreed), running`},
		{casefile.Approval{State: task.Completed, Decisions: casefile.Decisions{Approvals: approved}}, `approved by bob\u001b 1m0s ago (as agreed), completed`},
		{casefile.Approval{State: task.Completed}, "completed"},
		{casefile.Approval{State: task.Completed, NoApprovalNeeded: true}, "no approval needed, completed"},
		{casefile.Approval{State: task.Rejected, Decisions: casefile.Decisions{Rejection: &by}}, `rejected by bob\u001b 1m0s ago (as agreed)`},
		{
			casefile.Approval{State: task.Expired, Failure: &task.Failure{Reason: "nobody came", Ran: task.RanNo}},
			"expired: nobody came; it did not run",
		},
		{
			casefile.Approval{State: task.Failed, Decisions: casefile.Decisions{Approvals: approved}, Failure: &task.Failure{Stage: task.StageExecutorLost, Ran: task.RanUnknown}},
			"failed: executor_lost; outcome unknown: it may have run",
		},
		{
			casefile.Approval{State: task.Failed, Decisions: casefile.Decisions{Approvals: approved}, Failure: &task.Failure{Stage: task.StageUpstreamError, Ran: task.RanYes}},
			"failed: upstream_error; it ran",
		},
	}
	for _, tt := range tests {
		if got := fate(tt.a, now); got != tt.want {
			t.Errorf("fate = %s; want %s", got, tt.want)
		}
	}
}

// The screen says of arguments that were cut off that there is more. A list
// shows their beginning on one line; an approver is shown all of them.
func TestArguments(t *testing.T) {
	long := jsontext.Value(`{"text":"` + strings.Repeat("x", 100_000) + `"}`)
	cut := jsontext.Value(`"{\"text\":\"\u001b…"`)
	tests := []struct {
		name       string
		a          casefile.Approval
		line, full string
	}{
		{"none", casefile.Approval{Tool: "t"}, "t", "none"},
		{"short", casefile.Approval{Tool: "t", Arguments: jsontext.Value(`{"a":[1]}`)}, `t {"a":[1]}`, "{\n  \"a\": [\n    1\n  ]\n}"},
		{
			"cut off",
			casefile.Approval{Tool: "t", Arguments: cut, ArgumentsTruncated: true},
			`t {"text":"\u001b…`, `{"text":"\u001b…` + "\n(truncated)",
		},
		{"no JSON", casefile.Approval{Tool: "t", Arguments: jsontext.Value(`{`)}, "t {", "unreadable"},
		{"no text", casefile.Approval{Tool: "t", Arguments: jsontext.Value(`{}`), ArgumentsTruncated: true}, "t unreadable", "unreadable\n(truncated)"},
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
	endless := casefile.Approval{Arguments: long}
	if n := len(callText(endless)); n > maxCell+len("…") {
		t.Errorf("a line of %d", n)
	}
	if text := argumentText(endless); strings.Count(text, "x") < 100_000 {
		t.Errorf("%d bytes of %d are shown", len(text), len(long))
	}
}

// A name that differs from another in spaces alone is marked, and a warning says why.
func TestNameWithSpaces(t *testing.T) {
	a := casefile.Approval{ID: "tg_aaaaaaaa-1", Tool: `delete_file\u0020`, Principal: `ops-bot\u0020`, State: task.InputRequired}
	var list strings.Builder
	if err := (&screen{w: &list}).table([]casefile.Approval{a}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	shown := (&screen{}).record(a, time.Time{})
	for _, want := range []string{`delete_file\u0020 (!)`, `ops-bot\u0020 (!)`, `tool delete_file\u0020: Spaces at an end, or several in a row`} {
		if !strings.Contains(list.String(), want) || !strings.Contains(shown, want) {
			t.Errorf("no %s in\n%s\n%s", want, &list, shown)
		}
	}
}

// A name with letters that look like others is marked wherever it is shown, as
// the inbox marks it, and the letters are named.
func TestAlike(t *testing.T) {
	now := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	a := casefile.Approval{
		ID: "tg_aaaaaaaa-1", Tool: "d\u0435lete", Principal: "\u03bfps", State: task.InputRequired, ExpiresAt: now,
		Arguments: jsontext.Value(`{"p\u0430th":"\u0430 value may have any letters","deep":[{"id\u00a0":1,"id":"\u0456d"}]}`),
	}
	plainOne := casefile.Approval{ID: "tg_bbbbbbbb-1", Tool: "delete", Principal: "ops", State: task.InputRequired, ExpiresAt: now, Arguments: jsontext.Value(`{"path":"x"}`)}
	tool := "tool d\u0435lete: Not plain Latin letters: \u0435 is U+0435 Cyrillic"
	requester := "requester \u03bfps: Not plain Latin letters: \u03bf is U+03BF Greek"
	argument := "argument p\u0430th: Not plain Latin letters: \u0430 is U+0430 Cyrillic"
	var list, event strings.Builder
	if err := (&screen{w: &list}).table([]casefile.Approval{a, plainOne}, now); err != nil {
		t.Fatal(err)
	}
	shown := (&screen{}).record(a, now)
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
		t.Errorf("a warning too many in\n%s\n%s", &list, shown)
	}
}

// If a call does not fit the screen, what an approver should know of it is told again
// before the question, and what the call is comes last.
func TestQuestionRepeatsTheCautions(t *testing.T) {
	a := spoof(100, "  ")
	a.Tool, a.Principal = `drop_database\u0020`, `evil-bot\u0020`
	around := casefile.Context{Objection: "you have already approved this call", Changed: &casefile.Precedent{Unknown: true}}
	var out strings.Builder
	on := &screen{w: &out, columns: 100, lines: 24}
	if err := (question{on, on}).show(a, around, ""); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(out.String(), "more than fit on the screen")
	for _, want := range []string{
		"\nobjection   you have already approved", "\ncaution     it is not known whether the tool has changed",
		"\nwarning     tool drop_database\\u0020: Spaces at an end", "(and 1 more)", "\ntool        drop_database", "\nrequester   evil-bot", "\nApprove this call?",
	} {
		_, rest, found := strings.Cut(text, want)
		if !found {
			t.Fatalf("no %q, or not in this place:\n%s", want, out.String())
		}
		text = "\n" + rest
	}
}

// spoof returns a call of drop_database with a value that a terminal with so many
// columns shows as another call, if it is left to break the lines. filler is a
// character of two columns.
func spoof(columns int, filler string) casefile.Approval {
	var v strings.Builder
	v.WriteString(strings.Repeat("x", columns-len(`              "a": "`)))
	for range 20 {
		v.WriteString(strings.Repeat(filler, columns/2))
	}
	for _, line := range []string{
		"id          tg_5427d904", "state       pending", "tool        read_file (tools/call on upstream files)", "risk        only reads",
		"requester   ann", "age         3s", "left        9m57s", "digest      1b2c", "shown       9a8b", "arguments   {",
	} {
		v.WriteString(line + strings.Repeat(" ", columns-len(line)))
	}
	text, _ := jsontext.AppendQuote([]byte(`{"a":`), v.String())
	return casefile.Approval{
		ID: "tg_real", State: task.InputRequired, Tool: "drop_database", Method: "tools/call", Upstream: "files", Principal: "evil-bot",
		Arguments: append(text, '}'), ExpiresAt: time.Now().Add(time.Minute),
	}
}

// Whoever is asked on a terminal reads what the call is: no line of a value begins at
// the left, and what matters is on the screen together with the question.
func TestQuestionTellsTheCall(t *testing.T) {
	for _, columns := range []int{20, 40, 80, 81, 200} {
		for _, filler := range []string{"  ", "\u6f22", "\U0001F44D", "\u0301\u0301", "\U0001F3FD"} {
			var out strings.Builder
			on := &screen{w: &out, columns: columns, lines: 24}
			if err := (question{on, on}).show(spoof(max(columns, 60), filler), casefile.Context{}, "This also allows more.\n"); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(out.String(), "\n")
			for _, line := range lines[:len(lines)-1] { // the last one is the question
				if w := max(ansi.StringWidth(line), ansi.StringWidthWc(line)); w > columns {
					t.Fatalf("a line of %d columns on a terminal of %d: %q", w, columns, line)
				}
				if strings.HasPrefix(line, "tool ") && !strings.Contains(line, "drop_dat") {
					t.Errorf("a part of a value begins at the left: %q", line)
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

// A call that fits the screen is shown once, and programs get every line whole.
func TestQuestionOnce(t *testing.T) {
	a := spoof(80, "  ")
	var call, rest strings.Builder
	if err := (question{&screen{w: &call}, &screen{w: &rest}}).show(a, casefile.Context{}, ""); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(call.String(), "↪") || strings.Count(call.String(), "\ntool ") != 1 || rest.String() != "Approve this call? Type yes to approve: " {
		t.Errorf("%s\n%s", &call, &rest)
	}
	a.Arguments = nil
	var out strings.Builder
	on := &screen{w: &out, columns: 80, lines: 24}
	if err := (question{on, on}).show(a, casefile.Context{}, ""); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\ntool ") != 1 {
		t.Errorf("a short call is not shown once:\n%s", &out)
	}
}

// Tables are of foreign text as well: the end of one line does not begin another.
func TestTablesBreak(t *testing.T) {
	now := time.Now()
	fake := strings.Repeat("x", 60) + strings.Repeat("tg_5427d904   read_file   only reads   ann   ", 4)
	a := casefile.Approval{ID: "tg_aaaaaaaa-1", Tool: "drop", State: task.InputRequired, Background: casefile.Background{Reason: fake}, Principal: fake}
	entry := task.Entry{Note: task.Note{Reason: fake}}
	grant := casefile.Grant{ID: "gr_1", By: []string{fake}}
	entry.Tool, grant.Tool, grant.Principal = fake, fake, fake
	for columns := 10; columns < 300; columns++ {
		var out strings.Builder
		s := &screen{w: &out, columns: columns, lines: 24}
		if err := errors.Join(s.table([]casefile.Approval{a}, now), s.steps([]task.Entry{entry}), s.grantTable([]casefile.Grant{grant}, now),
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
