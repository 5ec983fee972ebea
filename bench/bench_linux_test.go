package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// TestMain lets the test program replace the bench command where that starts itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == peerCommand {
		if err := runPeer(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

// TestRun makes real, short measurements of everything that needs no gate.
func TestRun(t *testing.T) {
	var out strings.Builder
	args := strings.Fields("-quick -targets direct,proxy -parts start,forward,connections,result,streams -conns 2,32 -rounds 2 -round 20ms -gib 0.01 -streams 20")
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	figures := `( +-?[0-9][0-9.]*)`
	for _, want := range []string{
		`(?m)^tools/call json, 2 at a time, as fast as possible$`,
		`(?m)^tools/call json, 32 at a time, at [0-9.]+ requests/s$`,
		`(?m)^tools/call modern, 32 at a time, as fast as possible$`,
		`(?m)^direct` + figures + `{4} +[0-9.]+–[0-9.]+` + figures + `{3}$`,
		`(?m)^proxy` + figures + `{4} +[0-9.]+–[0-9.]+` + figures + `{3}$`,
		`(?m)^bench_concurrent_connections: 20, each with a call under way$`,
		`(?m)^proxy` + figures + `{7}$`,
		`(?m)^0.010 GiB sse result$`,
		`(?m)^0.010 GiB of requests with 15/16 MiB each$`,
		`(?m)^proxy` + figures + `{3}$`,
		`(?m)^20 idle event streams$`,
		`(?m)^proxy` + figures + `{5}$`,
		`(?m)^took `,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%s is missing in\n%s", want, out.String())
		}
	}
}

// An error names the failed part and has its log, and the other parts are still measured.
func TestRunReportsFailedPart(t *testing.T) {
	gate := t.TempDir() + "/gate"
	testenv.WriteProgram(t, gate, "#!/bin/sh\necho cannot start today >&2\n")
	var out strings.Builder
	err := run(t.Context(), []string{"-quick", "-gate", gate, "-parts", "start,streams", "-streams", "5"}, &out)
	if err == nil {
		t.Fatal("Run returned no error")
	}
	for _, want := range []string{"start: start gate: it ended", "streams: start gate: it ended", "cannot start today"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %q", want, err)
		}
	}
	if !strings.Contains(out.String(), "Budgets.") {
		t.Errorf("output:\n%s", out.String())
	}
}

// Every round has every target, and every order occurs.
func TestShuffled(t *testing.T) {
	r := rig{targets: []target{{name: "a"}, {name: "b"}, {name: "c"}}}
	random := rand.New(rand.NewPCG(1, 0))
	orders := map[string]bool{}
	for range 200 {
		var names string
		for _, t := range r.shuffled(random) {
			names += t.name
		}
		orders[names] = true
	}
	want := map[string]bool{"abc": true, "acb": true, "bac": true, "bca": true, "cab": true, "cba": true}
	if diff := cmp.Diff(want, orders); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
}

func TestCalibrationIsNotCounted(t *testing.T) {
	b := &bench{options: options{targets: []string{targetDirect}}, self: os.Args[0], dir: t.TempDir(), now: time.Now}
	r, err := b.assemble(t.Context(), targetDirect)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := forwarding{bench: b, rig: r}
	if err := f.calibrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := f.scrape[targetDirect]; n <= 0 || n > 10_000 {
		t.Errorf("one request for the metrics counts %v allocations", n)
	}
}
