package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/load"
	"github.com/thoughtgate/thoughtgate-go/bench/report"
	"github.com/thoughtgate/thoughtgate-go/bench/workload"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// budgetLife is the budget for the whole life of a held call, as a multiple of a call through
// the proxy.
const budgetLife = 50

// lives is the number of held calls in one round: as many as one operator may decide in a
// second.
const lives = 50

// life measures a held call from its creation as a task until its result is delivered, with
// every store that is installed.
func (b *bench) life(ctx context.Context) (err error) {
	if !slices.Contains(b.targets, targetGate) || !slices.Contains(b.targets, targetProxy) {
		return nil
	}
	stores := map[string]string{"memory": "memory:", "SQLite": "sqlite:life.db"}
	switch database, unavailable := testenv.StartPostgres(ctx); {
	case unavailable == nil:
		defer func() { err = errors.Join(err, database.Stop()) }()
		stores["PostgreSQL"] = database.URL()
	case !errors.Is(unavailable, testenv.ErrUnavailable):
		return unavailable
	}
	r, err := b.assemble(ctx, targetDirect, targetProxy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	table := report.Table{Head: []string{"", "CPU ms", "middle half", "allocs", "× proxy"}}
	for _, name := range []string{"memory", "SQLite", "PostgreSQL"} {
		if stores[name] == "" {
			continue
		}
		gate, err := b.lifeGate(ctx, r, stores[name])
		if err != nil {
			return err
		}
		l, err := b.lifeRounds(ctx, gate, r.targets[1])
		if err != nil {
			return gate.failed(err)
		}
		b.rows = append(b.rows, report.Spread(report.Row{What: "life of a held call, " + name + ": CPU, gate to a call through the proxy", Unit: "×", Budget: budgetLife}, l.ratios))
		table.Add(name, report.Number(report.Median(l.cpu)), report.Middle(l.cpu), report.Number(report.Median(l.mallocs)), report.Number(report.Median(l.ratios)))
	}
	return b.printf("\nlife of a held call: task, look, approval, run, delivery\n%s", table.String())
}

// lifeGate starts a gate that holds calls in a store.
func (b *bench) lifeGate(ctx context.Context, r *rig, store string) (target, error) {
	file := filepath.Join(b.dir, "life.yaml")
	config := fmt.Sprintf("version: 1\nstore: %q\nstate_dir: %q\noperators: { token: %s }\ndefault: forward\n"+
		"rules: [{ match: \"big_*\", action: approve }]\n", store, b.dir, heldToken)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return target{}, err
	}
	command := b.command(targetGate, r.targets[0].Process)
	command.Args[2] = file
	process, err := r.add(ctx, command)
	return target{process, targetGate}, err
}

// A lived has the measurements of one life for each round: CPU time in ms, allocations, and
// the ratio to a call through the proxy.
type lived struct{ cpu, mallocs, ratios []float64 }

// lifeRounds measures lives and calls through the proxy in turn.
func (b *bench) lifeRounds(ctx context.Context, gate, proxy target) (l lived, err error) {
	fleet, err := load.Open(ctx, b.now, proxy.Agents, 1, workload.JSON)
	if err != nil {
		return lived{}, err
	}
	defer func() { err = errors.Join(err, fleet.Close()) }()
	f := forwarding{bench: b, rig: &rig{targets: []target{gate}}}
	if err := f.calibrate(ctx); err != nil {
		return lived{}, err
	}
	for round := range b.rounds + 1 { // the first warms up
		passed := &figures{}
		if err := f.measure(ctx, proxy, passed, fleet, 0); err != nil {
			return lived{}, err
		}
		if err := pause(ctx, time.Second); err != nil {
			return lived{}, err
		}
		cpu, mallocs, err := liveMany(ctx, gate, round*lives)
		if err != nil {
			return lived{}, err
		}
		if round > 0 {
			l.cpu, l.ratios = append(l.cpu, cpu), append(l.ratios, cpu*1000/passed.cpu[0])
			l.mallocs = append(l.mallocs, mallocs-f.scrape[targetGate]/lives)
		}
	}
	return l, nil
}

// liveMany makes lives with numbers from first, and returns the average CPU time in ms and
// allocations of one.
func liveMany(ctx context.Context, gate target, first int) (cpu, mallocs float64, err error) {
	before, err := gate.Mallocs(ctx)
	if err != nil {
		return 0, 0, err
	}
	began, err := gate.CPU()
	if err != nil {
		return 0, 0, err
	}
	for n := range lives {
		if err := liveOnce(ctx, gate, first+n); err != nil {
			return 0, 0, err
		}
	}
	ended, err := gate.CPU()
	if err != nil {
		return 0, 0, err
	}
	after, err := gate.Mallocs(ctx)
	return milliseconds(ended-began) / lives, (after - before) / lives, err
}

// liveOnce makes a call as a task, reads it as an operator, approves the shown version, and
// fetches the result, for which the call runs.
func liveOnce(ctx context.Context, gate target, n int) error {
	_, call, _ := bytes.Cut(workload.New(workload.BigJSON, gate.Agents, 0).Request, []byte("\r\n\r\n"))
	created, err := ask(ctx, gate.Agents, strings.NewReplacer(
		`"params":{`, `"params":{"task":{"ttl":600000},`,
		`quarter-3.md`, fmt.Sprintf(`report-%d.md`, n), // calls differ, so that none attaches to another
	).Replace(string(call)))
	if err != nil {
		return err
	}
	_, id, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ = strings.Cut(id, `"`)
	shown, err := operate(ctx, http.MethodGet, gate.Operators, "/"+id, "{}")
	if err != nil {
		return fmt.Errorf("%w; the call was answered with %.300s", err, created)
	}
	if _, err := operate(ctx, http.MethodPost, gate.Operators, "/"+id+"/approve", approvalOf(shown)); err != nil {
		return err
	}
	result, err := ask(ctx, gate.Agents, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":%q}}`, id))
	if err == nil && !strings.Contains(result, `"isError":false`) {
		err = fmt.Errorf("the call did not run: %.300s", result)
	}
	return err
}

// ask sends a message as the agent, and returns the answer.
func ask(ctx context.Context, address, message string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/mcp", strings.NewReader(message))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", workload.TypeJSON)
	r.Header.Set("Accept", workload.TypeJSON+", "+workload.TypeSSE)
	r.Header.Set("MCP-Protocol-Version", "2025-11-25")
	r.Header.Set("Mcp-Session-Id", "life")
	return roundTrip(r)
}
