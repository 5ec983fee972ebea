// Package client talks to the operators' HTTP API of a gate: it lists and shows
// held calls, decides on them, follows what happens to them, and reads the
// journal. It knows nothing of how they are shown to a person.
package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Config says how to reach a gate.
type Config struct {
	URL     string        // of the operators' listener, http or https
	Token   string        // that the gate knows the approver by
	Timeout time.Duration // for an answer; 30 s if zero
	Silence time.Duration // after which a stream of events counts as lost; 45 s if zero, three times what a gate leaves
	Backoff time.Duration // before the first attempt to get a lost stream back; 500 ms if zero

	Connected func() // if not nil, called whenever [Client.Watch] has a stream of events again
}

// A Client is an approver's way to a gate.
type Client struct {
	cfg  Config
	base *url.URL
	http *http.Client
}

// New returns a Client. It makes no request yet.
func New(c Config) (*Client, error) {
	base, err := url.Parse(c.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil {
		return nil, fmt.Errorf("%q is not the URL of a gate, such as http://127.0.0.1:8081", c.URL)
	}
	if c.Token == "" {
		return nil, errors.New("no token")
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Silence <= 0 {
		c.Silence = 45 * time.Second
	}
	if c.Backoff <= 0 {
		c.Backoff = 500 * time.Millisecond
	}
	return &Client{cfg: c, base: base, http: &http.Client{
		// A gate never redirects. A server that does is no gate, and must not get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// An Error is a refusal by the gate.
type Error struct {
	Status  int    // of HTTP
	Type    string `json:"type"` // as in the documentation of the API; empty if the answer is not the API's
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Type == "" {
		return fmt.Sprintf("HTTP status %d: this does not seem to be the operators' address of a gate", e.Status)
	}
	return e.Message
}

// A Selection says which held calls are asked for. Tool, Agent and Workflow are
// parts of names, and Text is words that are in the call; empty ones select all.
type Selection struct {
	State                       string // of a task, or "pending" for those that wait for a decision, or "all"
	Tool, Agent, Workflow, Text string
}

// query returns s as the API reads it.
func (s Selection) query() url.Values {
	query := url.Values{"state": {s.State}, "limit": {"100"}}
	for name, value := range map[string]string{"tool": s.Tool, "agent": s.Agent, "workflow": s.Workflow, "q": s.Text} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// List returns all held calls that s selects, newest first.
func (c *Client) List(ctx context.Context, s Selection) ([]casefile.Approval, error) {
	all := []casefile.Approval{}
	query := s.query()
	for {
		var page casefile.Page
		if err := c.do(ctx, http.MethodGet, approvals+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Approvals...)
		if page.Next == "" {
			return all, nil
		}
		query.Set("cursor", page.Next)
	}
}

// Show returns one held call with all of its arguments.
func (c *Client) Show(ctx context.Context, id task.ID) (casefile.Approval, error) {
	var a casefile.Approval
	err := c.do(ctx, http.MethodGet, approvals+"/"+url.PathEscape(string(id))+"?arguments=all", nil, &a)
	return a, err
}

// Context returns what is to be known of a held call besides the call itself.
func (c *Client) Context(ctx context.Context, id task.ID) (casefile.Context, error) {
	var x casefile.Context
	err := c.do(ctx, http.MethodGet, approvals+"/"+url.PathEscape(string(id))+"/context", nil, &x)
	return x, err
}

// Decide approves or rejects a held call and returns it as it is then.
func (c *Client) Decide(ctx context.Context, id task.ID, r approval.Ruling) (casefile.Approval, error) {
	var a casefile.Approval
	body, err := json.Marshal(struct {
		Reason      string     `json:"reason"`
		ShownDigest string     `json:"shownDigest,omitzero"`
		UnreadBytes int        `json:"unreadBytes,omitzero"`
		Grant       *grantWish `json:"grant,omitzero"`
	}{r.Reason, r.Shown, r.Unread, wishOf(r.Gives)})
	if err != nil {
		return a, err
	}
	err = c.do(ctx, http.MethodPost, approvals+"/"+url.PathEscape(string(id))+"/"+string(r.Decision), body, &a)
	return a, err
}

// maxAnswer bounds what is read of an answer. A page of 100 calls has less, and
// so has a call with all of its arguments, unless the gate takes very large ones.
const maxAnswer = 64 << 20

// The resources of the API.
const (
	approvals = "/approvals"
	journal   = "/audit"
)

// do makes one request and reads its answer into to.
func (c *Client) do(ctx context.Context, method, path string, body []byte, to any) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the gate's answer: %w", err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("invalid answer from the gate: %w", err)
	}
	return nil
}

// send makes a request and returns the answer if it is a success.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	// The path is escaped already, and may have a query.
	r, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath("api").String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, unreachable(err, c.base.Host)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, refusal(resp)
}

// unreachable shows less of an error than net/http does: the whole URL is of
// no interest.
func unreachable(err error, host string) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("no answer from %s: %w", host, err)
}

// refusal reads an answer that is not a success.
func refusal(resp *http.Response) error {
	var body struct {
		Error *Error `json:"error"`
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil || json.Unmarshal(text, &body) != nil || body.Error == nil {
		return &Error{Status: resp.StatusCode}
	}
	body.Error.Status = resp.StatusCode
	return body.Error
}
