package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Rule says what is done with the calls that match it. Whether its patterns
// and workflows make sense is for the package that obeys them to say.
type Rule struct {
	Name       string // empty means its place in the list
	Match      string
	Action     string // forward, approve, deny or policy
	Workflow   string
	Reason     string // in one line
	Upstream   string
	Kind       string   // tool, resource or prompt; empty means any
	Principals []string // nil means anyone
	Observe    bool
}

// A Workflow says who approves a call, and how.
type Workflow struct {
	Name         string
	Approvers    []string // names of people, of groups after group:, or of roles after role:; none means any operator
	Quorum       int
	SelfApproval bool
	Timeout      time.Duration
	Validity     time.Duration // how long an approval can be used; 0 means as long as the task lives
	Redact       []string      // paths such as arguments.password or result.token
	Channels     []string      // at least one
	AskHost      bool          // whether the agent's host is to invite its user to the approval page
	Remind       []float64     // shares of the time after which those who were asked are asked again
	Escalate     Escalation
	QuietHours   QuietHours
	Grants       Grants // standing approvals
}

// An Escalation lets the approvers of another workflow decide too after a share of
// the time. The zero Escalation is never.
type Escalation struct {
	After    float64
	Workflow string
}

// QuietHours are those in which nobody is reminded, counted from midnight. There are
// none if From equals To.
type QuietHours struct {
	From, To time.Duration
	Timezone string
}

// Grants says how far standing approvals may go.
type Grants struct {
	Longest time.Duration // how long they may be good for; 0 means that none can be given
	Uses    int           // how many calls one may let run
}

// maxGrant is the longest time that a standing approval can be good for.
const maxGrant = 7 * 24 * time.Hour

// Cedar holds policies in the language of that name.
type Cedar struct {
	Policies []string // paths and patterns of files
	Timezone string
	Sources  []Source // the files, by name
}

// A Source is a file of Cedar policies.
type Source struct {
	Name string
	Text []byte
}

// defaultWorkflow is the workflow of those who name none.
const defaultWorkflow = "default"

// DefaultWorkflow returns the settings of a workflow of which nothing but its
// name is told.
func DefaultWorkflow() Workflow {
	return Workflow{Quorum: 1, Timeout: 10 * time.Minute, QuietHours: QuietHours{Timezone: "UTC"}, Grants: Grants{Uses: 10}}
}

func (r *Rule) settings() group {
	return append(group{
		{"name", optional(name(&r.Name))},
		{"match", required{line(&r.Match)}},
		{"upstream", line(&r.Upstream)},
		{"kind", optional(oneOf(&r.Kind, "tool", "resource", "prompt"))},
		{"principals", list{func() setting {
			return each(&r.Principals, "a name or pattern, or group: followed by one", isLine)
		}}},
	}, r.outcome()...)
}

// outcome returns the settings that the default has as well.
func (r *Rule) outcome() group {
	return group{
		{"action", required{action(&r.Action)}},
		{"workflow", optional(name(&r.Workflow))},
		{"reason", line(&r.Reason)},
		{"mode", mode(&r.Observe)},
	}
}

func action(p *string) leaf { return oneOf(p, "forward", "approve", "deny", "policy") }

func workflows(p *[]Workflow) dict {
	return dict{func(key string) (setting, string) {
		if !isName(key) {
			return nil, "must be at most 63 lower-case letters, digits and hyphens"
		}
		w := DefaultWorkflow()
		w.Name = key
		*p = append(*p, w)
		return (*p)[len(*p)-1].settings(), ""
	}}
}

func (w *Workflow) settings() group {
	return group{
		{"approvers", list{func() setting {
			return each(&w.Approvers, "a name, group:NAME, role:approver or role:admin", isApprover)
		}}},
		{"quorum", number(&w.Quorum, 100)},
		{"self_approval", boolean(&w.SelfApproval)},
		{"timeout", duration(&w.Timeout, time.Second)},
		{"validity", duration(&w.Validity, 0)},
		{"redact", list{func() setting {
			return each(&w.Redact, "a path such as arguments.password, arguments.*.password or result.token", isRedactable)
		}}},
		{"ask_host", boolean(&w.AskHost)},
		{"grants", group{
			{"longest", duration(&w.Grants.Longest, 0)},
			{"uses", number(&w.Grants.Uses, 200)},
		}},
		{"channels", list{func() setting {
			return each(&w.Channels, "inbox, or the name of a channel", isName).like("^[-a-z0-9]{1,63}$")
		}}},
		{"remind", list{func() setting {
			var part float64
			l := share(&part)
			return read(&w.Remind, l.kinds, l.want, func(s string) ([]float64, bool) { ok := l.set(s); return append(w.Remind, part), ok }).like(sharePattern)
		}}},
		{"escalate", group{
			{"after", required{share(&w.Escalate.After)}},
			{"workflow", required{name(&w.Escalate.Workflow)}},
		}},
		{"quiet_hours", group{
			{"from", required{clock(&w.QuietHours.From)}},
			{"to", required{clock(&w.QuietHours.To)}},
			{"timezone", timezone(&w.QuietHours.Timezone)},
		}},
	}
}

const (
	groupPrefix = "group:"
	rolePrefix  = "role:"
)

func isApprover(s string) bool {
	if role, ok := strings.CutPrefix(s, rolePrefix); ok {
		return role == "approver" || role == "admin"
	}
	return isLine(s) && strings.TrimSpace(strings.TrimPrefix(s, groupPrefix)) != ""
}

// isRedactable reports whether s names something in arguments, or a result or
// something in it. A star stands for a whole name: in a part of one it would match nothing.
func isRedactable(s string) bool {
	names := strings.Split(s, ".")
	inside := names[0] == "arguments" && len(names) > 1 || names[0] == "result"
	return inside && isLine(s) && !slices.ContainsFunc(names, func(name string) bool {
		return name == "" || name != "*" && strings.Contains(name, "*")
	})
}

func (c *Cedar) settings() group {
	return group{
		{"policies", list{func() setting {
			return each(&c.Policies, "a path, or a pattern with *, ? and [a-z] between slashes", isFilePattern)
		}}},
		{"timezone", timezone(&c.Timezone)},
	}
}

// isFilePattern refuses ** because it would be taken for a single *.
func isFilePattern(s string) bool {
	_, err := filepath.Match(s, "")
	return s != "" && err == nil && !strings.Contains(s, "**")
}

// addDefaultWorkflow is for those who need no more than one.
func (l *loader) addDefaultWorkflow() {
	if len(l.cfg.Workflows) == 0 {
		w := DefaultWorkflow()
		w.Name = defaultWorkflow
		l.cfg.Workflows = []Workflow{w}
	}
}

func (l *loader) checkPolicy() {
	for i, r := range l.cfg.Rules {
		at := fmt.Sprintf("rules[%d]", i)
		l.need(at, "match", r.Match)
		l.need(at, "action", r.Action)
		l.checkPrincipals(at+".principals", r.Principals)
	}
	_, rules := l.origins["rules"]
	_, fallback := l.origins["default"]
	switch {
	case fallback:
		l.need("default", "action", l.cfg.Default.Action)
	case (rules || len(l.cfg.Cedar.Policies) > 0) && !l.faulty("default"):
		l.report(l.origin("default"), "default", "is required with rules or policies: it decides the calls that no rule matches")
	}
	for i := range l.cfg.Workflows {
		l.checkWorkflow(&l.cfg.Workflows[i])
	}
}

// need reports a setting below path that has no value, unless it is known to
// have a wrong one.
func (l *loader) need(path, key, value string) {
	if full := path + "." + key; value == "" && !l.faulty(full) && !l.faulty(path) {
		l.report(l.origin(full), full, "is required")
	}
}

// checkPrincipals refuses an empty list, which is otherwise taken for none.
func (l *loader) checkPrincipals(path string, principals []string) {
	_, given := l.origins[path]
	if given && len(principals) == 0 && !l.faulty(path) && !l.faulty(path+"[0]") {
		l.report(l.origin(path), path, "an empty list matches nobody; remove it to match everyone")
	}
}

func (l *loader) checkWorkflow(w *Workflow) {
	if len(w.Channels) == 0 {
		w.Channels = []string{inboxChannel}
	}
	at := "workflows." + w.Name
	isGroup := func(s string) bool { return strings.HasPrefix(s, groupPrefix) || strings.HasPrefix(s, rolePrefix) }
	people := map[string]bool{}
	for _, a := range w.Approvers {
		people[a] = true
	}
	if len(people) > 0 && len(people) < w.Quorum && !slices.ContainsFunc(w.Approvers, isGroup) {
		l.report(l.origin(at+".quorum"), at+".quorum", "exceeds the number of approvers")
	}
	if w.Grants.Longest > maxGrant {
		l.report(l.origin(at+".grants.longest"), at+".grants.longest", fmt.Sprintf("must be at most %v", maxGrant))
	}
	l.checkOperators(at, *w)
	l.checkAskingAgain(at, *w)
	if l.cfg.Tasks.MaxTTL-l.cfg.Execution.Timeout < w.Timeout {
		l.report(l.origin(at+".timeout"), at+".timeout", "leaves no time to run the call: together with execution.timeout it exceeds tasks.max_ttl")
	}
}

// checkOperators warns of a workflow that no decision can end because too few
// operators may approve. Those of an identity provider are not known here.
func (l *loader) checkOperators(at string, w Workflow) {
	o := l.cfg.Operators
	if o.OIDC.Issuer != "" {
		return
	}
	tokens := slices.Clone(o.Tokens)
	if len(tokens) == 0 || o.Token.Reveal() != "" {
		tokens = append(tokens, Token{Name: SingleOperator, Role: "admin"})
	}
	able := map[string]bool{}
	for _, t := range tokens {
		if t.Role != "viewer" && w.mayApprove(t) {
			able[strings.ToLower(t.Name)] = true
		}
	}
	if len(able) < w.Quorum {
		text := fmt.Sprintf("needs %d approvals, but only %d of the configured operators may approve: its calls will always expire", w.Quorum, len(able))
		l.warnings = append(l.warnings, Problem{l.origin(at), at, text})
	}
}

// SingleOperator is the name of the operator with the one token that is
// configured as operators.token, or generated.
const SingleOperator = "operator"

// mayApprove reports whether the operator with token t is an approver of w.
func (w Workflow) mayApprove(t Token) bool {
	if len(w.Approvers) == 0 || slices.Contains(w.Approvers, t.Name) || slices.Contains(w.Approvers, rolePrefix+t.Role) {
		return true
	}
	return slices.ContainsFunc(t.Groups, func(g string) bool { return slices.Contains(w.Approvers, groupPrefix+g) })
}

func (l *loader) checkTasks() {
	t := l.cfg.Tasks
	if t.DefaultTTL > t.MaxTTL {
		l.report(l.origin("tasks.default_ttl"), "tasks.default_ttl", "must not exceed tasks.max_ttl")
	}
	if t.MinPollInterval > t.MaxPollInterval {
		l.report(l.origin("tasks.min_poll_interval"), "tasks.min_poll_interval", "must not exceed tasks.max_poll_interval")
	}
	if kept := l.cfg.Audit.Retention; kept > 0 && kept < t.MaxTTL {
		l.report(l.origin("audit.retention"), "audit.retention", "must not be less than tasks.max_ttl, unless it is 0s (keep everything)")
	}
	if l.cfg.Execution.Start != "approval" || l.isWrap {
		return // the agent of a wrap has no credentials
	}
	for i, u := range l.cfg.Upstreams {
		if _, own := u.Headers["Authorization"]; !own && u.ForwardAuthorization {
			l.report(l.origin("execution.start"), "execution.start", fmt.Sprintf(
				"with approval, calls may run when the agent is gone, but upstreams[%d] needs the agent's credentials; "+
					"set headers.Authorization or forward_authorization: false", i))
		}
	}
}

// readPolicies reads the files of policies, which are relative to dir, and
// notes in which directories further ones may appear.
func (l *loader) readPolicies(dir string) {
	settings := map[string]string{} // which setting names a file first
	for i, pattern := range l.cfg.Cedar.Policies {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(literal(dir), pattern)
		}
		l.files.watch(directories(pattern)...)
		path := fmt.Sprintf("cedar.policies[%d]", i)
		found := regularFiles(pattern)
		if len(found) == 0 {
			l.report(l.origin(path), path, "matches no file")
		}
		for _, file := range found {
			if settings[file] == "" {
				settings[file] = path
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(settings)) {
		l.readPolicy(settings[file], file)
	}
}

func (l *loader) readPolicy(path, file string) {
	text, err := l.files.read(file)
	switch {
	case err != nil:
		l.report(l.origin(path), path, file+" cannot be read")
	case len(text) > maxFile:
		l.report(l.origin(path), path, fmt.Sprintf("%s has more than %d bytes", file, maxFile))
	default:
		l.cfg.Cedar.Sources = append(l.cfg.Cedar.Sources, Source{file, text})
	}
}

// literal returns dir as a pattern that matches it alone.
func literal(dir string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(dir)
}

// regularFiles returns the files that match, without the directories.
func regularFiles(pattern string) []string {
	found, _ := filepath.Glob(pattern) // the pattern has been checked
	return slices.DeleteFunc(found, func(file string) bool {
		info, err := os.Stat(file)
		return err == nil && info.IsDir()
	})
}

// directories returns those in which a file that matches may appear, and those
// in which such a directory may.
func directories(pattern string) []string {
	var all []string
	for d := filepath.Dir(pattern); ; d = filepath.Dir(d) {
		found, _ := filepath.Glob(d)
		all = append(all, found...)
		if !strings.ContainsAny(d, `*?[\`) {
			return all
		}
	}
}
