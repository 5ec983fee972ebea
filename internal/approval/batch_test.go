package approval_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// A used is a tool call in a batch.
type used struct {
	name string
	tool approval.Tool
}

// batchOf returns a batch by ann that calls tools and then pings. Batches with different n
// differ.
func batchOf(n int, tools ...used) approval.Call {
	c := call("ann", "")
	var messages []string
	for i, u := range tools {
		messages = append(messages, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"n":%d}}}`, i, u.name, n))
		c.InBatch = append(c.InBatch, u.tool)
	}
	messages = append(messages, `{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
	c.InBatch = append(c.InBatch, approval.Tool{})
	c.Message = []byte("[" + strings.Join(messages, ",") + "]")
	return c
}

// A space at the end of a tool's name is visible in a batch, as in a single call. The caution
// about the tool shows it too.
func TestBatchShowsSpacesInNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		tools := func(digest string) []used {
			return []used{{"delete_file ", approval.Tool{Digest: digest}}, {"note", approval.Tool{Digest: "v2-n"}}}
		}
		o.approve(t, o.hold(t, batchOf(1, tools("v2-a")...)).ID)
		pass(time.Second)
		held := o.hold(t, batchOf(2, tools("v2-b")...))
		shown, err := o.Viewer().Show(t.Context(), held.ID)
		if err != nil {
			t.Fatal(err)
		}
		if want := `delete_file\u0020, note`; shown.Tool != want || !strings.Contains(fmt.Sprint(shown.Warnings), "Spaces at an end") {
			t.Errorf("tools %q, warnings %q; want %q and a warning about spaces", shown.Tool, shown.Warnings, want)
		}
		if got := o.changed(t, held.ID).Text(); !strings.Contains(got, `the tool delete_file\u0020 has changed`) {
			t.Errorf("caution: %s", got)
		}
	})
}

// A changed tool is noticed in a batch as in a single call, whether a batch or a single call
// was approved before.
func TestBatchChanged(t *testing.T) {
	one := func(name, digest string) used { return used{name, approval.Tool{Digest: digest}} }
	single := defined("/a", "v2-aa")
	for name, tt := range map[string]struct {
		before, now approval.Call
		want        []string // the tools of a batch that have changed
		caution     string
	}{
		"unchanged":             {before: single, now: batchOf(1, one("delete_file", "v2-aa"))},
		"another tool":          {before: single, now: batchOf(1, one("note", "v2-bb"))},
		"unknown definition":    {before: single, now: batchOf(1, one("delete_file", ""))},
		"a call, then a batch":  {single, batchOf(1, one("note", "v2-n"), one("delete_file", "v2-bb")), []string{"delete_file"}, "the tool delete_file has changed"},
		"called twice":          {single, batchOf(1, one("delete_file", "v2-bb"), one("delete_file", "v2-bb")), []string{"delete_file"}, "the tool delete_file has changed"},
		"a batch, then a call":  {batchOf(1, one("note", "v2-n"), one("delete_file", "v2-bb")), single, nil, "the tool has changed since"},
		"a batch, then another": {batchOf(1, one("note", "v2-n"), one("delete_file", "v2-a")), batchOf(2, one("delete_file", "v2-b"), one("note", "v2-m")), []string{"delete_file", "note"}, "delete_file and 1 more have changed"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kept := range []string{"as records", "as tasks"} {
				synctest.Test(t, func(t *testing.T) {
					o := open(t, nil)
					first := o.hold(t, tt.before)
					o.approve(t, first.ID)
					if kept == "as tasks" { // an earlier version wrote no records
						for _, r := range o.records(t) {
							if err := o.store.DeleteRecord(t.Context(), r.Name); err != nil {
								t.Fatal(err)
							}
						}
					}
					pass(time.Second)
					var want *review.ToolChange
					if tt.caution != "" {
						want = &review.ToolChange{ID: first.ID, At: first.CreatedAt, Tools: tt.want}
					}
					got := o.changed(t, o.hold(t, tt.now).ID)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s:\n%s", kept, diff)
					}
					if got != nil && !strings.Contains(got.Text(), tt.caution) {
						t.Errorf("caution: %s", got.Text())
					}
				})
			}
		})
	}
}

// An approver sees the upstream's description of each tool in a batch once.
func TestBatchShowsToolDescriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		wipe, silent := used{"wipe", approval.Tool{Description: "Wipes the disk."}}, used{"note", approval.Tool{}}
		for i, tt := range []struct {
			tools []used
			want  string
		}{
			{[]used{silent}, ""},
			{[]used{wipe}, "wipe: Wipes the disk."},
			{[]used{silent, wipe, wipe}, "note: the server gives no description.\n\nwipe: Wipes the disk."},
		} {
			a, err := o.views.Show(t.Context(), o.hold(t, batchOf(i, tt.tools...)).ID)
			if err != nil || a.Description != tt.want {
				t.Errorf("description %q, %v; want %q", a.Description, err, tt.want)
			}
		}
	})
}

// The descriptions of many tools take no more space than those of a few, because every list
// reads them.
func TestBatchDescriptionsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		for n, tt := range []struct{ tools, each int }{{1, 2000}, {4, 2000}, {40, 200}} {
			var tools []used
			for i := range tt.tools {
				tools = append(tools, used{fmt.Sprint("tool", i), approval.Tool{Digest: "v2-a", Description: strings.Repeat("é", 3000)}})
			}
			held := o.hold(t, batchOf(n, append(tools, tools[0])...))
			a, err := o.views.Show(t.Context(), held.ID)
			if got := strings.Count(a.Description, "é"); err != nil || got > tt.tools*tt.each || got < tt.tools*(tt.each-1) {
				t.Errorf("%d tools: %d characters of descriptions, %v; want about %d of each", tt.tools, got, err, tt.each)
			}
			if got := len(held.Outline().Verdict.Facts); got > 32<<10 {
				t.Errorf("%d tools: facts of %d bytes", tt.tools, got)
			}
		}
		page, err := o.views.Pending(t.Context(), review.Filter{})
		if err != nil || len(page.Approvals) != 3 {
			t.Fatal(page, err)
		}
		for _, a := range page.Approvals {
			if got := utf8.RuneCountInString(a.Description); got == 0 || got > 4<<10 {
				t.Errorf("description of %d characters in a list", got)
			}
		}
	})
}

// The risk of a batch is that of its riskiest call. A call of unknown risk is riskier than one
// that changes data. Messages that policy does not judge, such as pings, do not count.
func TestBatchRisk(t *testing.T) {
	yes, no := true, false
	var (
		unknown  = used{"unknown", approval.Tool{}}
		outside  = used{"open", approval.Tool{Annotations: policy.Annotations{OpenWorld: &yes}}}
		reads    = used{"reads", approval.Tool{Annotations: policy.Annotations{ReadOnly: &yes}}}
		changes  = used{"changes", approval.Tool{Annotations: policy.Annotations{ReadOnly: &no, Destructive: &no}}}
		destroys = used{"destroys", approval.Tool{Annotations: policy.Annotations{Destructive: &yes}}}
	)
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		for i, tt := range []struct {
			tools []used
			want  review.Risk
		}{
			{[]used{reads, reads}, review.RiskReads},
			{[]used{changes, reads}, review.RiskChanges},
			{[]used{reads, changes}, review.RiskChanges},
			{[]used{unknown, changes}, review.RiskUnknown},
			{[]used{changes, unknown}, review.RiskUnknown},
			{[]used{reads, unknown}, review.RiskUnknown},
			{[]used{reads, outside}, review.RiskUnknown},
			{[]used{unknown, destroys, reads}, review.RiskDestroys},
			{[]used{changes, destroys}, review.RiskDestroys},
		} {
			held := o.hold(t, batchOf(i, tt.tools...))
			a, err := o.views.Show(t.Context(), held.ID)
			if err != nil || a.Risk != tt.want {
				t.Errorf("%d: risk %q, %v; want %q", i, a.Risk, err, tt.want)
			}
			if _, err := o.decide(t.Context(), held.ID, alice, approval.Reject, "no"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A workflow's redactions apply to the calls in a batch and to their results, as to a single
// call.
func TestBatchRedacted(t *testing.T) {
	const params = `{"name":"delete_file","arguments":{"name":"secret1","a":{"password":"secret2"}},` +
		`"_meta":{"name":"secret3","a":{"password":"secret4"}},"name2":"x","a":{"password":"secret5"}}`
	const result = `{"responses":[{"jsonrpc":"2.0","id":"a","result":{"token":"t1","n":1}},{"jsonrpc":"2.0","id":"b","error":{"code":1,"message":"m","token":"t2"}},null]}`
	for name, tt := range map[string]struct {
		redact         []string
		params, result string
	}{
		"nothing": {nil, params, result},
		"a path": {
			[]string{"arguments.a.password"},
			strings.NewReplacer("secret2", "[redacted]", "secret4", "[redacted]", "secret5", "[redacted]").Replace(params), result,
		},
		"a wildcard": {
			[]string{"arguments.*.password"},
			strings.NewReplacer("secret2", "[redacted]", "secret4", "[redacted]", "secret5", "[redacted]").Replace(params), result,
		},
		"the name of an argument": {
			[]string{"name"},
			strings.NewReplacer("secret1", "[redacted]", "secret3", "[redacted]").Replace(params), result,
		},
		"everything": {
			[]string{"arguments"},
			`{"name":"delete_file","arguments":"[redacted]","_meta":"[redacted]","name2":"[redacted]","a":"[redacted]"}`, `"[redacted]"`,
		},
		"all members": {
			[]string{"arguments.*"},
			`{"name":"delete_file","arguments":{"name":"[redacted]","a":"[redacted]"},"_meta":{"name":"[redacted]","a":"[redacted]"},"name2":"[redacted]","a":"[redacted]"}`, result,
		},
		"a part of results": {[]string{"result.token"}, params, strings.NewReplacer("t1", "[redacted]", "t2", "[redacted]").Replace(result)},
		"results":           {[]string{"result"}, params, `"[redacted]"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				o.setWorkflow("ops", approval.Workflow{Redact: tt.redact})
				c := batchOf(1)
				c.Message = fmt.Appendf(nil, `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}]`, params)
				held := o.hold(t, c)
				got, err := o.views.Details(t.Context(), held.ID, o.Objection(alice))
				want := `[{"method":"tools/call","params":` + tt.params + `}]`
				if err != nil || string(got.Arguments) != want || string(got.AllArguments) != want {
					t.Errorf("arguments %s\ncomplete %s; want\n%s\n%v", got.Arguments, got.AllArguments, want, err)
				}
				page, err := o.views.Pending(t.Context(), review.Filter{})
				if err != nil || len(page.Approvals) != 1 || string(page.Approvals[0].Arguments) != want {
					t.Errorf("list %+v, %v", page, err)
				}
				o.approve(t, held.ID)
				w := o.wait(t.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) { return answer(result), nil }))
				<-w.done
				synctest.Wait()
				a, err := o.views.Show(t.Context(), held.ID)
				if err != nil || a.Result == nil || string(a.Result.Value) != tt.result {
					t.Errorf("result %+v, %v; want %s", a.Result, err, tt.result)
				}
			})
		})
	}
}

// Approvers see the subject of each message in a batch. In a method that does not use it as its
// subject, a member of the same name is redacted, as in a single call.
func TestBatchRedactedByMethod(t *testing.T) {
	for _, tt := range []struct {
		method, params string
		shown          bool // whether the secret is what the message is about
	}{
		{"tools/call", `{"name":"delete_file","arguments":{},"uri":"secret"}`, false},
		{"resources/read", `{"uri":"file:///a","name":"secret"}`, false},
		{"resources/read", `{"uri":"secret"}`, true},
		{"resources/subscribe", `{"uri":"secret"}`, true},
		{"prompts/get", `{"name":"secret","arguments":{}}`, true},
		{"prompts/get", `{"name":"a","uri":"secret"}`, false},
		{"logging/setLevel", `{"name":"secret","uri":"secret"}`, false},
	} {
		for _, redact := range [][]string{{"uri", "name"}, {"arguments.uri", "arguments.name"}, {"arguments"}, {"arguments.*"}} {
			t.Run(fmt.Sprint(tt.method, tt.params, redact), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := open(t, nil)
					o.setWorkflow("ops", approval.Workflow{Redact: redact})
					c := batchOf(1)
					const other = `{"jsonrpc":"2.0","id":%d,"method":"%s","params":{"name":"n","uri":"u"}}`
					c.Message = fmt.Appendf(nil, `[`+other+`,{"jsonrpc":"2.0","id":3,"method":%q,"params":%s},`+other+`]`,
						1, "tools/call", tt.method, tt.params, 2, "resources/read")
					got, err := o.views.Details(t.Context(), o.hold(t, c).ID, o.Objection(alice))
					if err != nil || strings.Contains(string(got.AllArguments), "secret") != tt.shown {
						t.Errorf("complete arguments %s, %v", got.AllArguments, err)
					}
					for _, seen := range []string{`"params":{"name":"n","uri":"[redacted]"}`, `"params":{"name":"[redacted]","uri":"u"}`} {
						if !strings.Contains(string(got.AllArguments), seen) || !strings.Contains(string(got.Arguments), seen) {
							t.Errorf("complete arguments %s, arguments %s; want %s", got.AllArguments, got.Arguments, seen)
						}
					}
				})
			})
		}
	}
}
