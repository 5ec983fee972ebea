package suggest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// forward completes a proposal for a tool that only reads.
func (s *survey) forward(p *Proposal) {
	p.Kind = ReadOnly
	p.Risk = "nobody sees its calls before they run; its server says that it only reads"
	if s.tools[p.Named].mayTell {
		p.Risk += ", and not that its arguments reach nobody else"
	}
	s.insert(p, policy.Forward, "", nil)
}

// narrow completes a proposal for arguments with a shape.
func (s *survey) narrow(p *Proposal) {
	p.Kind = Arguments
	p.Risk = p.shape.risk()
	if s.tools[p.Named].mayDestroy {
		p.Risk += "; its server does not say that it destroys nothing"
	}
	p.Cedar = p.shape.cedar(p.Upstream, p.Name)
	workflow := cmp.Or(s.rule(p.decides).Workflow, policy.DefaultWorkflow)
	s.insert(p, policy.AskPolicies, workflow, []policy.Source{{Name: "suggested.cedar", Text: []byte(p.Cedar)}})
}

// insert completes a proposal with its rule. It has all conditions of the rule that decides now,
// so it matches no call that another rule decides. Agents take the place of a pattern for them, but not of a
// group, which they may leave.
func (s *survey) insert(p *Proposal, a policy.Action, workflow string, policies []policy.Source) {
	r := *s.rule(p.decides)
	r.Name, r.Reason, r.Action, r.Workflow = "", "", a, workflow
	r.Match, r.Upstream, r.Kind = literal(p.Name), literal(p.Upstream), policy.Tool
	switch {
	case p.agents != nil && !slices.ContainsFunc(r.Principals, isGroup):
		r.Principals = nil
		for _, agent := range p.agents {
			r.Principals = append(r.Principals, literal(agent))
		}
	case r.Principals == nil:
		p.Risk += "; any agent may make them"
	default:
		p.Risk += "; all agents that the rule names may make them"
	}
	at := p.decides
	if at == policy.ByDefault {
		at = len(s.cfg.Rules)
	}
	p.Before, p.Rule = labelOf(s.cfg.Rules, at), YAML(&r)
	p.config = s.cfg
	p.config.Rules = slices.Insert(slices.Clone(s.cfg.Rules), at, r)
	p.config.Cedar = slices.Concat(s.cfg.Cedar, policies)
}

func isGroup(principal string) bool {
	_, is := policy.Group(principal)
	return is
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

// literal returns a glob that matches only name, and that is not mistaken for a regular
// expression.
func literal(name string) string {
	var b strings.Builder
	for _, r := range name {
		if strings.ContainsRune(`\*?[]()|^$+{}`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// plain reports whether a text has only visible characters of ASCII, without quotes, so that YAML
// and Cedar write it in the same way.
func plain(text string) bool {
	return text != "" && len(text) <= mostText && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' })
}

const mostText = 200 // characters of a value in a proposal
