// Package policytest runs tests of a policy. A test is a call and the verdict that its author
// expects, in a YAML file:
//
//	tests:
//	  - name: refunds
//	    tool: refund_payment
//	    cases:
//	      - { arguments: { amount: 5 }, verdict: forward }
//	      - { arguments: { amount: 500 }, verdict: approve, workflow: finance }
//
// Everything that a case may have can also be given for a test, as the default of its cases,
// and for the file, as the default of its tests. The package judges calls with
// [policy.Snapshot.Explain], as the gate and the command explain do. It needs neither servers
// nor a store.
package policytest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A Case is a call and what its author expects.
type Case struct {
	Name string // of the test, and of the case
	At   config.Position

	call policy.Call
	want expectation
}

// An expectation is what an author expects of a verdict. Only the verdict is required.
type expectation struct {
	verdict  policy.Action
	observed policy.Action // that observing replaced
	workflow string
	rule     string // name of a rule, rules[3], default or gate
	policy   string // id of a policy that decided
	reason   string // a part of the reason
}

// A level is the file, a test or a case, with what is given there.
type level struct {
	path        string // of the setting
	name        string
	upstream    string
	subjects    []subject
	arguments   jsontext.Value
	principal   string
	groups      []string
	annotations annotations
	session     policy.Session
	time        time.Time
	want        expectation
	inside      []*level
}

// A subject is the tool, resource or prompt of a call.
type subject struct{ method, name string }

// Annotations are those of a tool, and whether its upstream lists the tool.
type annotations struct {
	policy.Annotations

	listed *bool // nil means that it does
}

func (a *annotations) settings() config.Group {
	return config.Group{
		{Key: "readOnlyHint", To: config.OptionalBool(&a.ReadOnly)},
		{Key: "destructiveHint", To: config.OptionalBool(&a.Destructive)},
		{Key: "idempotentHint", To: config.OptionalBool(&a.Idempotent)},
		{Key: "openWorldHint", To: config.OptionalBool(&a.OpenWorld)},
		{Key: "title", To: config.Text(&a.Title)},
		{Key: "listed", To: config.OptionalBool(&a.listed)},
	}
}

// settings returns the settings of a level, besides those of the levels in it.
func (l *level) settings(more ...config.Entry) config.Group {
	about := func(method string) config.Leaf {
		return config.Read(&l.subjects, "a name", func(s string) ([]subject, bool) { return append(l.subjects, subject{method, s}), s != "" })
	}
	return append(more, config.Group{
		{Key: "upstream", To: config.Line(&l.upstream)},
		{Key: "tool", To: about(mcpname.ToolsCall)},
		{Key: "resource", To: about(mcpname.ResourcesRead)},
		{Key: "prompt", To: about(mcpname.PromptsGet)},
		{Key: "arguments", To: config.JSON(func(v jsontext.Value) { l.arguments = v })},
		{Key: "principal", To: config.Text(&l.principal)},
		{Key: "groups", To: config.List(func() config.Setting {
			return config.Each(&l.groups, "the name of a group", func(s string) bool { return s != "" })
		})},
		{Key: "annotations", To: l.annotations.settings()},
		{Key: "session", To: config.Group{
			{Key: "client", To: config.Text(&l.session.Client)},
			{Key: "version", To: config.Text(&l.session.Version)},
			{Key: "protocol", To: config.Text(&l.session.Protocol)},
		}},
		{Key: "time", To: config.Read(&l.time, "a time such as 2026-07-28T22:30:00+02:00", func(s string) (time.Time, bool) {
			t, err := time.Parse(time.RFC3339, s)
			return t, err == nil
		})},
		{Key: "verdict", To: config.OneOf(&l.want.verdict, "forward", "approve", "deny")},
		{Key: "observed", To: config.OneOf(&l.want.observed, "approve", "deny")},
		{Key: "workflow", To: config.Line(&l.want.workflow)},
		{Key: "rule", To: config.Line(&l.want.rule)},
		{Key: "policy", To: config.Line(&l.want.policy)},
		{Key: "reason", To: config.Line(&l.want.reason)},
	}...)
}

// add returns the setting of a list of levels in l.
func (l *level) add(key string, settings func(*level) config.Group) config.List {
	return func() config.Setting {
		inner := &level{path: l.setting(fmt.Sprintf("%s[%d]", key, len(l.inside)))}
		l.inside = append(l.inside, inner)
		return settings(inner)
	}
}

// setting returns the path of a setting of l.
func (l *level) setting(key string) string { return strings.TrimPrefix(l.path+"."+key, ".") }

// test returns the settings of a test.
func (l *level) test() config.Group {
	return l.settings(
		config.Entry{Key: "name", To: config.Required(config.Line(&l.name))},
		config.Entry{Key: "cases", To: l.add("cases", (*level).single)},
	)
}

// single returns the settings of a case.
func (l *level) single() config.Group {
	return l.settings(config.Entry{Key: "name", To: config.Line(&l.name)})
}

// Read reads a test file. An error about the content is a [*config.Error] with all problems.
func (g *Gate) Read(name string) ([]Case, error) {
	r := reader{gate: g, tools: map[string]*annotations{}}
	var file level
	var err error
	r.origins, err = config.ReadOther(name, file.settings(
		config.Entry{Key: "tools", To: config.Dict(func(tool string) (config.Setting, string) {
			r.tools[tool] = new(annotations)
			return r.tools[tool].settings(), ""
		})},
		config.Entry{Key: "tests", To: config.Required(file.add("tests", (*level).test))},
	))
	if err != nil {
		return nil, err
	}
	r.read(&file, &level{})
	if len(r.problems) > 0 {
		return nil, config.NewError(r.problems)
	}
	return r.cases, nil
}

// A reader turns the levels of a file into cases.
type reader struct {
	gate     *Gate
	tools    map[string]*annotations // that the file describes
	origins  config.Origins
	cases    []Case
	problems []config.Problem
}

func (r *reader) given(l *level, key string) bool {
	_, given := r.origins[l.setting(key)]
	return given
}

func (r *reader) reject(l *level, key, text string) {
	at := l.setting(key)
	r.problems = append(r.problems, config.Problem{At: r.origins.Of(at), Setting: at, Text: text})
}

// read adds the cases in l, whose defaults come from outer.
func (r *reader) read(l, outer *level) {
	r.checkNames(l)
	r.inherit(l, outer)
	if l.path == "" || r.given(l, "cases") {
		for i, inner := range l.inside {
			if l.path != "" {
				inner.name = l.name + "/" + cmp.Or(inner.name, fmt.Sprintf("#%d", i+1))
			}
			r.read(inner, l)
		}
		if len(l.inside) == 0 {
			r.reject(l, "cases", "has no cases")
		}
		return
	}
	if r.check(l) {
		r.cases = append(r.cases, Case{Name: l.name, At: r.origins.Of(l.path), call: r.call(l), want: l.want})
	}
}

// checkNames rejects names of l that nothing has.
func (r *reader) checkNames(l *level) {
	exists := func(key, name string, known []string) {
		if name != "" && !slices.Contains(known, name) {
			r.reject(l, key, fmt.Sprintf("there is no %s %q%s", key, name, config.Suggest(name, known)))
		}
	}
	exists("upstream", l.upstream, r.gate.upstreams)
	exists("workflow", l.want.workflow, r.gate.workflows)
	exists("rule", l.want.rule, r.gate.rules)
	exists("policy", l.want.policy, r.gate.policies)
	for _, s := range l.subjects {
		if s.method == mcpname.ToolsCall && len(r.tools) > 0 {
			exists("tool", s.name, slices.Sorted(maps.Keys(r.tools)))
		}
	}
}

// inherit takes from outer what l does not have.
func (r *reader) inherit(l, outer *level) {
	if len(l.subjects) == 0 {
		l.subjects = outer.subjects
	}
	if l.arguments == nil {
		l.arguments = outer.arguments
	}
	if !r.given(l, "principal") {
		l.principal = outer.principal
	}
	if !r.given(l, "groups") && l.principal != "" {
		l.groups = outer.groups
	}
	if l.time.IsZero() {
		l.time = outer.time
	}
	l.upstream = cmp.Or(l.upstream, outer.upstream)
	l.annotations = cmp.Or(l.annotations, outer.annotations)
	l.session = cmp.Or(l.session, outer.session)
	l.want.rule = cmp.Or(l.want.rule, outer.want.rule)
	if l.want.verdict == "" { // what else is expected belongs to the verdict
		w := outer.want
		l.want = expectation{
			w.verdict, cmp.Or(l.want.observed, w.observed), cmp.Or(l.want.workflow, w.workflow),
			l.want.rule, cmp.Or(l.want.policy, w.policy), cmp.Or(l.want.reason, w.reason),
		}
	}
}

// check reports whether a case is complete and without contradictions.
func (r *reader) check(l *level) bool {
	before := len(r.problems)
	if l.upstream == "" && len(r.gate.upstreams) == 1 {
		l.upstream = r.gate.upstreams[0]
	}
	if l.upstream == "" {
		r.reject(l, "upstream", "is required: one of "+strings.Join(r.gate.upstreams, ", "))
	}
	if len(l.subjects) != 1 {
		r.reject(l, "tool", "a call needs exactly one of tool, resource and prompt")
	}
	if l.principal == "" && l.groups != nil {
		r.reject(l, "groups", "need a principal: anonymous callers have no groups")
	}
	r.checkExpectation(l)
	if len(r.problems) == before && l.time.IsZero() && r.gate.policy.ReadsTime(r.call(l)) {
		r.reject(l, "time", "is required, because policies for this call read it")
	}
	return len(r.problems) == before
}

func (r *reader) checkExpectation(l *level) {
	w := l.want
	switch {
	case w.verdict == "":
		r.reject(l, "verdict", "is required")
	case w.observed != "" && w.verdict != policy.Forward:
		r.reject(l, "observed", "needs the verdict forward: observing forwards every call")
	case w.workflow != "" && w.verdict != policy.Approve && w.observed != policy.Approve:
		r.reject(l, "workflow", "needs the verdict approve")
	}
}

// call returns the call of a complete case.
func (r *reader) call(l *level) policy.Call {
	about := l.subjects[0]
	hints := l.annotations
	if described := r.tools[about.name]; described != nil && about.method == mcpname.ToolsCall {
		hints = cmp.Or(hints, *described)
	}
	return policy.Call{
		Upstream: l.upstream, Method: about.method, Name: about.name, Arguments: l.arguments,
		Principal:   policy.Principal{ID: l.principal, Groups: l.groups, Anonymous: l.principal == ""},
		Annotations: hints.Annotations, Listed: about.method == mcpname.ToolsCall && (hints.listed == nil || *hints.listed),
		Session: l.session, Time: l.time, Accepted: true, // a test is not about definitions
	}
}
