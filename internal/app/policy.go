package app

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// Settings returns what cfg says about calls, and warnings about what in it is
// probably not meant. Without rules, policies and default there is no policy.
// If anything is wrong the error is a [*config.Error]. It and the warnings
// tell the place in the file.
func Settings(cfg config.Config) (*gate.Settings, []policy.Warning, error) {
	s := &gate.Settings{
		HideDenied:    cfg.HideDenied,
		TasksOnly:     cfg.Waiting.TasksOnly,
		ForceRequired: cfg.Tasks.ForceRequired,
	}
	for _, u := range cfg.Upstreams {
		s.Upstreams = append(s.Upstreams, u.Name)
	}
	if len(cfg.Rules) == 0 && len(cfg.Cedar.Sources) == 0 && cfg.Default.Action == "" {
		return s, nil, nil
	}
	c, err := policyConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	snapshot, warnings, err := policy.Compile(c)
	if err != nil {
		return nil, nil, locateErrors(cfg, err)
	}
	s.Policy = snapshot
	return s, locateWarnings(cfg, warnings), nil
}

func policyConfig(cfg config.Config) (policy.Config, error) {
	zone, err := time.LoadLocation(cfg.Cedar.Timezone)
	if err != nil {
		return policy.Config{}, fmt.Errorf("cedar.timezone: %w", err)
	}
	c := policy.Config{
		Default:   policyRule(cfg.Default),
		Workflows: make(map[string]policy.Workflow, len(cfg.Workflows)),
		Observe:   cfg.Observe,
		Zone:      zone,
	}
	for _, r := range cfg.Rules {
		c.Rules = append(c.Rules, policyRule(r))
	}
	for _, w := range cfg.Workflows {
		c.Workflows[w.Name] = policy.Workflow{Quorum: w.Quorum, Timeout: w.Timeout, SelfApproval: w.SelfApproval}
	}
	for _, s := range cfg.Cedar.Sources {
		c.Cedar = append(c.Cedar, policy.Source(s))
	}
	for _, u := range cfg.Upstreams {
		c.Upstreams = append(c.Upstreams, u.Name)
	}
	return c, nil
}

func policyRule(r config.Rule) policy.Rule {
	return policy.Rule{
		Match:      r.Match,
		Action:     policy.Action(r.Action),
		Workflow:   r.Workflow,
		Reason:     r.Reason,
		Upstream:   r.Upstream,
		Kind:       policy.Kind(r.Kind),
		Principals: r.Principals,
		Observe:    r.Observe,
	}
}

// locateErrors returns what is wrong with a policy, each with its place.
func locateErrors(cfg config.Config, err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	problems := make([]config.Problem, len(all))
	for i, e := range all {
		problems[i] = locate(cfg, strings.ReplaceAll(e.Error(), "\n", "; "))
	}
	return config.NewError(problems)
}

// locateWarnings returns warnings whose places are in files.
func locateWarnings(cfg config.Config, warnings []policy.Warning) []policy.Warning {
	located := make([]policy.Warning, len(warnings))
	for i, w := range warnings {
		p := locate(cfg, w.String())
		where := p.At.String()
		if p.Setting != "" {
			where += ": " + p.Setting
		}
		located[i] = policy.Warning{Where: where, Text: p.Text}
	}
	return located
}

// locate finds the place of a complaint of package policy, which begins with a
// setting or with the name of a Cedar file.
func locate(cfg config.Config, complaint string) config.Problem {
	for _, s := range cfg.Cedar.Sources {
		if rest, ok := strings.CutPrefix(complaint, s.Name+":"); ok {
			return locateCedar(s.Name, rest)
		}
	}
	setting, text, found := strings.Cut(complaint, ": ")
	if !found {
		return config.Problem{At: cfg.Origins.Of(""), Text: complaint}
	}
	at := cfg.Origins.Of(setting)
	for _, key := range []string{"match", "action", "workflow", "kind", "upstream", "principals"} {
		if inner, ok := strings.CutPrefix(text, key+": "); ok {
			setting += "." + key
			return config.Problem{At: cfg.Origins.Of(setting), Setting: setting, Text: inner}
		}
		if strings.HasPrefix(text, key+" ") {
			at = cfg.Origins.Of(setting + "." + key)
		}
	}
	return config.Problem{At: at, Setting: setting, Text: text}
}

// placeInText is how the parser of Cedar tells a place in a text whose name it
// does not know.
var placeInText = regexp.MustCompile(`^(?:parse error at )?<input>:(\d+):(\d+):? (.*)$`)

// locateCedar finds the place in a Cedar file of a complaint that goes on
// after the file's name with " TEXT" or "LINE: TEXT".
func locateCedar(file, complaint string) config.Problem {
	p := config.Problem{At: config.Position{Source: file}, Text: strings.TrimPrefix(complaint, " ")}
	if line, text, ok := strings.Cut(complaint, ": "); ok {
		if n, err := strconv.Atoi(line); err == nil {
			p.At.Line, p.Text = n, text
			return p
		}
	}
	text, syntax := strings.CutPrefix(p.Text, "parser error: ")
	if !syntax {
		return p
	}
	if m := placeInText.FindStringSubmatch(text); m != nil {
		p.At.Line, _ = strconv.Atoi(m[1])
		p.At.Column, _ = strconv.Atoi(m[2])
		text = m[3]
	}
	p.Text = "not Cedar: " + text
	return p
}
