package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/secrets"
)

// A Condition is a setting that limits a rule to some calls. To add one, add a field to [Rule]
// for the configured value, an entry to [Conditions], and a field to target if the condition
// needs another property of calls.
type Condition struct {
	Key      string                // of the setting in a rule
	Text     func(*Rule) *string   // the field of the rule, if the value is one text
	List     func(*Rule) *[]string // the field of the rule, if the value is a list
	Want     string                // describes a valid text of the list
	Words    []string              // the only valid texts; empty means any
	Required bool

	needs   knowledge
	compile func(*Snapshot, Rule) (condition, error)
	signs   func(text string) (glob string, signs *regexp.Regexp) // of a regular expression in the text; may be nil
}

// A condition is the compiled condition of a rule.
type condition interface {
	// unfit returns the reason why the rule does not apply to t, or "".
	unfit(t target) string

	// covers reports whether every call that fits another condition of the same key fits
	// this one too. It may return false although they do.
	covers(other condition) bool
}

// Knowledge says which parts of a target are known.
type knowledge uint8

const (
	ofCall   knowledge = iota // everything
	ofCaller                  // its name and the principal
	ofName                    // its name
)

// A target has the properties of a call that conditions compare.
type target struct {
	known     knowledge // conditions that need more count as satisfied
	upstream  string
	kind      Kind
	name      string
	principal Principal
	arguments jsontext.Value
}

func (c *Call) target(kind Kind) target {
	return target{upstream: c.Upstream, kind: kind, name: c.Name, principal: c.Principal, arguments: c.Arguments}
}

// Conditions returns all conditions, in the order of their evaluation.
func Conditions() []Condition { return conditions }

var conditions = []Condition{
	{
		Key: "kind", Text: func(r *Rule) *string { return (*string)(&r.Kind) }, Words: []string{string(Tool), string(Resource), string(Prompt)},
		needs: ofName,
		compile: func(_ *Snapshot, r Rule) (condition, error) {
			if !r.Kind.known() {
				return nil, fmt.Errorf("%q is not tool, resource or prompt", r.Kind)
			}
			return kindCondition(r.Kind), nil
		},
	},
	{
		Key: "upstream", Text: func(r *Rule) *string { return &r.Upstream },
		needs: ofName,
		compile: func(s *Snapshot, r Rule) (condition, error) {
			g, err := compileGlob(r.Upstream)
			if err == nil && s.upstreams != nil && !slices.ContainsFunc(s.upstreams, g.match) {
				err = fmt.Errorf("%q matches none of %s", r.Upstream, strings.Join(s.upstreams, ", "))
			}
			return &globCondition{g, func(t target) string { return t.upstream }, "applies to another upstream"}, err
		},
		signs: func(text string) (string, *regexp.Regexp) { return text, signsInNames },
	},
	{
		Key: "match", Text: func(r *Rule) *string { return &r.Match }, Required: true,
		needs: ofName,
		compile: func(_ *Snapshot, r Rule) (condition, error) {
			g, err := compileGlob(r.Match)
			return &globCondition{g, func(t target) string { return t.name }, "the name does not match"}, err
		},
		signs: func(text string) (string, *regexp.Regexp) { return text, signsFor(text) },
	},
	{
		Key: "principals", List: func(r *Rule) *[]string { return &r.Principals }, Want: "a name or pattern, or group: followed by one",
		needs:   ofCaller,
		compile: func(_ *Snapshot, r Rule) (condition, error) { return compilePrincipals(r.Principals) },
		signs:   func(text string) (string, *regexp.Regexp) { name, _ := Group(text); return name, signsInIDs },
	},
	{
		Key: "secrets", List: func(r *Rule) *[]string { return &r.Secrets }, Want: "known, likely or a regular expression",
		needs:   ofCall,
		compile: func(_ *Snapshot, r Rule) (condition, error) { return compileSecrets(r.Secrets) },
	},
}

// given reports whether a rule has the condition. An empty list counts, nil does not.
func (c *Condition) given(r *Rule) bool {
	if c.List != nil {
		return *c.List(r) != nil
	}
	return *c.Text(r) != ""
}

// texts returns the texts of the condition in a rule, and their settings.
func (c *Condition) texts(r *Rule) (settings, texts []string) {
	if c.List == nil {
		return []string{c.Key}, []string{*c.Text(r)}
	}
	for i, text := range *c.List(r) {
		settings, texts = append(settings, fmt.Sprintf("%s[%d]", c.Key, i)), append(texts, text)
	}
	return settings, texts
}

// A kindCondition admits calls of one kind.
type kindCondition Kind

func (k kindCondition) unfit(t target) string {
	if t.kind != Kind(k) {
		return "applies to the kind " + string(k)
	}
	return ""
}

func (k kindCondition) covers(other condition) bool { return k == other }

// A globCondition admits calls by one of their texts.
type globCondition struct {
	glob glob
	text func(target) string
	why  string // a call does not fit
}

func (g *globCondition) unfit(t target) string {
	if !g.glob.match(g.text(t)) {
		return g.why
	}
	return ""
}

func (g *globCondition) covers(other condition) bool {
	o, ok := other.(*globCondition)
	return ok && g.glob.covers(&o.glob)
}

// A principalsCondition admits calls of some principals. Anonymous principals never match.
type principalsCondition []principalGlob

// A principalGlob matches the id of a principal, or one of its groups.
type principalGlob struct {
	glob  glob
	group bool
}

func compilePrincipals(patterns []string) (condition, error) {
	if len(patterns) == 0 {
		return nil, errors.New("an empty list matches no principal; remove it to match all")
	}
	globs := make(principalsCondition, len(patterns))
	for i, p := range patterns {
		name, group := Group(p)
		g, err := compileGlob(name)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", p, err)
		}
		globs[i] = principalGlob{g, group}
	}
	return globs, nil
}

func (p principalsCondition) unfit(t target) string {
	admits := func(g principalGlob) bool {
		if g.group {
			return slices.ContainsFunc(t.principal.Groups, g.glob.match)
		}
		return g.glob.match(t.principal.ID)
	}
	if t.principal.Anonymous || !slices.ContainsFunc(p, admits) {
		return "does not apply to this principal"
	}
	return ""
}

func (p principalsCondition) covers(other condition) bool {
	narrow, ok := other.(principalsCondition)
	return ok && !slices.ContainsFunc(narrow, func(n principalGlob) bool {
		return !slices.ContainsFunc(p, func(w principalGlob) bool { return w.group == n.group && w.glob.covers(&n.glob) })
	})
}

// A secretsCondition admits calls whose arguments have a secret.
type secretsCondition struct {
	wanted []string
	finder *secrets.Finder
}

func compileSecrets(wanted []string) (condition, error) {
	if len(wanted) == 0 {
		return nil, errors.New("an empty list finds no secret; remove it to match all arguments")
	}
	finder, err := secrets.New(wanted)
	return &secretsCondition{wanted, finder}, err
}

func (s *secretsCondition) unfit(t target) string {
	if !s.finder.InJSON(t.arguments) {
		return "the arguments have no such secret"
	}
	return ""
}

func (s *secretsCondition) covers(other condition) bool {
	narrow, ok := other.(*secretsCondition)
	return ok && !slices.ContainsFunc(narrow.wanted, func(want string) bool { return !slices.Contains(s.wanted, want) })
}
