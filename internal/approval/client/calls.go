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

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/internal/replay"
)

// Calls returns a page of the record of calls. It implements [callrecord.Finder]. If the gate limits
// the request rate, Calls waits.
func (c *Client) Calls(ctx context.Context, f callrecord.Filter) (callrecord.Page, error) {
	for {
		page, err := c.calls(ctx, f)
		refused, ok := errors.AsType[*Error](err)
		if !ok || refused.Status != http.StatusTooManyRequests {
			return page, err
		}
		if !pause.For(ctx, tooFast) {
			return page, ctx.Err()
		}
	}
}

func (c *Client) calls(ctx context.Context, f callrecord.Filter) (callrecord.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	q := url.Values{}
	for name, value := range map[string]string{
		"id": f.ID, "upstream": f.Upstream, "name": f.Name, "principal": f.Principal, "action": f.Action, "outcome": f.Outcome, "after": f.After,
		"event": string(f.Event), "by": f.By, "text": f.Text, "ref": f.Ref,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, value := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !value.IsZero() {
			q.Set(name, value.Format(time.RFC3339Nano))
		}
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	page := callrecord.Page{Next: f.After}
	resp, err := c.send(ctx, http.MethodGet, calls+"?"+q.Encode(), nil)
	if err != nil {
		return page, err
	}
	defer func() { _ = resp.Body.Close() }()
	for e, err := range callrecord.Read(io.LimitReader(resp.Body, maxAnswer)) {
		if err != nil {
			return page, fmt.Errorf("invalid answer from the gate: %w", err)
		}
		page.Entries = append(page.Entries, e)
	}
	if next := resp.Header.Get(callrecord.NextHeader); next != "" {
		page.Next = next
	}
	return page, nil
}

// VerifyCalls verifies the record of calls, which must have the given blocks.
func (c *Client) VerifyCalls(ctx context.Context, known ...callrecord.Link) (callrecord.Report, error) {
	q := url.Values{}
	for _, l := range known {
		q.Add("head", l.String())
	}
	return get[callrecord.Report](ctx, c, calls+"/verification?"+q.Encode())
}

// Explain explains recorded calls under the policy of the gate; see [callrecord.Lookup].
func (c *Client) Explain(ctx context.Context, id string) ([]replay.Explanation, error) {
	answer, err := get[struct {
		Explanations []replay.Explanation `json:"explanations"`
	}](ctx, c, calls+"/explanation?id="+url.QueryEscape(id))
	return answer.Explanations, err
}
