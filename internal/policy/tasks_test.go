package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// table prints rows of cells in columns.
func table(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

var upstreams = []struct {
	name  string
	terms policy.TaskTerms
}{
	{"no tasks", policy.TaskTerms{Declared: policy.TaskOptional}},
	{"absent", policy.TaskTerms{Upstream: true}},
	{"unknown", policy.TaskTerms{Upstream: true, Declared: "maybe"}},
	{"forbidden", policy.TaskTerms{Upstream: true, Declared: policy.TaskForbidden}},
	{"optional", policy.TaskTerms{Upstream: true, Declared: policy.TaskOptional}},
	{"required", policy.TaskTerms{Upstream: true, Declared: policy.TaskRequired}},
}

// The annotation decision matrix of CORE-007 5.3 and F-002, as resolved by the design: a tool
// whose calls may be held has optional task support. The support is required only if waiting
// is for tasks only or the tool is in force_required.
func TestPublishedTaskSupport(t *testing.T) {
	prospects := []struct {
		name     string
		prospect policy.Prospect
	}{
		{"forward", policy.Prospect{Forward: true}},
		{"approve", policy.Prospect{Hold: true}},
		{"deny", policy.Prospect{Deny: true}},
		{"policy: forward or deny", policy.Prospect{Forward: true, Deny: true}},
		{"policy: hold or deny", policy.Prospect{Hold: true, Deny: true}},
		{"policy: anything", policy.Prospect{Forward: true, Hold: true, Deny: true}},
	}
	rows := [][]string{{"prospect", "upstream", "any", "tasks-only", "force_required"}}
	for _, p := range prospects {
		for _, u := range upstreams {
			strict, forced := u.terms, u.terms
			strict.Strict, forced.Forced = true, true
			rows = append(rows, []string{
				p.name, u.name, string(u.terms.Published(p.prospect)), string(strict.Published(p.prospect)), string(forced.Published(p.prospect)),
			})
		}
	}
	want := `prospect                 upstream   any        tasks-only  force_required
forward                  no tasks   forbidden  forbidden   required
forward                  absent     forbidden  forbidden   required
forward                  unknown    forbidden  forbidden   required
forward                  forbidden  forbidden  forbidden   required
forward                  optional   optional   optional    required
forward                  required   required   required    required
approve                  no tasks   optional   required    required
approve                  absent     optional   required    required
approve                  unknown    optional   required    required
approve                  forbidden  optional   required    required
approve                  optional   optional   required    required
approve                  required   optional   required    required
deny                     no tasks   forbidden  forbidden   forbidden
deny                     absent     forbidden  forbidden   forbidden
deny                     unknown    forbidden  forbidden   forbidden
deny                     forbidden  forbidden  forbidden   forbidden
deny                     optional   forbidden  forbidden   forbidden
deny                     required   forbidden  forbidden   forbidden
policy: forward or deny  no tasks   forbidden  forbidden   required
policy: forward or deny  absent     forbidden  forbidden   required
policy: forward or deny  unknown    forbidden  forbidden   required
policy: forward or deny  forbidden  forbidden  forbidden   required
policy: forward or deny  optional   optional   optional    required
policy: forward or deny  required   required   required    required
policy: hold or deny     no tasks   optional   required    required
policy: hold or deny     absent     optional   required    required
policy: hold or deny     unknown    optional   required    required
policy: hold or deny     forbidden  optional   required    required
policy: hold or deny     optional   optional   required    required
policy: hold or deny     required   optional   required    required
policy: anything         no tasks   optional   required    required
policy: anything         absent     optional   required    required
policy: anything         unknown    optional   required    required
policy: anything         forbidden  optional   required    required
policy: anything         optional   optional   required    required
policy: anything         required   required   required    required
`
	if diff := cmp.Diff(want, table(rows)); diff != "" {
		t.Error(diff)
	}
}

// The table of CORE-007 F-005, with F-004 and F-005.6, as resolved by the design. A call that
// needs approval and has no task is held, or refused in strict mode. A forwarded call with a
// task that the upstream does not support gets a task of the gate that needs no approval, so a
// task is never forbidden. CORE-007 F-005.1, F-005.3.
func TestHandlingOfTasks(t *testing.T) {
	rows := [][]string{{"verdict", "task", "upstream", "any", "tasks-only", "force_required"}}
	for _, action := range []policy.Action{policy.Forward, policy.Approve, policy.Deny, ""} {
		for _, wish := range []policy.TaskWish{policy.NoTask, policy.WantsTask, policy.AcceptsTask} {
			for _, u := range []int{0, 3, 4, 5} {
				terms := upstreams[u].terms
				strict, forced := terms, terms
				strict.Strict, forced.Forced = true, true
				rows = append(rows, []string{
					fmt.Sprintf("%q", action), string(wish), upstreams[u].name,
					string(terms.Handle(action, wish)), string(strict.Handle(action, wish)), string(forced.Handle(action, wish)),
				})
			}
		}
	}
	want := `verdict    task     upstream   any           tasks-only     force_required
"forward"  none     no tasks   pass on       pass on        task required
"forward"  none     forbidden  pass on       pass on        task required
"forward"  none     optional   pass on       pass on        task required
"forward"  none     required   pass on       pass on        task required
"forward"  wants    no tasks   ready task    ready task     ready task
"forward"  wants    forbidden  ready task    ready task     ready task
"forward"  wants    optional   pass on       pass on        pass on
"forward"  wants    required   pass on       pass on        pass on
"forward"  accepts  no tasks   pass on       pass on        pass on
"forward"  accepts  forbidden  pass on       pass on        pass on
"forward"  accepts  optional   pass on       pass on        pass on
"forward"  accepts  required   pass on       pass on        pass on
"approve"  none     no tasks   hold request  task required  task required
"approve"  none     forbidden  hold request  task required  task required
"approve"  none     optional   hold request  task required  task required
"approve"  none     required   hold request  task required  task required
"approve"  wants    no tasks   own task      own task       own task
"approve"  wants    forbidden  own task      own task       own task
"approve"  wants    optional   own task      own task       own task
"approve"  wants    required   own task      own task       own task
"approve"  accepts  no tasks   own task      own task       own task
"approve"  accepts  forbidden  own task      own task       own task
"approve"  accepts  optional   own task      own task       own task
"approve"  accepts  required   own task      own task       own task
"deny"     none     no tasks   denied        denied         denied
"deny"     none     forbidden  denied        denied         denied
"deny"     none     optional   denied        denied         denied
"deny"     none     required   denied        denied         denied
"deny"     wants    no tasks   denied        denied         denied
"deny"     wants    forbidden  denied        denied         denied
"deny"     wants    optional   denied        denied         denied
"deny"     wants    required   denied        denied         denied
"deny"     accepts  no tasks   denied        denied         denied
"deny"     accepts  forbidden  denied        denied         denied
"deny"     accepts  optional   denied        denied         denied
"deny"     accepts  required   denied        denied         denied
""         none     no tasks   denied        denied         denied
""         none     forbidden  denied        denied         denied
""         none     optional   denied        denied         denied
""         none     required   denied        denied         denied
""         wants    no tasks   denied        denied         denied
""         wants    forbidden  denied        denied         denied
""         wants    optional   denied        denied         denied
""         wants    required   denied        denied         denied
""         accepts  no tasks   denied        denied         denied
""         accepts  forbidden  denied        denied         denied
""         accepts  optional   denied        denied         denied
""         accepts  required   denied        denied         denied
`
	if diff := cmp.Diff(want, table(rows)); diff != "" {
		t.Error(diff)
	}
}

// The rows of CORE-007 9.1 about annotations and their validation, with their names. Where the
// design overrides the seed, the comment has the seed's value.
func TestTaskRowsOfTheSeed(t *testing.T) {
	forward, approve := policy.Prospect{Forward: true}, policy.Prospect{Hold: true}
	tests := []struct{ name, got, want string }{
		{"Annotation: upstream no tasks + no approval", string(policy.TaskTerms{Declared: policy.TaskOptional}.Published(forward)), "forbidden"},
		{"Annotation: upstream no tasks + approval possible", string(policy.TaskTerms{}.Published(approve)), "optional"}, // required
		{"Annotation: upstream has tasks + no approval", string(policy.TaskTerms{Upstream: true, Declared: policy.TaskRequired}.Published(forward)), "required"},
		{"Annotation: forbidden + no approval", string(policy.TaskTerms{Upstream: true, Declared: policy.TaskForbidden}.Published(forward)), "forbidden"},
		{"Annotation: forbidden + approval possible", string(policy.TaskTerms{Upstream: true, Declared: policy.TaskForbidden}.Published(approve)), "optional"}, // required
		{"Annotation: force_required override", string(policy.TaskTerms{Forced: true}.Published(forward)), "required"},
		{"Validation: required + no task", string(policy.TaskTerms{Strict: true}.Handle(policy.Approve, policy.NoTask)), "task required"},
		{"Validation: forbidden + task present", string(policy.TaskTerms{}.Handle(policy.Forward, policy.WantsTask)), "ready task"}, // TaskForbidden
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

// A client that follows the published task support is never refused because of its task. If
// the support is required, a call without a task is refused (F-004).
func TestPublishedTaskSupportIsHonoured(t *testing.T) {
	for _, u := range upstreams {
		for _, terms := range []policy.TaskTerms{
			u.terms, {Declared: u.terms.Declared, Upstream: u.terms.Upstream, Strict: true}, {Declared: u.terms.Declared, Upstream: u.terms.Upstream, Forced: true},
		} {
			for _, action := range []policy.Action{policy.Forward, policy.Approve} {
				prospect := policy.Prospect{Forward: action == policy.Forward, Hold: action == policy.Approve}
				published := terms.Published(prospect)
				without, with := terms.Handle(action, policy.NoTask), terms.Handle(action, policy.WantsTask)
				if with == policy.RefuseNoTask || published != policy.TaskRequired && without == policy.RefuseNoTask {
					t.Errorf("%s, %+v: %s is published, but without a task it is %s and with one %s", action, terms, published, without, with)
				}
				ours := terms.Strict && action == policy.Approve || terms.Forced
				if published == policy.TaskRequired && ours && without != policy.RefuseNoTask {
					t.Errorf("%s, %+v: a task is required, but without one it is %s", action, terms, without)
				}
			}
		}
	}
}
