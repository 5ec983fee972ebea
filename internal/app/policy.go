package app

import (
	"errors"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// hasPolicy reports whether cfg says which calls are forwarded.
func hasPolicy(cfg config.Config) bool {
	return len(cfg.Rules) > 0 || len(cfg.Cedar.Sources) > 0 || cfg.Default.Action != ""
}

// Settings returns what cfg says about calls, and warnings about what in it is
// probably not meant. Without rules, policies and default there is no policy,
// unless some tools must be called as a task: then every call is judged, and
// forwarded.
// If anything is wrong the error is a [*config.Error]. It and the warnings
// name the place in the file.
func Settings(cfg config.Config) (*gate.Settings, []config.Problem, error) {
	s := &gate.Settings{
		HideDenied:    cfg.HideDenied,
		TasksOnly:     cfg.Waiting.TasksOnly,
		ForceRequired: cfg.Tasks.ForceRequired,
	}
	for _, u := range cfg.Upstreams {
		s.Upstreams = append(s.Upstreams, u.Name)
	}
	if !hasPolicy(cfg) {
		if len(cfg.Tasks.ForceRequired) == 0 {
			return s, nil, nil
		}
		cfg.Default = config.Rule{Action: string(policy.Forward)}
	}
	c, err := policyConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	snapshot, warnings, err := policy.Compile(c)
	if err != nil {
		if wrong := new(policy.Error); errors.As(err, &wrong) {
			err = config.NewError(located(cfg, wrong.Problems))
		}
		return nil, nil, err
	}
	s.Policy = snapshot
	return s, located(cfg, warnings), nil
}

// located returns problems of a policy with their places in files.
func located(cfg config.Config, problems []policy.Problem) []config.Problem {
	found := make([]config.Problem, len(problems))
	for i, p := range problems {
		at := config.Position{Source: p.Place.Source, Line: p.Place.Line, Column: p.Place.Column}
		if p.Place.Setting != "" {
			at = cfg.Origins.Of(p.Place.Setting)
		}
		found[i] = config.Problem{At: at, Setting: p.Place.Setting, Text: p.Text}
	}
	return found
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
	c.Upstreams = append(c.Upstreams, cfg.OtherServers...)
	return c, nil
}

func policyRule(r config.Rule) policy.Rule {
	return policy.Rule{
		Name:       r.Name,
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
