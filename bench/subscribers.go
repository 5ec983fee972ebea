package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/report"
)

const (
	fewSubscribers   = 100
	budgetSubscriber = 30.0    // KiB
	budgetTelling    = 50.0    // ms until these few are all notified
	budgetFew        = 5 << 10 // KiB of all of these together
	idleTime         = 2 * time.Second
	operatorToken    = "token-of-the-benchmark"
	eventBuffer      = 512
	heldCall         = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x_1","arguments":{},"task":{}}}`
	firstStepEvent   = "Waiting for approval"
	secondStepEvent  = "Approved"
)

// subscribers measures the cost of many subscribers of a held call, and the time until all of
// them are notified of the approval.
func (b *bench) subscribers(ctx context.Context) error {
	if !slices.Contains(b.targets, targetGate) {
		return nil
	}
	many, _ := b.many()
	table := report.Table{Head: []string{"", "KiB each", "CPU idle %", "told p50 ms", "told last ms"}}
	for _, n := range []int{fewSubscribers, many} {
		v, err := b.subscribe(ctx, n)
		if err != nil {
			return err
		}
		each := float64(v.after-v.before) / float64(n) / (1 << 10)
		half, last := milliseconds(v.told[n/2]), milliseconds(v.told[n-1])
		table.Add(fmt.Sprint(n), report.Number(each), report.Number(v.busy), report.Number(half), report.Number(last))
		if n == fewSubscribers {
			b.rows = append(b.rows,
				report.Row{What: "100 subscribers to a held call: RSS of all", Value: each * float64(n), Unit: "KiB", Budget: budgetFew},
				report.Row{What: "100 subscribers to a held call: the last one is told", Value: last, Unit: "ms", Budget: budgetTelling})
			continue
		}
		b.rows = append(b.rows,
			report.Row{What: fmt.Sprintf("%d subscribers to a held call: RSS each", n), Value: each, Unit: "KiB", Budget: budgetSubscriber},
			report.Row{What: fmt.Sprintf("%d subscribers to a held call: the last one is told", n), Value: last, Unit: "ms"},
			report.Row{What: fmt.Sprintf("%d subscribers to a held call: CPU while nothing happens", n), Value: v.busy, Unit: "%"})
	}
	return b.printf("\nsubscribers to one held call\n%s", table.String())
}

// A telling has the measurements of some subscribers.
type telling struct {
	before, after int64           // memory
	busy          float64         // percent of a processor without events
	told          []time.Duration // from the decision, sorted
}

func (b *bench) subscribe(ctx context.Context, n int) (v telling, err error) {
	r, err := b.assemble(ctx, targetGate)
	if err != nil {
		return telling{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	t := r.targets[0]
	ctx, cancel := context.WithTimeout(ctx, bigTimeout)
	defer cancel()
	id, err := b.holdOne(ctx, t)
	if err != nil {
		return telling{}, t.failed(err)
	}
	before, err := t.Memory()
	if err != nil {
		return telling{}, err
	}
	all := make([]*subscriber, n)
	defer func() {
		for _, s := range all {
			if s != nil {
				_ = s.conn.Close()
			}
		}
	}()
	if err := together(n, func(i int) (err error) { all[i], err = b.listen(ctx, t.Agents, id); return err }); err != nil {
		return telling{}, t.failed(err)
	}
	after, err := t.Memory()
	if err != nil {
		return telling{}, err
	}
	v.before, v.after = before.RSS, after.RSS
	if v.busy, err = b.idle(ctx, t); err != nil {
		return telling{}, err
	}
	v.told, err = b.tell(ctx, t, id, all)
	return v, err
}

// together calls a function n times, several at a time.
func together(n int, do func(i int) error) error {
	errs := make([]error, openers)
	var wg sync.WaitGroup
	for first := range openers {
		wg.Go(func() {
			for i := first; i < n && errs[first] == nil; i += openers {
				errs[first] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// idle returns the processor usage of a target without events.
func (b *bench) idle(ctx context.Context, t target) (float64, error) {
	before, err := t.CPU()
	if err != nil {
		return 0, err
	}
	pause := time.NewTimer(idleTime)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := t.CPU()
	return 100 * float64(after-before) / float64(idleTime), err
}

// holdOne makes a call that is held, and returns the id of its task.
func (b *bench) holdOne(ctx context.Context, t target) (string, error) {
	answer, err := send(ctx, http.MethodPost, "http://"+t.Agents+"/mcp", heldCall, http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
	})
	_, rest, _ := strings.Cut(answer, `"taskId":"`)
	id, _, ok := strings.Cut(rest, `"`)
	if err == nil && !ok {
		err = fmt.Errorf("the call was not held: %.200s", answer)
	}
	return id, err
}

func send(ctx context.Context, method, url, body string, header http.Header) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header = header
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	return string(answer), err
}

// A subscriber has an open event stream of a task.
type subscriber struct {
	conn net.Conn
	in   *bufio.Reader
}

func (b *bench) listen(ctx context.Context, addr, id string) (*subscriber, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &subscriber{conn: conn, in: bufio.NewReaderSize(conn, eventBuffer)}
	if err := conn.SetDeadline(b.now().Add(bigTimeout)); err != nil {
		return s, err
	}
	if _, err := fmt.Fprintf(conn, "GET /mcp/tasks/%s/events HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", id, addr); err != nil {
		return s, err
	}
	return s, s.await(firstStepEvent)
}

// await reads until a line contains the text.
func (s *subscriber) await(text string) error {
	for {
		line, err := s.in.ReadSlice('\n')
		if bytes.Contains(line, []byte(text)) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("waiting for %q: %w", text, err)
		}
	}
}

// tell approves the task, and returns how long each subscriber waited for the notification.
func (b *bench) tell(ctx context.Context, t target, id string, all []*subscriber) ([]time.Duration, error) {
	told := make([]time.Duration, len(all))
	errs := make([]error, len(all)+1)
	var wg sync.WaitGroup
	start := b.now()
	for i, s := range all {
		wg.Go(func() {
			errs[i] = s.await(secondStepEvent)
			told[i] = b.now().Sub(start)
		})
	}
	answer, err := approve(ctx, t, id)
	if err == nil && !strings.Contains(answer, `"approved"`) {
		err = fmt.Errorf("not approved: %.200s", answer)
	}
	if err != nil {
		for _, s := range all {
			_ = s.conn.Close() // clients that have left are not notified
		}
		errs[len(all)] = err
	}
	wg.Wait()
	slices.Sort(told)
	return told, errors.Join(errs...)
}

// approve reads a call and approves it.
func approve(ctx context.Context, t target, id string) (string, error) {
	url := "http://" + t.Operators + "/api/approvals/" + id
	header := http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + operatorToken}}
	seen, err := send(ctx, http.MethodGet, url, "", header)
	if err != nil {
		return "", err
	}
	return send(ctx, http.MethodPost, url+"/approve", approvalOf(seen), header)
}
