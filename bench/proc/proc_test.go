package proc_test

import (
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/bench/proc"
)

func TestListening(t *testing.T) {
	tests := []struct {
		name, line        string
		agents, operators string
		ok                bool
	}{
		{
			"the line", `{"time":"2026-11-15T03:16:04Z","level":"INFO","msg":"listening","agents":"127.0.0.1:1","operators":"127.0.0.1:2","x":{"y":1}}` + "\n",
			"127.0.0.1:1", "127.0.0.1:2", true,
		},
		{"another message", `{"msg":"forwarding everything","agents":"127.0.0.1:1"}`, "", "", false},
		{"not JSON", "listening on 127.0.0.1:1", "", "", false},
		{"nothing", "", "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			agents, operators, ok := proc.Listening([]byte(tt.line))
			if agents != tt.agents || operators != tt.operators || ok != tt.ok {
				t.Errorf("Listening = %q, %q, %v", agents, operators, ok)
			}
		})
	}
}

func TestSchedStat(t *testing.T) {
	got, err := proc.SchedStat([]byte("901872133 18385 2\n"))
	if want := 901872133 * time.Nanosecond; err != nil || got != want {
		t.Errorf("SchedStat = %v, %v; want %v", got, err, want)
	}
	if _, err := proc.SchedStat([]byte("nonsense")); err == nil {
		t.Error("invalid text was accepted")
	}
}

func TestStatus(t *testing.T) {
	const text = "Name:\tthoughtgate\nVmPeak:\t 3776 kB\nVmHWM:\t  2048 kB\nVmRSS:\t   1024 kB\nThreads:\t7\n"
	got, err := proc.Status([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(proc.Memory{RSS: 1 << 20, Peak: 2 << 20}, got); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "VmRSS:\t1 kB\n", "VmRSS:\tmuch kB\nVmHWM:\t1 kB\n"} {
		if _, err := proc.Status([]byte(bad)); err == nil {
			t.Errorf("Status(%q) returned no error", bad)
		}
	}
}

func TestMetric(t *testing.T) {
	const text = "# HELP go_memstats_mallocs_total Total number.\n# TYPE go_memstats_mallocs_total counter\n" +
		"go_memstats_mallocs_total_more 1\ngo_memstats_mallocs_total 1.234567e+06\n"
	got, err := proc.Metric([]byte(text), "go_memstats_mallocs_total")
	if err != nil || got != 1234567 {
		t.Errorf("Metric = %v, %v", got, err)
	}
	if _, err := proc.Metric([]byte(text), "go_threads"); err == nil {
		t.Error("a missing metric was found")
	}
}

// The error of Start contains the program's output.
func TestStartReportsOutputOfProgram(t *testing.T) {
	_, err := proc.Start(t.Context(), proc.Command{Name: "go", Path: "go", Args: []string{"no-such-command"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-command: unknown command") {
		t.Errorf("Start = %v", err)
	}
}

// Start fails for a program that does not log its address.
func TestStartFailsWithoutAddress(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := proc.Start(t.Context(), proc.Command{Name: "cat", Path: "cat", Agents: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := p.Mallocs(t.Context()); !math.IsNaN(n) || err != nil {
		t.Errorf("Mallocs = %v, %v; want none", n, err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
