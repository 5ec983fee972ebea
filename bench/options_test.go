package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOptions(t *testing.T) {
	var help strings.Builder
	got, err := parseOptions(strings.Fields("-rounds 7 -quick -parts forward,micro -conns 4,8 -targets gate"), &help)
	if err != nil {
		t.Fatal(err)
	}
	want := options{
		parts: []string{"forward", "micro"}, targets: []string{"gate"}, conns: []int{4, 8},
		rounds: 7, round: 200 * time.Millisecond, gibibytes: 0.25, streams: 2000, starts: 3, benchTime: 10 * time.Millisecond, benchRuns: 1, seed: 1,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, args := range []string{
		"-parts forwards", "-targets direct,", "-conns 0", "-conns many", "-rounds 0", "-round -1s", "-gib 0", "-streams 0", "-starts -1", "-benchruns 0", "-unknown",
	} {
		var help strings.Builder
		if _, err := parseOptions(strings.Fields(args), &help); err == nil {
			t.Errorf("%s was accepted", args)
		}
	}
}
