package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/bench/report"
	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

const (
	heldFile  = "held.yaml"
	heldToken = "token-of-the-benchmark"
)

// heldWarmUp is the size of the first result in blocks: large enough that the heap reaches the
// size at which it is collected. So the measurement shows the memory of a result, not that of
// every Go program.
const heldWarmUp = 2048

// heldRules returns a configuration that holds big calls and stores their results in a file.
func (b *bench) heldRules() string {
	return fmt.Sprintf("version: 1\nstore: %q\nstate_dir: %q\noperators: { token: %s }\ndefault: forward\n"+
		"rules: [{ match: \"big_*\", action: approve }]\n"+
		"waiting: { hold: 10m }\nlimits: { call_timeout: 10m, max_result: 1024GiB }\n", "sqlite:held.db", b.dir, heldToken)
}

// held measures the speed of a large stored result, from its approval to its last byte, and
// the memory that it needs.
func (b *bench) held(ctx context.Context) (err error) {
	if !slices.Contains(b.targets, targetGate) || !slices.Contains(b.targets, targetProxy) {
		return nil
	}
	if err := os.WriteFile(filepath.Join(b.dir, heldFile), []byte(b.heldRules()), 0o600); err != nil {
		return err
	}
	r, err := b.assemble(ctx, targetDirect, targetProxy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	command := b.command(targetGate, r.targets[0].Process)
	command.Args[2] = filepath.Join(b.dir, heldFile)
	process, err := r.add(ctx, command)
	if err != nil {
		return err
	}
	gate, proxy := target{process, targetGate}, r.targets[1]
	if err := b.heldAnswer(ctx, gate, heldWarmUp, &flow{}); err != nil {
		return gate.failed(err)
	}
	kept, passed := &flow{}, &flow{}
	blocks := int(b.gibibytes * (1 << 30) / workload.BlockSize)
	for range min(b.rounds, mostBigRounds) {
		if err := b.heldAnswer(ctx, gate, blocks, kept); err != nil {
			return gate.failed(err)
		}
		if err := b.bigAnswer(ctx, proxy, workload.BigJSON, blocks, passed); err != nil {
			return proxy.failed(err)
		}
	}
	title := fmt.Sprintf("%s GiB held result", report.Number(b.gibibytes))
	ratios := report.Pairwise(kept.speed, passed.speed, report.Ratio)
	b.rows = append(b.rows,
		report.Row{What: title + ": throughput, gate to proxy", Value: report.Median(ratios), Unit: "×", Note: report.Range(ratios) + ", kept in SQLite on the way"},
		report.Row{What: title + ": extra RSS", Value: mebibytes(kept.extra), Unit: "MiB", Budget: budgetExtra})
	t := report.Table{Head: []string{"", "MiB/s", "CPU ms", "extra RSS MiB"}}
	for _, f := range []struct {
		name string
		*flow
	}{{targetProxy, passed}, {targetGate, kept}} {
		t.Add(f.name, report.Number(report.Median(f.speed)), report.Number(report.Median(f.cpu)), report.Number(mebibytes(f.extra)))
	}
	return b.printf("\n%s\n%s", title, t.String())
}

// heldAnswer makes a call that is held, approves it and reads the answer. It compares each
// answer with the memory just before it, because the store keeps the first mebibyte of each
// answer in the database, so that several of them fill SQLite's page cache, like other tasks.
func (b *bench) heldAnswer(ctx context.Context, gate target, blocks int, to *flow) error {
	ctx, cancel := context.WithTimeout(ctx, 10*bigTimeout)
	defer cancel()
	type answer struct {
		size int64
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		size, err := callBig(ctx, gate.Agents, blocks)
		answered <- answer{size, err}
	}()
	id, err := b.pending(ctx, gate.Operators)
	if err != nil {
		return err
	}
	seen, err := operate(ctx, http.MethodGet, gate.Operators, "/"+id, "{}")
	if err != nil {
		return err
	}
	approval := approvalOf(seen)
	before, err := gate.Memory()
	if err != nil {
		return err
	}
	cpu, err := gate.CPU()
	if err := errors.Join(err, gate.ResetPeak()); err != nil {
		return err
	}
	start := b.now()
	if _, err := operate(ctx, http.MethodPost, gate.Operators, "/"+id+"/approve", approval); err != nil {
		return err
	}
	got := <-answered
	took := b.now().Sub(start)
	if want := workload.Answer(workload.BigJSON, blocks).Len(); got.err == nil && got.size < want {
		got.err = fmt.Errorf("%d bytes; want at least %d", got.size, want)
	}
	if got.err != nil {
		return got.err
	}
	cpuAfter, err := gate.CPU()
	if err != nil {
		return err
	}
	after, err := gate.Memory()
	to.speed = append(to.speed, mebibytes(got.size)/took.Seconds())
	to.cpu = append(to.cpu, milliseconds(cpuAfter-cpu))
	to.extra = max(to.extra, after.Peak-before.RSS)
	return err
}

// callBig makes a call with a big answer and returns the answer's size.
func callBig(ctx context.Context, address string, blocks int) (int64, error) {
	_, call, _ := bytes.Cut(workload.New(workload.BigJSON, address, blocks).Request, []byte("\r\n\r\n"))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/mcp", bytes.NewReader(call))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", workload.TypeJSON)
	r.Header.Set("Accept", workload.TypeJSON)
	r.Header.Set("Mcp-Session-Id", "held")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.Copy(io.Discard, resp.Body)
}

// pending waits for a held call, and returns its id.
func (b *bench) pending(ctx context.Context, operators string) (string, error) {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		text, err := operate(ctx, http.MethodGet, operators, "?state=pending", "{}")
		if err != nil {
			return "", err
		}
		var page struct {
			Approvals []struct {
				ID string `json:"id"`
			} `json:"approvals"`
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			return "", err
		}
		if len(page.Approvals) > 0 {
			return page.Approvals[0].ID, nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-again.C:
		}
	}
}

// operate makes a request as an operator.
func operate(ctx context.Context, method, address, path, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+address+"/api/approvals"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", workload.TypeJSON)
	r.Header.Set("Authorization", "Bearer "+heldToken)
	return roundTrip(r)
}

// roundTrip sends a request and returns the body of the answer, which must have status OK.
func roundTrip(r *http.Request) (string, error) {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", r.Method, r.URL.Path, resp.Status, text)
	}
	return string(text), err
}

// approvalOf returns the body that approves the call in an answer of the API.
func approvalOf(shown string) string {
	_, digest, _ := strings.Cut(shown, `"shownDigest":"`)
	digest, _, _ = strings.Cut(digest, `"`)
	return `{"reason":"bench","shownDigest":"` + digest + `"}`
}
