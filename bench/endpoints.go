package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/bench/report"
	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

// servers are the numbers of servers of the measured endpoints, by the names of the targets.
var servers = map[string]int{"endpoint-1": 1, "endpoint-3": 3, "endpoint-20": 20}

// endpoints compares calls through endpoints of several servers with a gate without endpoints.
func (b *bench) endpoints(ctx context.Context) (err error) {
	if !slices.Contains(b.targets, targetGate) {
		return nil
	}
	own := *b
	own.targets = []string{targetGate, "endpoint-1", "endpoint-3", "endpoint-20"}
	r, err := own.assemble(ctx, own.targets...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f := forwarding{bench: &own, rig: r}
	if err := f.calibrate(ctx); err != nil {
		return err
	}
	all, err := f.compare(ctx, workload.Modern, latencyConns, 0)
	if err != nil {
		return err
	}
	for _, name := range own.targets[1:] {
		ratios := report.Pairwise(all[name].cpu, all[targetGate].cpu, report.Ratio)
		b.rows = append(b.rows, report.Spread(report.Row{What: "tools/call modern: CPU, " + name + " to gate", Unit: "×"}, ratios))
	}
	return f.print("tools/call modern through endpoints", all)
}

// endpointConfig writes the configuration of an endpoint of n servers, and returns its file. The last server has
// the called tool.
func (b *bench) endpointConfig(url string, n int) (string, error) {
	text, members := append(rules(), "upstreams:\n"...), ""
	for i := range n {
		prefix := fmt.Sprint("s", i)
		if i == n-1 {
			prefix = ""
		}
		text = fmt.Appendf(text, "  - { name: s%d, url: %q }\n", i, url)
		members += fmt.Sprintf("{ upstream: s%d, prefix: %q }, ", i, prefix)
	}
	file := filepath.Join(b.dir, fmt.Sprintf("endpoint-%d.yaml", n))
	return file, os.WriteFile(file, fmt.Appendf(text, "endpoints: [{ path: /mcp, servers: [%s] }]\n", members), 0o600)
}
