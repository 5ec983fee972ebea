package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
)

// load returns the configuration that s and the environment describe. When
// there is none it prints the warnings, which often say why.
func load(stderr io.Writer, s config.Sources) (config.Config, []config.Problem, error) {
	s.Environ, s.Now = os.Environ(), time.Now()
	cfg, warnings, err := config.Load(s)
	if err != nil {
		warn(stderr, warnings)
		return cfg, nil, err
	}
	return cfg, warnings, nil
}

// A loaded is a configuration and what it says about calls.
type loaded struct {
	config   config.Config
	settings *gate.Settings
}

// loadPolicy is load for those who do not serve: it compiles the policy, prints
// all warnings, and returns how many there were.
func loadPolicy(stderr io.Writer, s config.Sources) (l loaded, warnings int, err error) {
	cfg, problems, err := load(stderr, s)
	if err != nil {
		return loaded{}, 0, err
	}
	warn(stderr, problems)
	settings, doubts, err := app.Settings(cfg)
	warn(stderr, doubts)
	return loaded{cfg, settings}, len(problems) + len(doubts), err
}

func warn(w io.Writer, warnings []config.Problem) {
	for _, p := range warnings {
		_, _ = fmt.Fprintln(w, "warning:", p)
	}
}
