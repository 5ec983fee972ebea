package suite_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/conformance/suite"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// script returns a suite that is a shell script. It gets the arguments of the real suite, and
// the directory for its results in $out.
func script(t *testing.T, body string) *suite.Suite {
	t.Helper()
	file := filepath.Join(t.TempDir(), "suite.sh")
	head := "echo \"$@\" >\"$0.args\"\n" +
		"out=$5\n" +
		"write() { mkdir \"$out/server-$1-2026-11-15T03-06-26-991Z\" && printf %s \"$2\" >\"$out/server-$1-2026-11-15T03-06-26-991Z/checks.json\"; }\n"
	if err := os.WriteFile(file, []byte(head+body), 0o600); err != nil {
		t.Fatal(err)
	}
	return &suite.Suite{Node: "sh", Script: file}
}

func TestRun(t *testing.T) {
	s := script(t, `
echo "Running all suite (3 scenarios) against it"
write tools-list '[{"id":"a","name":"A","status":"SUCCESS","details":{"n":1}},{"id":"b","status":"FAILURE","errorMessage":"no"}]'
write ping '[]'
mkdir "$out/server-sse-polling-2026-11-15T03-06-26-992Z"
exit 1
`)
	dir := filepath.Join(t.TempDir(), "results")
	got, err := s.Run(t.Context(), suite.Target{URL: "http://127.0.0.1:1/mcp", Version: "2025-11-25"}, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := suite.Results{"tools-list": {ok("a"), bad("b", "no")}, "ping": {}, "sse-polling": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	args, err := os.ReadFile(s.Script + ".args")
	if err != nil {
		t.Fatal(err)
	}
	wantArgs := "server --url http://127.0.0.1:1/mcp --output-dir " + dir + " --timeout 120000 --suite all --spec-version 2025-11-25\n"
	if diff := cmp.Diff(wantArgs, string(args)); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

func TestRunClient(t *testing.T) {
	s := script(t, `
echo "Running all suite (3 scenarios) in parallel..."
mkdir "$out/auth"
for of in tools_call auth/2025-03-26-x; do mkdir "$out/$of-2026-11-15T03-06-26-991Z" && echo '[{"id":"a","status":"SUCCESS"}]' >"$out/$of-2026-11-15T03-06-26-991Z/checks.json"; done
mkdir "$out/auth/y-2026-11-15T03-06-26-992Z"
`)
	dir := t.TempDir()
	got, err := s.Run(t.Context(), suite.Target{Client: "a client"}, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := suite.Results{"tools_call": {ok("a")}, "auth/2025-03-26-x": {ok("a")}, "auth/y": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	args, err := os.ReadFile(s.Script + ".args")
	if want := "client --command a client --output-dir " + dir + " --timeout 120000 --suite all\n"; err != nil || string(args) != want {
		t.Errorf("arguments %q, %v; want %q", args, err, want)
	}
}

func TestRunOneScenario(t *testing.T) {
	s := script(t, `write ping '[{"id":"a","status":"SUCCESS"}]'`)
	got, err := s.Run(t.Context(), suite.Target{Scenario: "ping"}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(suite.Results{"ping": {ok("a")}}, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestRunRefusesIncompleteRun(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"the suite dies", `echo "Running all suite (2 scenarios)"; write ping '[]'; exit 1`, "1 of 2 scenarios"},
		{"it does not start", `echo "Cannot find module"; exit 1`, "Cannot find module"},
		{"it has nothing to run", `echo "Running all suite (0 scenarios)"`, "0 of 0 scenarios"},
		{"it crashes", `echo "Running all suite (1 scenarios)"; write ping '[]'; exit 134`, "exit status 134"},
		{"its results are not JSON", `echo "Running all suite (1 scenarios)"; write ping '['`, "checks of scenario ping"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := script(t, tt.body).Run(t.Context(), suite.Target{}, t.TempDir())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	s := script(t, `mkfifo "$out/never"; : >"$out/started"; read x <"$out/never"`)
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, suite.Target{}, dir)
		done <- err
	}()
	for {
		if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("the suite ended before it was cancelled: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled suite returned no error")
	}
}

// path creates a directory, with a program called npm or without one. Besides the system's
// directories, programs are found only there.
func path(t *testing.T, npm string) {
	t.Helper()
	dir := t.TempDir()
	if npm != "" {
		testenv.WriteProgram(t, filepath.Join(dir, "npm"), "#!/bin/sh\n"+npm)
	}
	t.Setenv("PATH", dir)
}

func TestInstall(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "new")
	path(t, `PATH=/bin:/usr/bin; [ "$1" = ci ] && [ -s package-lock.json ] && mkdir -p node_modules/.bin && : >node_modules/.bin/node`)
	first, err := suite.Install(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.Node); err != nil {
		t.Errorf("the installed suite lacks Node.js: %v", err)
	}
	path(t, "exit 1")
	second, err := suite.Install(t.Context(), cache)
	if err != nil {
		t.Fatalf("the installed suite was not used: %v", err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("second installation (-first +second):\n%s", diff)
	}
}

func TestInstallFails(t *testing.T) {
	tests := []struct{ name, npm, want string }{
		{"without npm", "", "npm"},
		{"with an npm that fails half-way", `echo "no network" >&2; : >half; exit 1`, "no network"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cache := t.TempDir()
			path(t, tt.npm)
			if _, err := suite.Install(t.Context(), cache); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
			left, err := os.ReadDir(cache)
			if err != nil {
				t.Fatal(err)
			}
			if len(left) != 0 {
				t.Errorf("the failed installation left %v", left)
			}
		})
	}
}
