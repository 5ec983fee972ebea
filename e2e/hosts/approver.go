package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// An approver sees every held call through the operators' API, and decides on it at the time
// that the scenario gives.
type approver struct {
	url, token string
	scenario   scenario
	now        func() time.Time
	asked      chan struct{} // closed when the first call is seen

	mu      sync.Mutex
	seen    []*heldCall
	decided time.Time // when the first decision was made, or the first call expired
	trouble error     // the last error
}

// A heldCall is the approver's record of a held call.
type heldCall struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Failed any    `json:"failure"`

	first   time.Time
	decided bool
}

func newApprover(url, token string, s scenario, now func() time.Time) *approver {
	return &approver{url: url, token: token, scenario: s, now: now, asked: make(chan struct{})}
}

// work polls the list until ctx ends.
func (a *approver) work(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := a.look(ctx); err != nil && ctx.Err() == nil {
			a.mu.Lock()
			a.trouble = err
			a.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look reads the states of all calls, and decides on those that are due.
func (a *approver) look(ctx context.Context) error {
	calls, err := a.list(ctx)
	if err != nil {
		return err
	}
	for _, c := range calls {
		due := a.scenario.verdict != "" && a.now().Sub(c.first) >= a.scenario.after
		if c.State != "input_required" || c.decided || !due {
			continue
		}
		if err := a.decide(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// list returns the states of all calls.
func (a *approver) list(ctx context.Context) ([]*heldCall, error) {
	var page struct {
		Approvals []heldCall `json:"approvals"`
	}
	if err := a.request(ctx, http.MethodGet, "?state=all&limit=100", "", &page); err != nil {
		return nil, err
	}
	var calls []*heldCall
	for _, c := range page.Approvals {
		calls = append(calls, a.note(c))
	}
	return calls, nil
}

// note records the state of a call.
func (a *approver) note(c heldCall) *heldCall {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.State == "expired" && a.decided.IsZero() {
		a.decided = a.now()
	}
	for _, known := range a.seen {
		if known.ID == c.ID {
			known.State = c.State
			return known
		}
	}
	c.first = a.now()
	a.seen = append(a.seen, &c)
	if len(a.seen) == 1 {
		close(a.asked)
	}
	return &c
}

// decide reads the call and decides on it as shown.
func (a *approver) decide(ctx context.Context, c *heldCall) error {
	var shown struct {
		Digest string `json:"shownDigest"`
	}
	if err := a.request(ctx, http.MethodGet, "/"+c.ID+"?arguments=all", "", &shown); err != nil {
		return err
	}
	body := fmt.Sprintf(`{"reason":%q,"shownDigest":%q}`, rejected, shown.Digest)
	if a.scenario.verdict == "approve" {
		body = fmt.Sprintf(`{"shownDigest":%q}`, shown.Digest)
	}
	var after heldCall
	if err := a.request(ctx, http.MethodPost, "/"+c.ID+"/"+a.scenario.verdict, body, &after); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c.decided = true
	if a.decided.IsZero() {
		a.decided = a.now()
	}
	return nil
}

// outcome returns the states of all calls and the time of the first decision. If no call was
// seen, it returns the last error.
func (a *approver) outcome() (states []string, decided time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.seen {
		states = append(states, c.State)
	}
	return states, a.decided, a.trouble
}

// request makes a request about approvals to the operators' API.
func (a *approver) request(ctx context.Context, method, path, body string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, a.url+"/api/approvals"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+a.token)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close() // it was only read
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s %s", method, path, res.Status, data)
	}
	return json.Unmarshal(data, answer)
}

// wait returns d after the first call was seen. It waits only a limited time for a first call.
func (a *approver) wait(ctx context.Context, d time.Duration) error {
	limit := time.NewTimer(startup)
	defer limit.Stop()
	select {
	case <-a.asked:
	case <-limit.C:
		return errors.New("no call was held")
	case <-ctx.Done():
		return ctx.Err()
	}
	a.mu.Lock()
	first := a.seen[0].first
	a.mu.Unlock()
	pause(ctx, d-a.now().Sub(first))
	return ctx.Err()
}
