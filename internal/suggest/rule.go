package suggest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// forward completes a proposal for a tool that only reads.
func (s *survey) forward(p *Proposal) {
	p.Kind = ReadOnly
	p.Risk = "nobody sees its calls before they run; that it only reads is what its server says"
	s.insert(p, policy.Forward, "", nil)
}

// narrow completes a proposal for arguments with a shape.
func (s *survey) narrow(p *Proposal) {
	p.Kind = Arguments
	p.Risk = p.shape.risk()
	p.Cedar = p.shape.cedar(p.Upstream, p.Name)
	workflow := cmp.Or(s.rule(p.decides).Workflow, policy.DefaultWorkflow)
	s.insert(p, policy.AskPolicies, workflow, []policy.Source{{Name: "suggested.cedar", Text: []byte(p.Cedar)}})
}

// insert completes a proposal with its rule. It has all conditions of the rule that decides now,
// so it matches no call that another rule decides.
func (s *survey) insert(p *Proposal, a policy.Action, workflow string, policies []policy.Source) {
	r := *s.rule(p.decides)
	r.Name, r.Reason, r.Action, r.Workflow = "", "", a, workflow
	r.Match, r.Upstream, r.Kind = literal(p.Name), literal(p.Upstream), policy.Tool
	at := p.decides
	if at == policy.ByDefault {
		at = len(s.cfg.Rules)
	}
	p.Before, p.Rule = labelOf(s.cfg.Rules, at), YAML(&r)
	p.config = s.cfg
	p.config.Rules = slices.Insert(slices.Clone(s.cfg.Rules), at, r)
	p.config.Cedar = slices.Concat(s.cfg.Cedar, policies)
}

// labelOf returns the name of a rule in texts, such as rules[3], or default after all rules.
func labelOf(rules []policy.Rule, index int) string {
	switch {
	case index == len(rules):
		return callrecord.ByDefault
	case rules[index].Name != "":
		return "rule " + rules[index].Name
	default:
		return fmt.Sprintf("rules[%d]", index)
	}
}

// YAML returns a rule as an item of a list.
func YAML(r *policy.Rule) string {
	var fields []string
	if r.Name != "" {
		fields = append(fields, "name: "+r.Name)
	}
	for _, c := range policy.Conditions() {
		if c.List == nil {
			if text := *c.Text(r); text != "" {
				fields = append(fields, c.Key+": "+quote(text))
			}
		} else if texts := *c.List(r); texts != nil {
			all := make([]string, len(texts))
			for i, text := range texts {
				all[i] = quote(text)
			}
			fields = append(fields, c.Key+": ["+strings.Join(all, ", ")+"]")
		}
	}
	fields = append(fields, "action: "+string(r.Action))
	if r.Workflow != "" {
		fields = append(fields, "workflow: "+r.Workflow)
	}
	if r.Reason != "" {
		fields = append(fields, "reason: "+quote(r.Reason))
	}
	if r.Mode != "" {
		fields = append(fields, "mode: "+string(r.Mode))
	}
	return "- { " + strings.Join(fields, ", ") + " }"
}

// quote returns text as a string of YAML, which JSON is.
func quote(text string) string {
	quoted, _ := jsontext.AppendQuote(nil, text) // fails only for invalid UTF-8, which it replaces
	return string(quoted)
}

// literal returns a glob that matches only name.
func literal(name string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(name)
}

// plain reports whether a text has only visible characters of ASCII, without quotes, so that YAML
// and Cedar write it in the same way.
func plain(text string) bool {
	return text != "" && len(text) <= mostText && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' })
}

const mostText = 200 // characters of a value in a proposal

// A shape is what the arguments of calls have in common.
type shape struct {
	equal  map[string]any    // arguments with one value, a string or bool
	prefix map[string]string // arguments below a directory, with its slash
	free   []string          // other arguments
}

// shapeOf returns the shape of the arguments of calls, or nil if they have nothing in common.
func shapeOf(calls []heldCall) *shape {
	values := make(map[string][]any)
	for i := range calls {
		args := read(calls[i].arguments)
		if args == nil {
			return nil
		}
		for name, v := range args {
			values[name] = append(values[name], v)
		}
	}
	s := &shape{equal: make(map[string]any), prefix: make(map[string]string)}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all := values[name]
		if len(all) < len(calls) || !plain(name) {
			s.free = append(s.free, name)
		} else if same(all) {
			s.equal[name] = all[0]
		} else if dir := directoryOf(all); dir != "" {
			s.prefix[name] = dir
		} else {
			s.free = append(s.free, name)
		}
	}
	if len(s.equal)+len(s.prefix) == 0 {
		return nil
	}
	return s
}

// read returns the arguments of a call, or nil if they are not an object.
func read(arguments jsontext.Value) map[string]any {
	var args map[string]any
	if json.Unmarshal(arguments, &args) != nil {
		return nil
	}
	return args
}

// same reports whether all values are one bool or one plain text.
func same(all []any) bool {
	switch first := all[0].(type) {
	case bool:
	case string:
		if !plain(first) {
			return false
		}
	default:
		return false
	}
	return !slices.ContainsFunc(all, func(v any) bool { return v != all[0] })
}

// directoryOf returns the directory, with its slash, that has all paths or URLs, or "".
func directoryOf(all []any) string {
	common, _ := all[0].(string)
	for _, v := range all {
		text, ok := v.(string)
		if !ok || !plain(text) || leaves(text) {
			return ""
		}
		for !strings.HasPrefix(text, common) {
			common = common[:len(common)-1]
		}
	}
	common = common[:strings.LastIndex(common, "/")+1]
	path := common
	if _, rest, isURL := strings.Cut(common, "://"); isURL {
		path = rest
	}
	if strings.Trim(path, "/") == "" {
		return ""
	}
	return common
}

// leaves reports whether a path may lead out of its directory.
func leaves(path string) bool { return strings.Contains(path, "..") || strings.Contains(path, "%") }

// fits reports whether arguments have the shape.
func (s *shape) fits(arguments jsontext.Value) bool {
	args := read(arguments)
	for name, want := range s.equal {
		if got, ok := args[name]; !ok || got != want {
			return false
		}
	}
	for name, dir := range s.prefix {
		if text, ok := args[name].(string); !ok || !strings.HasPrefix(text, dir) || leaves(text) {
			return false
		}
	}
	return true
}

// risk describes the risk of forwarding calls with the shape.
func (s *shape) risk() string {
	var risks []string
	if len(s.free) > 0 {
		risks = append(risks, "the agent chooses "+strings.Join(s.free, ", "))
	}
	if len(s.prefix) > 0 {
		risks = append(risks, "a link in the directory may lead out of it")
	}
	return strings.Join(append(risks, "arguments that no recorded call had are forwarded too"), "; ")
}

// cedar returns policies that forward calls with the shape, and hold others.
func (s *shape) cedar(upstream, name string) string {
	var when []string
	for _, arg := range slices.Sorted(maps.Keys(s.equal)) {
		value := fmt.Sprint(s.equal[arg])
		if text, ok := s.equal[arg].(string); ok {
			value = strconv.Quote(text)
		}
		when = append(when, fmt.Sprintf("context.arguments has %q && context.arguments[%q] == %s", arg, arg, value))
	}
	for _, arg := range slices.Sorted(maps.Keys(s.prefix)) {
		when = append(when, fmt.Sprintf(`context.arguments has %q && context.arguments[%q] like "%s*" && !(context.arguments[%q] like "*..*") && !(context.arguments[%q] like "*%%*")`,
			arg, arg, strings.ReplaceAll(s.prefix[arg], "*", `\*`), arg, arg))
	}
	scope := fmt.Sprintf(`permit (principal, action == ThoughtGate::Action::"call", resource == ThoughtGate::Tool::%q)`, name)
	condition := strings.Join(when, "\n  && ")
	return fmt.Sprintf("@id(\"%s-on-%s\")\n%s\nwhen { context.upstream == %q\n  && %s };\n\n@id(\"other-%s-on-%s\") @approval\n%s\nwhen { context.upstream == %q }\nunless { %s };\n",
		name, upstream, scope, upstream, condition, name, upstream, scope, upstream, condition)
}
