package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options define the measurements and their duration.
type options struct {
	parts   []string
	targets []string
	conns   []int
	gate    string // a built gate; built from source when empty

	rounds    int
	round     time.Duration
	gibibytes float64 // length of a big answer
	streams   int
	starts    int
	benchTime time.Duration
	benchRuns int    // of each Go benchmark; the fastest counts
	seed      uint64 // of the order in which targets are measured
}

func parseOptions(args []string, out io.Writer) (options, error) {
	o := options{rounds: 9, round: 300 * time.Millisecond, gibibytes: 1, streams: 10_000, starts: 9, benchTime: 100 * time.Millisecond, benchRuns: 3, seed: 1}
	quick := options{rounds: 3, round: 200 * time.Millisecond, gibibytes: 0.25, streams: 2_000, starts: 3, benchTime: 10 * time.Millisecond, benchRuns: 1, seed: 1}
	if slices.ContainsFunc(args, func(arg string) bool { return arg == "-quick" || arg == "--quick" }) {
		o = quick
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Bool("quick", false, "fewer and shorter rounds: two minutes, rougher figures")
	parts := flags.String("parts", strings.Join(partNames(), ","), "what to measure")
	targets := flags.String("targets", strings.Join(installed(), ","), "the ways to the upstream to compare")
	conns := flags.String("conns", "1,32,256", "numbers of connections, which is of calls at a time")
	flags.StringVar(&o.gate, "gate", "", "measure this `binary` instead of building one")
	flags.IntVar(&o.rounds, "rounds", o.rounds, "rounds of which medians are taken")
	flags.DurationVar(&o.round, "round", o.round, "length of a round")
	flags.Float64Var(&o.gibibytes, "gib", o.gibibytes, "GiB of a streamed result")
	flags.IntVar(&o.streams, "streams", o.streams, "idle event streams, subscribers, and connections at a time")
	flags.Uint64Var(&o.seed, "seed", o.seed, "of the order in which targets are measured")
	flags.IntVar(&o.starts, "starts", o.starts, "starts of which the median is taken")
	flags.DurationVar(&o.benchTime, "benchtime", o.benchTime, "time for each run of a Go benchmark")
	flags.IntVar(&o.benchRuns, "benchruns", o.benchRuns, "runs of a Go benchmark, of which the fastest counts")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	var err error
	if o.parts, err = chosen(*parts, partNames()); err != nil {
		return options{}, err
	}
	if o.targets, err = chosen(*targets, allTargets()); err != nil {
		return options{}, err
	}
	if o.conns, err = numbers(*conns); err != nil {
		return options{}, err
	}
	if o.gate != "" {
		if o.gate, err = filepath.Abs(o.gate); err != nil { // it is started in another directory
			return options{}, err
		}
	}
	return o, o.check()
}

func (o options) check() error {
	if min(o.rounds, o.streams, o.starts, o.benchRuns) < 1 || o.round <= 0 || o.gibibytes <= 0 || o.benchTime <= 0 {
		return errors.New("every number and duration must be positive")
	}
	return nil
}

// chosen splits a list, and refuses names that are not in known.
func chosen(list string, known []string) ([]string, error) {
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%q is not one of %s", name, strings.Join(known, ", "))
		}
	}
	return names, nil
}

func numbers(list string) ([]int, error) {
	var out []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number of connections", text)
		}
		out = append(out, n)
	}
	return out, nil
}
