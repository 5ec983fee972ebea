package inbox

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Trials try calls against the running policy and an edited one, without any effect.
type Trials interface {
	// Running returns the running policy and the names of the upstreams. It returns false if there
	// is no policy.
	Running() (Candidate, []string, bool)

	// HeldCall returns a held call, with the arguments that approvers see.
	HeldCall(context.Context, task.ID) (policy.Call, error)

	// Try judges a call. It must not read files that the candidate names.
	Try(policy.Call, Candidate) Trial
}

// A Candidate is the text of a policy.
type Candidate struct {
	Rules string // YAML with rules, default and mode
	Cedar []policy.Source
}

// A Trial is the result of trying a call.
type Trial struct {
	Running   *Judged // nil without a policy
	Candidate *Judged // nil if there are problems
	Same      bool    // the candidate is the running policy
	Problems  []string
	Warnings  []string
}

// A Judged is the verdict of a policy on the call.
type Judged struct {
	policy.Explanation

	Otherwise []policy.Alternative
}

// Bounds on what can be tried.
const (
	maxTried     = 128 << 10 // bytes of a candidate
	maxTriedArgs = 16 << 10  // bytes of arguments
	maxTriedText = 8 << 10   // bytes of each other field
	maxShownList = 30        // rules, policies and alternatives on a page
	triedFor     = 5 * time.Second
)

// A tryForm has the fields of the page.
type tryForm struct {
	kind, upstream, name, arguments string
	principal, groups, client, at   string
	hints                           [4]string // yes, no or empty, in the order of tryHints
	candidate                       Candidate

	upstreams []string
	from      task.ID // the held call that the fields are from
	hidden    bool    // its arguments are not shown in full
	problem   string  // of a field
}

// tryHints are the hints of a tool, with their names in the form.
var tryHints = [...]struct{ field, label string }{
	{"read_only", "Only reads"}, {"destructive", "May destroy"}, {"idempotent", "Can be repeated"}, {"open_world", "Reaches beyond its server"},
}

// tryMethods are the kinds of calls in the form.
var tryMethods = [...]struct{ kind, method string }{
	{"tool", mcpname.ToolsCall}, {"resource", mcpname.ResourcesRead}, {"prompt", mcpname.PromptsGet},
}

// try shows the page on which a call is tried, with the running policy, and the fields of a held call.
func (i *Inbox) try(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	t := tryForm{kind: "tool"}
	t.candidate, t.upstreams, _ = i.cfg.Trials.Running()
	if id := task.ID(r.URL.Query().Get("call")); id != "" {
		c, err := i.cfg.Trials.HeldCall(r.Context(), id)
		if err != nil {
			return err
		}
		t.from = id
		t.fill(c)
		if !t.hidden { // shows at once why it is held
			return i.judge(w, r, who, t)
		}
	}
	return i.showTry(w, r, who, t, nil)
}

// fill sets the fields to those of a call.
func (t *tryForm) fill(c policy.Call) {
	for _, m := range tryMethods {
		if m.method == c.Method {
			t.kind = m.kind
		}
	}
	t.upstream, t.name, t.client = c.Upstream, c.Name, c.Session.Client
	if len(c.Arguments) <= maxTriedArgs {
		t.arguments = string(c.Arguments)
	}
	t.hidden = len(c.Arguments) == 0 || len(c.Arguments) > maxTriedArgs || strings.Contains(t.arguments, "[redacted]")
	if !c.Principal.Anonymous {
		t.principal, t.groups = c.Principal.ID, strings.Join(c.Principal.Groups, ", ")
	}
	if !c.Time.IsZero() {
		t.at = c.Time.UTC().Format(time.RFC3339)
	}
	for n, hint := range []*bool{c.Annotations.ReadOnly, c.Annotations.Destructive, c.Annotations.Idempotent, c.Annotations.OpenWorld} {
		if hint != nil {
			t.hints[n] = map[bool]string{true: "yes", false: "no"}[*hint]
		}
	}
}

// tryCall judges the call of a form.
func (i *Inbox) tryCall(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	if err := r.ParseForm(); err != nil {
		return i.page(w, r, who, page{section: "overview", title: "Try a call", status: http.StatusRequestEntityTooLarge}, func(f frame) templ.Component {
			return refusalPage(f, refusal{"That is too much", "The form is too large.", "Back", "/try"})
		})
	}
	t := readTry(r.PostForm)
	_, t.upstreams, _ = i.cfg.Trials.Running()
	return i.judge(w, r, who, t)
}

// judge shows how the call of a form is judged.
func (i *Inbox) judge(w http.ResponseWriter, r *http.Request, who operator.Operator, t tryForm) error {
	c, problem := t.call(i.cfg.Now())
	if t.problem = problem; problem != "" {
		return i.showTry(w, r, who, t, nil)
	}
	result, done := i.trying.run(r.Context(), func() Trial { return i.cfg.Trials.Try(c, t.candidate) })
	if !done {
		t.problem = "This takes too long, or another trial has not ended yet. Try again in a moment, or run thoughtgate explain."
		return i.showTry(w, r, who, t, nil)
	}
	if r.Method == http.MethodGet {
		result.Candidate, result.Problems, result.Warnings = nil, nil, nil // nothing was edited
	}
	return i.showTry(w, r, who, t, &result)
}

func (i *Inbox) showTry(w http.ResponseWriter, r *http.Request, who operator.Operator, t tryForm, result *Trial) error {
	status := http.StatusOK
	if t.problem != "" {
		status = http.StatusBadRequest
	}
	return i.page(w, r, who, page{section: "overview", title: "Try a call", status: status, self: "/try"}, func(f frame) templ.Component { return tryPage(f, t, result) })
}

// readTry reads the fields of a form.
func readTry(f url.Values) tryForm {
	t := tryForm{
		kind: f.Get("kind"), upstream: f.Get("upstream"), name: f.Get("name"), arguments: f.Get("arguments"), principal: f.Get("principal"), groups: f.Get("groups"),
		client: f.Get("client"), at: f.Get("time"), candidate: Candidate{Rules: f.Get("rules")}, from: task.ID(f.Get("call")),
	}
	for n, hint := range tryHints {
		t.hints[n] = f.Get(hint.field)
	}
	names := f["cedar_name"]
	for n, text := range f["cedar"] {
		if n < len(names) && strings.TrimSpace(text) != "" {
			t.candidate.Cedar = append(t.candidate.Cedar, policy.Source{Name: names[n], Text: []byte(text)})
		}
	}
	return t
}

// call returns the call of the form, or a problem with a field.
func (t *tryForm) call(now time.Time) (c policy.Call, problem string) {
	if problem := t.tooLarge(); problem != "" {
		return c, problem
	}
	if t.name == "" {
		return c, "Give the name of the tool, or the URI of the resource."
	}
	c = policy.Call{
		Upstream: t.upstream, Name: t.name, Listed: true, Time: now, Session: policy.Session{Client: t.client},
		Principal: policy.Principal{ID: t.principal, Groups: t.groupNames(), Anonymous: t.principal == ""},
	}
	for _, m := range tryMethods {
		if m.kind == t.kind {
			c.Method = m.method
		}
	}
	for n, to := range []**bool{&c.Annotations.ReadOnly, &c.Annotations.Destructive, &c.Annotations.Idempotent, &c.Annotations.OpenWorld} {
		if t.hints[n] != "" {
			*to = new(t.hints[n] == "yes")
		}
	}
	if arguments := strings.TrimSpace(t.arguments); arguments != "" {
		c.Arguments = jsontext.Value(arguments)
		if !c.Arguments.IsValid() || c.Arguments.Kind() != '{' {
			return c, "The arguments must be a JSON object without duplicate names."
		}
	}
	if t.at != "" {
		var err error
		if c.Time, err = time.Parse(time.RFC3339, t.at); err != nil {
			return c, "The time must be like 2026-07-28T22:30:00+02:00."
		}
	}
	return c, ""
}

// tooLarge says what is too large to be tried, or "".
func (t *tryForm) tooLarge() string {
	size := len(t.candidate.Rules)
	for _, s := range t.candidate.Cedar {
		size += len(s.Text)
	}
	texts := []string{t.kind, t.upstream, t.name, t.principal, t.groups, t.client, t.at}
	switch {
	case size > maxTried:
		return "The policy is too large to be tried here."
	case len(t.arguments) > maxTriedArgs || slices.ContainsFunc(texts, func(s string) bool { return len(s) > maxTriedText }):
		return "The call is too large to be tried here."
	default:
		return ""
	}
}

// groupNames returns the groups, which are separated by commas.
func (t *tryForm) groupNames() (names []string) {
	for name := range strings.SplitSeq(t.groups, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// A trying runs one trial at a time. One that takes too long goes on in the background, and no other
// begins meanwhile.
type trying struct{ taken chan struct{} }

func (t *trying) run(ctx context.Context, do func() Trial) (result Trial, done bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, triedFor, errTooLong)
	defer cancel()
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		return result, false
	}
	answer := make(chan Trial, 1)
	go func() {
		defer func() { <-t.taken }()
		answer <- do()
	}()
	select {
	case result = <-answer:
		return result, true
	case <-ctx.Done():
		return result, false
	}
}

var errTooLong = errors.New("the trial takes too long")

// outcomeText names a verdict.
func outcomeText(v *policy.Verdict) string {
	switch v.Action {
	case policy.Approve:
		return "Held for " + v.Workflow
	case policy.Forward:
		if v.Would != nil {
			return "Forwarded, only observed"
		}
		return "Forwarded"
	default:
		return "Denied"
	}
}

func outcomeTone(v *policy.Verdict) string {
	return map[policy.Action]string{policy.Approve: "waiting", policy.Forward: "good"}[v.Action]
}

// compareText compares the verdicts of a trial.
func compareText(t *Trial) string {
	switch {
	case t.Candidate == nil:
		return "The edited policy has errors"
	case t.Same:
		return "The edited policy is the running one"
	case outcomeText(&t.Candidate.Verdict) == outcomeText(&t.Running.Verdict):
		return "The edited policy decides the same"
	default:
		return "The edited policy decides differently"
	}
}

// mayTry reports whether the page of a call links to the page on which it is tried.
func (f frame) mayTry(d callView) bool {
	return f.mayAccept() && d.Method != review.MethodBatch && !d.NoApprovalNeeded
}

// cedarFields returns the texts of Cedar policies in the form, or an empty one.
func (t *tryForm) cedarFields() []policy.Source {
	if len(t.candidate.Cedar) == 0 {
		return []policy.Source{{Name: "candidate.cedar"}}
	}
	return t.candidate.Cedar
}

func rows(text string) int { return min(max(strings.Count(text, "\n")+2, 4), 24) }

// triedRules returns the last rules that were tried.
func triedRules(j *Judged) []policy.RuleTrial {
	return j.Rules[max(0, len(j.Rules)-maxShownList):]
}
