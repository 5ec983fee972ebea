package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// maxGrant is the longest validity of a standing approval.
const maxGrant = 7 * 24 * time.Hour

// Cedar has the Cedar policies.
type Cedar struct {
	Policies []string // paths and patterns of files
	Timezone string
	Sources  []policy.Source // the files, sorted by name
}

// DefaultWorkflow returns the default settings of a workflow.
func DefaultWorkflow() policy.Workflow {
	return policy.Workflow{Quorum: 1, Timeout: 10 * time.Minute, QuietHours: policy.QuietHours{Timezone: "UTC"}, Grants: policy.Grants{Uses: 10, Reach: "tool"}}
}

func ruleSettings(r *policy.Rule) Group {
	g := Group{{"name", Optional(name(&r.Name))}}
	for _, c := range policy.Conditions() {
		g = append(g, Entry{c.Key, conditionSetting(c, r)})
	}
	return append(g,
		Entry{"action", Required(action(&r.Action))},
		Entry{"workflow", Optional(name(&r.Workflow))},
		Entry{"reason", Line(&r.Reason)},
		Entry{"mode", Optional(OneOf(&r.Mode, "observe", "enforce"))},
	)
}

func conditionSetting(c policy.Condition, r *policy.Rule) Setting {
	switch {
	case c.List != nil:
		return texts(c.List(r), c.Want, IsLine)
	case c.Words != nil:
		return Optional(OneOf(c.Text(r), c.Words...))
	case c.Required:
		return Required(Line(c.Text(r)))
	default:
		return Line(c.Text(r))
	}
}

func action(p *policy.Action) Leaf { return OneOf(p, "forward", "approve", "deny", "policy") }

func workflows(p *[]policy.Workflow) Dict {
	return func(key string) (Setting, string) {
		if !IsName(key) {
			return nil, "must be at most 63 lower-case letters, digits and hyphens"
		}
		w := DefaultWorkflow()
		w.Name = key
		*p = append(*p, w)
		return workflowSettings(&(*p)[len(*p)-1]), ""
	}
}

func workflowSettings(w *policy.Workflow) Group {
	return Group{
		{"approvers", texts(&w.Approvers, "a name, group:NAME, role:approver or role:admin", isApprover)},
		{"quorum", number(&w.Quorum, 100)},
		{"self_approval", Bool(&w.SelfApproval)},
		{"agent_approval", Bool(&w.AgentApproval)},
		{"confirm", choice(&w.Passkey, "passkey", "none")},
		{"timeout", Duration(&w.Timeout, time.Second)},
		{"validity", Duration(&w.Validity, 0)},
		{"redact", texts(&w.Redact, "secrets, or a path such as arguments.password, arguments.*.password or result.token", isRedactable)},
		{"ask_host", Bool(&w.AskHost)},
		{"grants", Group{
			{"longest", Duration(&w.Grants.Longest, 0)},
			{"uses", number(&w.Grants.Uses, 200)},
			{"reach", OneOf(&w.Grants.Reach, "tool", "read_only", "server", "agent")},
		}},
		{"channels", List(func() Setting {
			return Each(&w.Channels, "inbox, or the name of a channel", IsName).like("^[-a-z0-9]{1,63}$")
		})},
		{"remind", List(func() Setting {
			var part float64
			l := share(&part)
			return Read(&w.Remind, l.want, func(s string) ([]float64, bool) { ok := l.set(s); return append(w.Remind, part), ok }).like(sharePattern)
		})},
		{"escalate", Group{
			{"after", Required(share(&w.Escalate.After))},
			{"workflow", Required(name(&w.Escalate.Workflow))},
		}},
		{"quiet_hours", Group{
			{"from", Required(clock(&w.QuietHours.From))},
			{"to", Required(clock(&w.QuietHours.To))},
			{"timezone", timezone(&w.QuietHours.Timezone)},
		}},
	}
}

func isApprover(s string) bool {
	if role, ok := policy.Role(s); ok {
		return role == "approver" || role == "admin"
	}
	name, _ := policy.Group(s)
	return IsLine(s) && strings.TrimSpace(name) != ""
}

// isRedactable reports whether s is the word secrets, a path in the arguments, or the result or a
// path in it. A star stands for a whole name; as a part of a name it would match nothing.
func isRedactable(s string) bool {
	if s == policy.RedactSecrets {
		return true
	}
	names := strings.Split(s, ".")
	inside := names[0] == "arguments" && len(names) > 1 || names[0] == "result"
	return inside && IsLine(s) && !slices.ContainsFunc(names, func(name string) bool {
		return name == "" || name != "*" && strings.Contains(name, "*")
	})
}

func (c *Cedar) settings() Group {
	return Group{
		{"policies", texts(&c.Policies, "a path, or a pattern with *, ? and [a-z] between slashes", isFilePattern)},
		{"timezone", timezone(&c.Timezone)},
	}
}

// isFilePattern refuses **, which package filepath reads as a single *.
func isFilePattern(s string) bool {
	_, err := filepath.Match(s, "")
	return s != "" && err == nil && !strings.Contains(s, "**")
}

func (l *loader) addDefaultWorkflow() {
	if len(l.cfg.Workflows) == 0 {
		w := DefaultWorkflow()
		w.Name = policy.DefaultWorkflow
		l.cfg.Workflows = []policy.Workflow{w}
	}
}

func (l *loader) checkPolicy() {
	l.checkRules()
	if (l.given("rules") || len(l.cfg.Cedar.Policies) > 0) && !l.given("default") && !l.faulty("default") {
		l.reject("default", "is required with rules or policies: it decides the calls that no rule matches")
	}
	for i := range l.cfg.Workflows {
		l.checkWorkflow(&l.cfg.Workflows[i])
	}
	for i := range l.cfg.Workflows {
		to := &l.cfg.Workflows[i].Escalate
		other := l.workflow(to.Workflow)
		to.Approvers, to.Channels = other.Approvers, other.Channels
	}
}

// checkRules rejects empty lists in conditions.
func (l *loader) checkRules() {
	for i, r := range l.cfg.Rules {
		at := fmt.Sprintf("rules[%d]", i)
		for _, c := range policy.Conditions() {
			if path := at + "." + c.Key; c.List != nil && l.given(path) && len(*c.List(&r)) == 0 && !l.faulty(path) && !l.faulty(path+"[0]") {
				l.reject(path, "an empty list matches no principal; remove it to match all")
			}
		}
	}
}

// workflow returns the workflow with the name, or a zero Workflow.
func (l *loader) workflow(name string) policy.Workflow {
	for _, w := range l.cfg.Workflows {
		if w.Name == name {
			return w
		}
	}
	return policy.Workflow{}
}

func (l *loader) checkWorkflow(w *policy.Workflow) {
	if len(w.Channels) == 0 {
		w.Channels = []string{inboxChannel}
	}
	at := "workflows." + w.Name
	isGroup := func(s string) bool {
		_, group := policy.Group(s)
		_, role := policy.Role(s)
		return group || role
	}
	people := slices.Compact(slices.Sorted(slices.Values(w.Approvers)))
	if len(people) > 0 && len(people) < w.Quorum && !slices.ContainsFunc(people, isGroup) {
		l.reject(at+".quorum", "exceeds the number of approvers")
	}
	if w.Grants.Longest > maxGrant {
		l.reject(at+".grants.longest", fmt.Sprintf("must be at most %v", maxGrant))
	}
	if w.Grants.Longest == 0 {
		w.Grants = policy.Grants{}
	}
	l.checkOperators(at, *w)
	l.checkAskingAgain(at, *w)
	if l.cfg.Tasks.MaxTTL-l.cfg.Limits.CallTimeout < w.Timeout {
		l.reject(at+".timeout", "leaves no time to run the call: together with limits.call_timeout it exceeds tasks.max_ttl")
	}
}

// checkOperators warns of a workflow with fewer approvers than its quorum. It does not
// know the operators of an identity provider.
func (l *loader) checkOperators(at string, w policy.Workflow) {
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
		//mutate:swap `|| t.Role == "admin"` `|| t.Role != "viewer"` TestWarningOfTooFewOperators a rejecter counts for a quorum
		if (t.Role == "approver" || t.Role == "admin") && w.Admits(t.Name, t.Groups, []string{t.Role}) {
			able[strings.ToLower(t.Name)] = true
		}
	}
	if len(able) < w.Quorum {
		text := fmt.Sprintf("needs %d approvals, but only %d of the configured operators may approve: its calls will always expire", w.Quorum, len(able))
		l.warn(at, text)
	}
}

// SingleOperator is the name of the operator with the token of operators.token, or with
// the generated one.
const SingleOperator = "operator"

func (l *loader) checkTasks() {
	t := l.cfg.Tasks
	if t.DefaultTTL > t.MaxTTL {
		l.reject("tasks.default_ttl", "must not exceed tasks.max_ttl")
	}
	if t.MinPollInterval > t.MaxPollInterval {
		l.reject("tasks.min_poll_interval", "must not exceed tasks.max_poll_interval")
	}
	if kept := l.cfg.Audit.Retention; kept > 0 && kept < t.MaxTTL {
		l.reject("audit.retention", "must not be less than tasks.max_ttl, unless it is 0s (keep everything)")
	}
	if l.cfg.Execution.Start != "approval" || l.isWrap {
		return // the agent of a wrap has no credentials to send
	}
	for i, u := range l.cfg.Upstreams {
		if _, own := u.Headers["Authorization"]; !own && u.ForwardAuthorization {
			l.reject("execution.start", fmt.Sprintf(
				"with approval, calls may run when the agent is gone, but upstreams[%d] needs the agent's credentials; "+
					"set headers.Authorization or forward_authorization: false", i))
		}
	}
}

// readPolicies reads the policy files, which are relative to dir, and watches the
// directories in which further ones may appear.
func (l *loader) readPolicies(dir string) {
	settings := map[string]string{} // the first setting that names a file
	for i, pattern := range l.cfg.Cedar.Policies {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(literal(dir), pattern)
		}
		l.files.watch(directories(pattern)...)
		path := fmt.Sprintf("cedar.policies[%d]", i)
		found := regularFiles(pattern)
		if len(found) == 0 {
			l.reject(path, "matches no file")
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
		l.reject(path, file+" cannot be read")
	case len(text) > maxFile:
		l.reject(path, fmt.Sprintf("%s has more than %d bytes", file, maxFile))
	default:
		l.cfg.Cedar.Sources = append(l.cfg.Cedar.Sources, policy.Source{Name: file, Text: text})
	}
}

// literal returns a pattern that matches only dir.
func literal(dir string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(dir)
}

// regularFiles returns the matching files that are not directories.
func regularFiles(pattern string) []string {
	found, _ := filepath.Glob(pattern) // the pattern has been checked
	return slices.DeleteFunc(found, func(file string) bool {
		info, err := os.Stat(file)
		return err == nil && info.IsDir()
	})
}

// directories returns the directories in which a matching file, or a directory with one,
// may appear.
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

// NeedsPasskeys reports whether a workflow asks for passkeys.
func (c Config) NeedsPasskeys() bool {
	return slices.ContainsFunc(c.Workflows, func(w policy.Workflow) bool { return w.Passkey })
}
