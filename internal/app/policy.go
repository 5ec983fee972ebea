package app

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// hasPolicy reports whether cfg has rules, Cedar policies or a default.
func hasPolicy(cfg config.Config) bool {
	return len(cfg.Rules) > 0 || len(cfg.Cedar.Sources) > 0 || cfg.Default.Action != ""
}

// judges reports whether a gate with cfg judges calls, for which it opens a store.
func judges(cfg config.Config) bool {
	return hasPolicy(cfg) || len(cfg.Tasks.ForceRequired) > 0 || cfg.Pins.File != ""
}

// Settings returns the policy settings of cfg, and warnings about probable mistakes.
// Without rules, Cedar policies and default there is no policy, except that
// tasks.force_required and pins need one that forwards every call. An error is a [*config.Error];
// it and the warnings have positions in the file.
func Settings(cfg config.Config) (*catalog.Settings, []config.Problem, error) {
	s := &catalog.Settings{
		HideDenied:    cfg.HideDenied,
		TasksOnly:     cfg.Waiting.TasksOnly,
		ForceRequired: cfg.Tasks.ForceRequired,
		Pins:          cfg.Pins.Tools,
	}
	for _, u := range cfg.Upstreams {
		s.Upstreams = append(s.Upstreams, u.Name)
	}
	if !hasPolicy(cfg) {
		if !judges(cfg) {
			return s, nil, nil
		}
		cfg.Default = policy.Rule{Action: policy.Forward}
	}
	c, err := PolicyConfig(cfg)
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
	return s, slices.Concat(located(cfg, warnings), patternsForNames(cfg), unpinned(cfg)), nil
}

// unpinned returns warnings about upstreams of which the lock file has no tools.
func unpinned(cfg config.Config) []config.Problem {
	var warnings []config.Problem
	for _, u := range cfg.Upstreams {
		if cfg.Pins.File != "" && cfg.Pins.Tools[u.Name] == nil {
			text := "has no tools of the upstream " + u.Name + ", so all of them are new: run thoughtgate pin"
			warnings = append(warnings, config.Problem{At: cfg.Origins.Of("pins.file"), Setting: "pins.file", Text: text})
		}
	}
	return warnings
}

// patternsForNames returns warnings about patterns in tasks.force_required, which takes names.
func patternsForNames(cfg config.Config) []config.Problem {
	var warnings []config.Problem
	for i, name := range cfg.Tasks.ForceRequired {
		if strings.ContainsAny(name, `*?[]()|^$\`) {
			setting := fmt.Sprintf("tasks.force_required[%d]", i)
			text := strconv.Quote(name) + " is the name of one tool, not a pattern"
			warnings = append(warnings, config.Problem{At: cfg.Origins.Of(setting), Setting: setting, Text: text})
		}
	}
	return warnings
}

// located returns problems of a policy with their positions in files.
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

// PolicyConfig returns the source of the policy of cfg, which must have one.
func PolicyConfig(cfg config.Config) (policy.Config, error) {
	zone, err := time.LoadLocation(cfg.Cedar.Timezone)
	if err != nil {
		return policy.Config{}, fmt.Errorf("cedar.timezone: %w", err)
	}
	c := policy.Config{
		Rules:     cfg.Rules,
		Default:   cfg.Default,
		Cedar:     cfg.Cedar.Sources,
		Workflows: make(map[string]policy.Workflow, len(cfg.Workflows)),
		Observe:   cfg.Observe,
		Zone:      zone,
		Pins:      pins(cfg.Pins),
	}
	for _, w := range cfg.Workflows {
		c.Workflows[w.Name] = w
	}
	for _, u := range cfg.Upstreams {
		c.Upstreams = append(c.Upstreams, u.Name)
	}
	c.Upstreams = append(c.Upstreams, cfg.OtherServers...)
	return c, nil
}

// pins returns the pins of cfg for policy, or nil without a lock file.
func pins(cfg config.Pins) *policy.Pins {
	if cfg.File == "" {
		return nil
	}
	p := &policy.Pins{Digests: map[string]map[string]string{}, Unpinned: cfg.Unpinned}
	for upstream, tools := range cfg.Tools {
		p.Digests[upstream] = map[string]string{}
		for name, definition := range tools {
			p.Digests[upstream][name] = catalog.ReadTool(jsonrpc.Value{Bytes: definition}).DigestText()
		}
	}
	return p
}
