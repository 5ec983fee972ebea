package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

var _ audit.Source = (*Client)(nil)

// Audit returns a page of the journal. It implements [audit.Finder]. If the gate limits the
// request rate, Audit waits.
func (c *Client) Audit(ctx context.Context, f audit.Filter) (audit.Page, error) {
	for {
		page, err := c.audit(ctx, f)
		refused, ok := errors.AsType[*Error](err)
		if !ok || refused.Status != http.StatusTooManyRequests {
			return page, err
		}
		if !pause.For(ctx, tooFast) {
			return page, ctx.Err()
		}
	}
}

// tooFast is how long to wait when requests come too fast.
const tooFast = time.Second

func (c *Client) audit(ctx context.Context, f audit.Filter) (audit.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, journal+"?"+query(f), nil)
	if err != nil {
		return audit.Page{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	var page audit.Page
	for e, err := range audit.Lines(io.LimitReader(resp.Body, maxAnswer)) {
		if err != nil {
			return audit.Page{}, fmt.Errorf("invalid answer from the gate: %w", err)
		}
		page.Entries = append(page.Entries, e)
	}
	if next := resp.Header.Get(audit.NextHeader); next != "" {
		if page.Next, err = strconv.ParseInt(next, 10, 64); err != nil || page.Next <= f.After {
			return audit.Page{}, fmt.Errorf("invalid answer from the gate: the next page is %q", next)
		}
	}
	return page, nil
}

// query encodes f.
func query(f audit.Filter) string {
	q := url.Values{}
	for name, value := range map[string]string{
		"task": string(f.Task), "tool": f.Tool, "requester": f.Requester, "approver": f.Approver, "grant": string(f.Grant),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Suspicious {
		q.Set("suspicious", "true")
	}
	for name, value := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !value.IsZero() {
			q.Set(name, value.Format(time.RFC3339Nano))
		}
	}
	for name, value := range map[string]int64{"after": f.After, "limit": int64(f.Limit)} {
		if value != 0 {
			q.Set(name, strconv.FormatInt(value, 10))
		}
	}
	return q.Encode()
}

// Entries implements [audit.Source].
func (c *Client) Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	page, err := c.Audit(ctx, audit.Filter{Task: q.Task, After: q.After, Limit: q.PageSize()})
	return page.Entries, err
}

// Ends implements [audit.Source].
func (c *Client) Ends(ctx context.Context) (auditlog.Ends, error) {
	return get[auditlog.Ends](ctx, c, journal+"/ends")
}
