package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/conformance/suite"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// With this variable, the test binary plays the three programs: the server (-http=…), the gate
// (serve …) and the suite (any other arguments). Its value is the number of the run through
// the gate in which the suite reports a loss.
const standIn = "CONFORMANCE_TEST_STAND_IN"

func TestMain(m *testing.M) {
	losing, ok := os.LookupEnv(standIn)
	if !ok {
		os.Exit(m.Run())
	}
	if err := play(losing, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func play(losing string, args []string) error {
	if addr, ok := strings.CutPrefix(args[0], "-http="); ok {
		return listen(addr, slog.New(slog.DiscardHandler))
	}
	if args[0] == "serve" {
		return listen(args[2], slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	}
	return playSuite(losing, args)
}

// listen accepts connections until the process ends.
func listen(addr string, log *slog.Logger) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Info("starting", "agents", "not yet")
	log.Info("listening", "agents", l.Addr().String(), "operators", "127.0.0.1:1")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		c.Close()
	}
}

// playSuite prints results like the suite, if it can reach the server. It has more scenarios
// than may differ by chance.
func playSuite(losing string, args []string) error {
	target, err := url.Parse(args[3])
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp", target.Host)
	if err != nil {
		return err
	}
	c.Close()
	out := args[5]
	runs, err := filepath.Glob(filepath.Join(filepath.Dir(out), "*-gate-*"))
	if err != nil {
		return err
	}
	scenarios := []string{"s0", "s1", "s2", "s3", "s4", "s5"}
	if i := slices.Index(args, "--scenario"); i >= 0 {
		scenarios = args[i+1 : i+2]
	}
	fmt.Printf("Running all suite (%d scenarios)\n", len(scenarios))
	for _, s := range scenarios {
		status := "SUCCESS"
		lost := s == "s1" && strings.Contains(losing, strconv.Itoa(len(runs)))
		if strings.Contains(out, "-gate-") && (lost || losing == "all") || losing == "direct" {
			status = "FAILURE"
		}
		dir := filepath.Join(out, "server-"+s+"-2026-11-15T03-06-26-991Z")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		checks := `[{"id":"a","status":"` + status + `","errorMessage":"no"}]`
		if err := os.WriteFile(filepath.Join(dir, "checks.json"), []byte(checks), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// newRig returns a rig whose programs are played by the test binary.
func newRig(t *testing.T, losing string) *rig {
	t.Helper()
	t.Setenv(standIn, losing)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise every program takes a second to end
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &rig{suite: &suite.Suite{Node: self, Script: "suite"}, dir: t.TempDir(), server: self, gate: self}
}

func TestCompareRunsDifferencesAgain(t *testing.T) {
	tests := []struct {
		name    string
		losing  string
		reruns  []string
		verdict string
	}{
		{"no loss", "", nil, "6 passed, 0 failed"},
		{"lost once", "1", []string{"s1"}, "6 passed, 0 failed"},
		{"lost twice", "1,2", []string{"s1", "s1"}, "6 passed, 0 failed"},
		{"lost every time", "1,2,3", []string{"s1", "s1"}, "5 passed, 1 failed"},
		{"too much lost for chance", "all", nil, "0 passed, 6 failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := newRig(t, tt.losing).compare(t.Context(), leg{version: "2025-11-25", sessions: true})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.reruns, o.reruns); diff != "" {
				t.Errorf("run again (-want +got):\n%s", diff)
			}
			lines := strings.Split(strings.TrimSpace(report{o}.String()), "\n")
			if diff := cmp.Diff(tt.verdict, lines[len(lines)-1]); diff != "" {
				t.Errorf("last line (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompareNeedsPassingScenario(t *testing.T) {
	_, err := newRig(t, "direct").compare(t.Context(), leg{})
	if err == nil || !strings.Contains(err.Error(), "nothing passes directly") {
		t.Errorf("error = %v, want one that no check passes directly", err)
	}
}

func TestProcess(t *testing.T) {
	b := newRig(t, "")
	endpoint, p, err := b.startServer(t.Context(), leg{})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if !reachable(t.Context(), u.Host) {
		t.Error("a started server is not reachable")
	}
	p.stop()
	if reachable(t.Context(), u.Host) {
		t.Error("a stopped server is reachable")
	}
}

func TestProcessThatDoesNotStart(t *testing.T) {
	b := newRig(t, "")
	p, err := start(t.Context(), b.gate, "serve", "--listen", "nowhere")
	if err != nil {
		t.Fatal(err)
	}
	err = p.await(t.Context(), func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("error = %v, want one with the program's output", err)
	}
}

// A difference by design is reported, and is no loss.
func TestReportOfClients(t *testing.T) {
	const check = "resource-parameter-matches-prm"
	good, bad := suite.Check{ID: check, Status: suite.Success}, suite.Check{ID: check, Status: suite.Failure}
	r := report{{leg: clients, direct: suite.Results{"auth/x": {good}}, gated: suite.Results{"auth/x": {bad}}}}
	if text := r.String(); !strings.Contains(text, "by design: clients auth/x "+check) || !strings.HasSuffix(text, "\n0 passed, 0 failed\n") {
		t.Error(text)
	}
	r[0].leg = leg{}
	if text := r.String(); !strings.HasSuffix(text, "\n0 passed, 1 failed\n") {
		t.Error(text)
	}
}

// The suite runs the client with the gate between it and the server.
func TestThrough(t *testing.T) {
	b := newRig(t, "")
	client := filepath.Join(t.TempDir(), "client")
	testenv.WriteProgram(t, client, "#!/bin/sh\necho \"$1\" >$0.url\nexit 3\n")
	err := through(t.Context(), b.gate, client, "http://127.0.0.1:1/mcp")
	got, _ := os.ReadFile(client + ".url")
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 3 || !strings.HasPrefix(string(got), "http://127.0.0.1:") || strings.Contains(string(got), ":1/") {
		t.Errorf("the client got %q and ended with %v", got, err)
	}
}

func TestReport(t *testing.T) {
	good, bad := suite.Check{ID: "a", Status: suite.Success}, suite.Check{ID: "a", Status: suite.Failure, Message: "no"}
	r := report{
		{
			leg:    leg{version: "2025-06-18", sessions: true},
			direct: suite.Results{"ping": {good}, "tools-list": {good, good, bad}, "caching": nil},
			gated:  suite.Results{"ping": {good}, "tools-list": {good, bad, bad}, "caching": nil},
			reruns: []string{"ping", "tools-list", "tools-list"},
		},
		{
			leg:    leg{},
			direct: suite.Results{"ping": {good}, "resources-list": {}},
			gated:  suite.Results{"ping": {good}, "resources-list": nil},
		},
	}
	const want = `
SCENARIO        RUNS  CHECKS  PASS DIRECTLY  PASS THROUGH THE GATE
caching         1     0       0              0
ping            2     2       2              2
resources-list  1     0       0              0
tools-list      1     3       2              1

run again: 2025-06-18-sessions ping
run again: 2025-06-18-sessions tools-list
run again: 2025-06-18-sessions tools-list
LOST: 2025-06-18-sessions tools-list a: SUCCESS directly, FAILURE through the gate: no
LOST: any-stateless resources-list: the scenario did not finish
3 passed, 2 failed
`
	if diff := cmp.Diff(want, r.String()); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	const wantFailures = `fails directly: 2025-06-18-sessions caching does not finish
fails directly: 2025-06-18-sessions tools-list a: no
`
	if diff := cmp.Diff(wantFailures, r.directFailures()); diff != "" {
		t.Errorf("direct failures (-want +got):\n%s", diff)
	}
}
