package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/e2e/hosts/model"
	"github.com/thoughtgate/thoughtgate-go/internal/demo"
)

// The one task of every host.
const (
	toolName  = "delete_file"
	arguments = `{"path":"/payroll/bonuses.csv"}`
	prompt    = "Delete /payroll/bonuses.csv with the delete_file tool, then tell me what the tool said."
	endpoint  = "/mcp"                              // of the gate
	comeBack  = "I am back. Please try that again." // the user's later message
)

// A cell is one host in one scenario.
type cell struct {
	host     host
	scenario scenario
	gate     string // the gate's executable
	modules  string // the node_modules of the host
	dir      string // for the files of this run
	now      func() time.Time
	linger   time.Duration // how long to watch after the host has ended
}

// A site has everything that a host uses in a cell: a gate with an upstream, a model, and an
// approver.
type site struct {
	traffic  func() (traffic, error) // returns the traffic of the host
	runs     func() (int, error)     // returns the number of runs of the tool
	model    *model.Server
	approver *approver
	gateURL  string
	modelURL string
	stop     func() // ends the approver's work
	closers  []func()
}

// close ends everything, in reverse order.
func (s *site) close() {
	for _, stop := range slices.Backward(s.closers) {
		stop()
	}
}

// run runs the host and returns the record.
func (c *cell) run(ctx context.Context) (record, error) {
	if !c.scenario.suits(c.host) {
		return record{}, errUnsuited
	}
	s, err := c.open(ctx)
	if s != nil {
		defer s.close()
	}
	if err != nil {
		return record{}, err
	}
	e, err := c.play(ctx, s)
	if err != nil {
		return record{}, err
	}
	pause(ctx, c.linger)
	s.stop() // no more decisions
	if _, err := s.approver.list(ctx); err != nil {
		return record{}, err
	}
	return c.collect(s, e)
}

// open starts everything that the host needs. After an error, the site has everything that was
// started.
func (c *cell) open(ctx context.Context) (*site, error) {
	s := &site{}
	start := c.openGate
	if c.host.wrap {
		start = c.openWrap
	}
	operators, secret, err := start(ctx, s)
	if err != nil {
		return s, err
	}
	s.model = model.New(model.Script{Tool: c.scenario.tool(), Arguments: arguments, MaxCalls: c.scenario.maxCalls(), Retry: c.scenario.retry, Again: comeBack}, c.now)
	if s.modelURL, err = s.serve(ctx, s.model); err != nil {
		return s, err
	}
	s.approver = newApprover(operators, secret, c.scenario, c.now)
	s.stop = s.background(ctx, s.approver.work)
	if c.scenario.strikes != "" {
		s.background(ctx, func(ctx context.Context) { c.strike(ctx, s) })
	}
	return s, nil
}

// openGate starts a gate for a host that uses HTTP, and a server behind the gate.
func (c *cell) openGate(ctx context.Context, s *site) (operators, secret string, err error) {
	upstream := demo.New()
	s.runs = func() (int, error) { return toolRuns(upstream), nil }
	servers := []http.Handler{upstream}
	if c.scenario.three { // the server of the tool is the second
		servers = []http.Handler{demo.New(), upstream, demo.New()}
	}
	var urls []string
	for _, h := range servers {
		if !c.host.modern {
			h = legacyServer{h}
		}
		url, err := s.serve(ctx, h)
		if err != nil {
			return "", "", err
		}
		urls = append(urls, url+"/mcp")
	}
	gate, err := startGate(ctx, c.gate, c.dir, gateConfig(urls, c.scenario))
	if err != nil {
		return "", "", err
	}
	s.closers = append(s.closers, gate.stop)
	wire, err := os.Create(filepath.Join(c.dir, wireFile))
	if err != nil {
		return "", "", err
	}
	s.closers = append(s.closers, func() { _ = wire.Close() })
	recorder, err := newRecorder(gate.agents, wire, c.now)
	if err != nil {
		return "", "", err
	}
	s.traffic = func() (traffic, error) { return recorder.counted(), nil }
	s.gateURL, err = s.serve(ctx, recorder)
	return gate.operators, token, err
}

// hasRun reports whether the tool has run.
func (s *site) hasRun() bool {
	n, err := s.runs()
	return n > 0 && err == nil
}

func toolRuns(upstream *demo.Server) int {
	runs := 0
	for _, call := range upstream.Calls() {
		if call.Tool == toolName {
			runs++
		}
	}
	return runs
}

func (s *site) serve(ctx context.Context, h http.Handler) (string, error) {
	url, stop, err := serve(ctx, h)
	if err == nil {
		s.closers = append(s.closers, stop)
	}
	return url, err
}

// background runs work until the returned function is called or the site is closed.
func (s *site) background(ctx context.Context, work func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { work(ctx) })
	stop = func() { cancel(); group.Wait() }
	s.closers = append(s.closers, stop)
	return stop
}

// play runs the host as the scenario requires: once, or again when its user is back.
func (c *cell) play(ctx context.Context, s *site) (ending, error) {
	p, err := c.prepare(ctx, s)
	if err != nil {
		return ending{}, err
	}
	e, err := c.attend(ctx, s, p, c.scenario.leave)
	if err != nil || c.scenario.leave == 0 {
		return e, err
	}
	if c.scenario.back > 0 {
		if err := s.approver.wait(ctx, c.scenario.back); err != nil {
			return e, err
		}
		return c.attend(ctx, s, p, 0)
	}
	// A call without a waiting client must not run after it was approved.
	return e, s.approver.wait(ctx, c.scenario.after+5*time.Second)
}

// An ending describes how a host ended.
type ending struct {
	how     string
	seconds float64
	at      time.Time
	output  string
}

// collect returns the record of a run.
func (c *cell) collect(s *site, e ending) (record, error) {
	states, decided, err := s.approver.outcome()
	if err != nil && len(states) == 0 && c.scenario.action == "approve" {
		return record{}, fmt.Errorf("the approver saw no call: %w", err)
	}
	traffic, err := s.traffic()
	if err != nil {
		return record{}, err
	}
	runs, err := s.runs()
	if err != nil {
		return record{}, err
	}
	r := record{
		Host: c.host.name, Scenario: c.scenario.name, Day: c.now().UTC().Format(time.DateOnly),
		Ended: e.how, Seconds: tenths(e.seconds), Traffic: traffic, Approvals: states, Runs: runs,
		Unknown: s.model.Unknown(),
	}
	told := e.at
	switch c.host.prints {
	case resultPerLine:
		r.Saw = nonEmpty(strings.Split(e.output, "\n")...)
	case oneResult:
		r.Saw = nonEmpty(e.output)
	default:
		r.Saw, told = lastTurn(s.model.Turns())
	}
	// The approver notices an expiry shortly after it happens.
	if seconds := told.Sub(decided).Seconds(); !decided.IsZero() && len(r.Saw) > 0 && seconds > -1 {
		seconds = tenths(max(0, seconds))
		r.Answer = &seconds
	}
	return r, nil
}

// lastTurn returns the results in the model's last turn, and the time at which it got the last
// one.
func lastTurn(turns []model.Turn) ([]string, time.Time) {
	var saw []string
	var at time.Time
	for _, t := range turns {
		if n := len(t.Results); n > 0 && (len(saw) != n || saw[n-1] != t.Results[n-1]) {
			saw, at = t.Results, t.At
		}
	}
	return saw, at
}

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return strings.TrimSpace(text) == "" })
}

func tenths(seconds float64) float64 { return float64(int(seconds*10+0.5)) / 10 }

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
