package replay_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/replay"
)

// BenchmarkMillionCalls must take less than 30 s for each run on two processors.
func BenchmarkMillionCalls(b *testing.B) {
	const calls = 1_000_000
	cfg := policy.Config{
		Default:   policy.Rule{Action: policy.AskPolicies},
		Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}, "ops": {Quorum: 2, Timeout: time.Hour}},
	}
	for i := range 100 {
		cfg.Rules = append(cfg.Rules, policy.Rule{Match: fmt.Sprintf("tool_%d_*", 2*i), Action: policy.Approve})
	}
	text := ""
	for i := range 10 {
		text += fmt.Sprintf("permit (principal, action, resource) when { context.arguments has amount && context.arguments.amount < %d };\n", 20*i)
	}
	cfg.Cedar = []policy.Source{{Name: "p.cedar", Text: []byte(text)}}
	before := compile(b, cfg)
	file := filepath.Join(b.TempDir(), "calls.jsonl")
	writeCalls(b, file, before, calls)
	cfg.Rules[50].Action = policy.Forward
	after := compile(b, cfg)
	for b.Loop() {
		f, err := os.Open(file)
		if err != nil {
			b.Fatal(err)
		}
		r, err := replay.Run(callrecord.Read(f), after)
		if err != nil || r.Calls != calls || r.Different == 0 {
			b.Fatal(r, err)
		}
		_ = f.Close()
	}
	b.ReportMetric(calls*float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func writeCalls(b *testing.B, file string, s *policy.Snapshot, n int) {
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(f)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		c := policy.Call{
			Upstream: "crm", Method: "tools/call", Name: fmt.Sprintf("tool_%d_x", rnd.IntN(250)),
			Arguments: fmt.Appendf(nil, `{"amount":%d,"currency":"EUR","note":"a note of some length","path":"/srv/data/%d"}`, rnd.IntN(200), i),
			Principal: policy.Principal{ID: fmt.Sprintf("agent-%d", rnd.IntN(50)), Groups: []string{"staff", "sales"}},
			Session:   policy.Session{Client: "claude-code", Version: "2.1.0", Protocol: "2025-11-25"},
			Listed:    true, Annotations: policy.Annotations{ReadOnly: new(false), Title: "Tool"}, Time: start.Add(time.Duration(i) * time.Second),
		}
		e := entry(c, s, true)
		e.Outcome, e.Took, e.Digest = "success", 20*time.Millisecond, "hmac-0123456789abcdef0123456789abcdef"
		if err := e.Write(w); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}
