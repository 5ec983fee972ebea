package approval_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

func TestShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		yes := true
		c := call("session 1", "/a")
		c.Message = message("delete_file", `{"path":"/a","password":"hunter2"}`)
		c.Principal = policy.Principal{ID: "ann"}
		c.Verdict.Label, c.Verdict.Match, c.Verdict.Says = "rules[1]", "delete_*", []string{"deleted \u202eis deleted"}
		c.Tool = approval.Tool{
			Description: "Deletes a file.\x1b[2J", Digest: "d1",
			Annotations: policy.Annotations{Destructive: &yes, Title: "Delete"},
		}
		c.Variables = task.Variables{review.ClientReason: []byte(`"trust me\u202e"`)}
		held := o.hold(t, c)
		got, err := o.views.Show(t.Context(), held.ID)
		if err != nil {
			t.Fatal(err)
		}
		want := review.Approval{
			ID: held.ID, State: task.InputRequired, Tool: "delete_file", Method: "tools/call", Upstream: "files",
			Arguments: jsontext.Value(`{"path":"/a","password":"[redacted]"}`),
			Principal: "ann",
			Explanation: review.Explanation{
				Workflow: "ops", Reason: "rules[1] delete_*", Description: "Deletes a file.[2J",
				HeldBy:       &review.HeldBy{Label: "rules[1]", Match: "delete_*", Reasons: []string{"deleted is deleted"}},
				Hints:        &review.Hints{Title: "Delete", Destructive: &yes},
				ClientReason: &review.Untrusted{Text: "trust me", Untrusted: true},
			},
			Cautions:  review.Cautions{Risk: review.RiskDestroys},
			Digests:   review.Digests{Digest: held.Digest, ToolDigest: "d1", Policy: "s1"},
			CreatedAt: held.CreatedAt, ExpiresAt: held.CreatedAt.Add(15 * time.Minute), Decisions: review.Decisions{Quorum: 1},
			Agent: &review.Agent{Presence: gatetask.OwnerWaits, LastContact: held.CreatedAt, Text: "Agent is waiting"},
			Name:  "delete_file",
		}
		if len(got.ShownDigest) != 64 {
			t.Errorf("shownDigest = %q", got.ShownDigest)
		}
		want.ShownDigest = got.ShownDigest
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		o.approve(t, held.ID)
		got, err = o.views.Show(t.Context(), held.ID)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Approvals) != 1 || got.Approvals[0].By != "alice" || !got.ExpiresAt.Equal(held.ExpiresAt) {
			t.Errorf("after approval: %+v", got)
		}
		_, err = o.views.Show(t.Context(), task.NewID(time.Now()))
		mustBe(t, err, task.ErrNotFound)
	})
}

func TestShownArguments(t *testing.T) {
	tests := map[string]struct {
		redact     []string
		args, want string
	}{
		"nothing":         {nil, `{"a":1.0,"b":[1e3]}`, `{"a":1.0,"b":[1e3]}`},
		"a member":        {[]string{"arguments.a"}, `{"a":{"b":1},"c":2}`, `{"a":"[redacted]","c":2}`},
		"an inner member": {[]string{"arguments.a.b"}, `{"a":{"b":1,"c":2},"b":3}`, `{"a":{"b":"[redacted]","c":2},"b":3}`},
		"in an array":     {[]string{"arguments.a.b"}, `{"a":[{"b":1},[{"b":2}],3]}`, `{"a":[{"b":"[redacted]"},[{"b":"[redacted]"}],3]}`},
		"any member":      {[]string{"arguments.*.b"}, `{"x":{"b":1},"y":{"b":2,"c":3}}`, `{"x":{"b":"[redacted]"},"y":{"b":"[redacted]","c":3}}`},
		"everything":      {[]string{"arguments"}, `{"a":1}`, `"[redacted]"`},
		"without prefix":  {[]string{"a"}, `{"a":1}`, `{"a":"[redacted]"}`},
		"an escaped name": {[]string{"arguments.pass"}, `{"p\u0061ss":1}`, `{"pass":"[redacted]"}`},
		"another case":    {[]string{"arguments.pass"}, `{"Pass":1,"passing":2}`, `{"Pass":"[redacted]","passing":2}`},
		"JSON in a string": {
			[]string{"arguments.user.pass"},
			`{"user":" {\"pass\":1}","other":"{\"pass\":1}"}`,
			`{"user":"[redacted]","other":"{\"pass\":1}"}`,
		},
		"JSON in JSON in a string": {[]string{"arguments.a.b"}, `{"a":["\"{}\"","[1]","plain {}"]}`, `{"a":["[redacted]","[redacted]","plain {}"]}`},
		"arguments in a string":    {[]string{"arguments.pass"}, `"{\"pass\":1}"`, `"[redacted]"`},
		"secrets": {
			[]string{"secrets"},
			`{"cmd":"A=AKIAABCDEFGHIJKLMNOP run","in":[{"x":{"password":"hunter2"}}],"json":"{\"n\":1}","token":"none"}`,
			`{"cmd":"A=[redacted] run","in":[{"x":{"password":"[redacted]"}}],"json":"{\"n\":1}","token":"none"}`,
		},
		"secrets, and a member": {
			[]string{"secrets", "arguments.a.b"},
			`{"a":{"b":1,"c":"AKIAABCDEFGHIJKLMNOP"},"d":"{\"password\": \"0a1b2c3d4e5f6a7b\"}"}`,
			`{"a":{"b":"[redacted]","c":"[redacted]"},"d":"{\"password\": \"[redacted]\"}"}`,
		},
		"hidden text": {nil, "{\"a\":\"x\u202ey\u200b\U000E0041\x7f\"}", `{"a":"x\u202ey\u200b\udb40\udc41\u007f"}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := open(t, nil)
			o.setWorkflow("ops", approval.Workflow{Redact: tt.redact})
			c := call("ann", "")
			c.Message = message("t", tt.args)
			got, err := o.views.Show(t.Context(), o.hold(t, c).ID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got.Arguments)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Long arguments are truncated and marked as such. Redaction happens before truncation.
func TestShownArgumentsTooLong(t *testing.T) {
	o := open(t, nil)
	c := call("ann", "")
	c.Message = message("t", fmt.Sprintf(`{"password":"hunter2","text":%q}`, strings.Repeat("ü", 100<<10)))
	held := o.hold(t, c)
	shown, err := o.views.Show(t.Context(), held.ID)
	if err != nil {
		t.Fatal(err)
	}
	page, err := o.views.Pending(t.Context(), review.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for most, a := range map[int]review.Approval{64 << 10: shown, 4 << 10: page.Approvals[0]} {
		var text string
		if err := json.Unmarshal(a.Arguments, &text); err != nil {
			t.Fatal(err)
		}
		if !a.ArgumentsTruncated || len(text) > most+len("…") || len(text) < most-4 || strings.Contains(text, "hunter2") {
			t.Errorf("%d bytes of %d, truncated %t, beginning with %.60s", len(text), most, a.ArgumentsTruncated, text)
		}
	}
}

// If the workflow is unknown, so are its redactions, and nothing is shown.
func TestShowWithoutWorkflow(t *testing.T) {
	o := open(t, nil)
	held := o.hold(t, call("ann", "/a"))
	o.mu.Lock()
	delete(o.workflows, "ops")
	o.mu.Unlock()
	got, err := o.views.Show(t.Context(), held.ID)
	if err != nil || string(got.Arguments) != `"[redacted]"` {
		t.Errorf("arguments = %s, %v", got.Arguments, err)
	}
}

// A watch reports pending calls, changes of their approvals and of their agents, and their ends.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		c := call("ann", "/a")
		c.Verdict.Workflow = "two"
		first := o.hold(t, c)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		type event struct {
			ID        task.ID
			State     task.State
			Approvals int
			Agent     gatetask.Presence
		}
		events, ended := make(chan event, 10), make(chan error, 1)
		go func() {
			for a, err := range o.views.Watch(ctx) {
				if err != nil {
					ended <- err
					return
				}
				one := event{ID: a.ID, State: a.State, Approvals: len(a.Approvals)}
				if a.Agent != nil {
					one.Agent = a.Agent.Presence
				}
				events <- one
			}
			ended <- nil
		}()
		expect := func(want event) {
			t.Helper()
			if diff := cmp.Diff(want, <-events); diff != "" {
				t.Fatal(diff)
			}
		}
		expect(event{first.ID, task.InputRequired, 0, gatetask.OwnerWaits})
		o.Contact(t.Context(), mine(first), nil)
		o.decide(t.Context(), first.ID, alice, approval.Approve, "")
		expect(event{first.ID, task.InputRequired, 1, gatetask.OwnerWaits})
		o.decide(t.Context(), first.ID, bob, approval.Approve, "")
		expect(event{first.ID, task.Approved, 2, gatetask.OwnerWaits})
		second := o.hold(t, call("ann", "/b"))
		expect(event{second.ID, task.InputRequired, 0, gatetask.OwnerWaits})
		pass(2 * time.Minute) // the agent does not poll
		expect(event{second.ID, task.InputRequired, 0, gatetask.OwnerGone})
		pass(14 * time.Minute) // no housekeeping runs here, so the watch itself must not report a decision
		if len(events) != 0 {
			t.Errorf("unexpected event %v", <-events)
		}
		o.decide(t.Context(), second.ID, alice, approval.Reject, "")
		o.Get(t.Context(), mine(second))
		expect(event{second.ID, task.Expired, 0, ""})
		if err := o.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustBe(t, <-ended, task.ErrClosed)
	})
}

// A watch ends without an error when its context ends.
func TestWatchStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.hold(t, call("ann", "/a"))
		for range o.views.Watch(t.Context()) {
			break
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		n := 0
		for _, err := range o.views.Watch(ctx) {
			if err != nil {
				t.Error(err)
			}
			n++
			stop()
		}
		if n != 1 {
			t.Errorf("%d reported calls; want 1", n)
		}
	})
}

// Names that look alike are shown differently, and the end of a long name is visible to
// approvers.
func TestLookalikeNamesAreShownDifferently(t *testing.T) {
	o := open(t, nil)
	long := "file:///" + strings.Repeat("a", 1000) + "/secret"
	for uri, want := range map[string]string{
		"file:///a\u200b\nb": `file:///a\u200b\u000ab`,
		long:                 long,
	} {
		text, err := json.Marshal(uri)
		if err != nil {
			t.Fatal(err)
		}
		c := call("ann", "")
		c.Message = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":%s}}`, text)
		if got := o.views.View(o.hold(t, c)).Tool; got != want {
			t.Errorf("shown as %q; want %q", got, want)
		}
	}
}
