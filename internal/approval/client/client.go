// Package client calls the operators' HTTP API of a gate: it lists and shows held calls, decides
// about them, watches them, and reads the journal. It does not format anything for people.
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
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Config configures a [Client].
type Config struct {
	URL     string        // of the operators' listener, http or https
	Token   string        // of the approver
	Timeout time.Duration // of an answer; 30 s if zero
	Silence time.Duration // a stream without data for longer is lost; 45 s if zero, three times the keep-alive interval of a gate
	Backoff time.Duration // before the first reconnect; 500 ms if zero

	Connected func() // if not nil, called whenever [Client.Watch] has connected
}

// A Client calls the API of one gate.
type Client struct {
	cfg  Config
	base *url.URL
	http *http.Client
}

// New returns a Client. It does not connect yet.
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
		// A gate never redirects. Another server must not get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// An Error is an error answer of the gate.
type Error struct {
	Status  int    // of HTTP
	Type    string `json:"type"` // see the documentation of the API; empty if the answer is not from the API
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Type == "" {
		return fmt.Sprintf("HTTP status %d: this does not seem to be the operators' address of a gate", e.Status)
	}
	return e.Message
}

// A Selection selects held calls. Tool, Agent and Workflow match parts of names, and Text matches
// words of the call; empty fields select all.
type Selection struct {
	State                       string // a task state, "pending", or "all"
	Tool, Agent, Workflow, Text string
}

// query encodes s.
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
func (c *Client) List(ctx context.Context, s Selection) ([]review.Approval, error) {
	all := []review.Approval{}
	query := s.query()
	for {
		page, err := get[review.Page](ctx, c, approvals+"?"+query.Encode())
		if err != nil {
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
func (c *Client) Show(ctx context.Context, id task.ID) (review.Approval, error) {
	return get[review.Approval](ctx, c, approvals+"/"+url.PathEscape(string(id))+"?arguments=all")
}

// Context returns the context of a held call.
func (c *Client) Context(ctx context.Context, id task.ID) (review.Context, error) {
	return get[review.Context](ctx, c, approvals+"/"+url.PathEscape(string(id))+"/context")
}

// A verdict is the body of a request that changes something.
type verdict struct {
	Reason      string     `json:"reason"`
	ShownDigest string     `json:"shownDigest,omitzero"`
	UnreadBytes int        `json:"unreadBytes,omitzero"`
	Grant       *grantWish `json:"grant,omitzero"`

	Correction jsontext.Value `json:"correction,omitzero"`
}

// Decide approves or rejects a held call and returns the updated call.
func (c *Client) Decide(ctx context.Context, id task.ID, r approval.Ruling) (review.Approval, error) {
	v := verdict{r.Reason, r.Shown, r.Unread, wishOf(r.Gives), r.Correction}
	return post[review.Approval](ctx, c, approvals+"/"+url.PathEscape(string(id))+"/"+string(r.Decision), v)
}

// Coverage returns what a standing approval given with a held call would have covered.
func (c *Client) Coverage(ctx context.Context, id task.ID, g gatetask.GrantTerms) (approval.Coverage, error) {
	return post[approval.Coverage](ctx, c, approvals+"/"+url.PathEscape(string(id))+"/coverage", wishOf(&g))
}

// A grantWish has the terms of a standing approval. Its duration does not depend on the local
// clock.
type grantWish struct {
	Seconds int `json:"seconds"`
	Uses    int `json:"uses"`

	gatetask.GrantShape
}

func wishOf(g *gatetask.GrantTerms) *grantWish {
	if g == nil {
		return nil
	}
	return &grantWish{int(time.Until(g.Until).Round(time.Second) / time.Second), g.Uses, g.GrantShape}
}

// Grants returns standing approvals, newest first. State is "active" or "all".
func (c *Client) Grants(ctx context.Context, state string) ([]review.Grant, error) {
	list, err := get[struct {
		Grants []review.Grant `json:"grants"`
	}](ctx, c, grants+"?state="+url.QueryEscape(state))
	return list.Grants, err
}

// Grant returns one standing approval with its uses.
func (c *Client) Grant(ctx context.Context, id gatetask.GrantID) (review.Grant, error) {
	return get[review.Grant](ctx, c, grants+"/"+url.PathEscape(string(id)))
}

// Revoke ends a standing approval and returns it.
func (c *Client) Revoke(ctx context.Context, id gatetask.GrantID, reason string) (review.Grant, error) {
	return post[review.Grant](ctx, c, grants+"/"+url.PathEscape(string(id))+"/revoke", verdict{Reason: reason})
}

// Changes returns the tool changes that no operator has accepted, the latest first.
func (c *Client) Changes(ctx context.Context) ([]toolhistory.Change, error) {
	list, err := get[struct {
		Changes []toolhistory.Change `json:"changes"`
	}](ctx, c, changes)
	return list.Changes, err
}

// Connections returns the connections to servers that the operator may see.
func (c *Client) Connections(ctx context.Context) ([]connection.Connection, error) {
	list, err := get[struct {
		Connections []connection.Connection `json:"connections"`
	}](ctx, c, connections)
	return list.Connections, err
}

// RemoveConnection removes a connection and returns it.
func (c *Client) RemoveConnection(ctx context.Context, id, reason string) (connection.Connection, error) {
	return post[connection.Connection](ctx, c, connections+"/"+url.PathEscape(id)+"/remove", verdict{Reason: reason})
}

// AcceptChange accepts a tool change.
func (c *Client) AcceptChange(ctx context.Context, id, reason string) (toolhistory.Change, error) {
	return post[toolhistory.Change](ctx, c, changes+"/"+url.PathEscape(id)+"/accept", verdict{Reason: reason})
}

// maxAnswer is the maximum size of an answer. It is larger than a page of 100 calls.
const maxAnswer = 64 << 20

// Paths of the API.
const (
	approvals = "/approvals"
	grants    = "/grants"
	changes   = "/changes"

	connections = "/connections"
	journal     = "/audit"
	calls       = "/calls"
)

// get makes a GET request.
func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	return do[T](ctx, c, http.MethodGet, path, nil)
}

// post makes a POST request.
func post[T any](ctx context.Context, c *Client, path string, v any) (T, error) {
	body, err := json.Marshal(v)
	if err != nil {
		var none T
		return none, err
	}
	return do[T](ctx, c, http.MethodPost, path, body)
}

// do makes one request and parses its answer.
func do[T any](ctx context.Context, c *Client, method, path string, body []byte) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return answer, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer, fmt.Errorf("read the gate's answer: %w", err)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, fmt.Errorf("invalid answer from the gate: %w", err)
	}
	return answer, nil
}

// send makes a request. It returns an error unless the status is 200.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	// path is escaped and may have a query
	r, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath("api").String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	r.Header.Set("User-Agent", approval.CommandLineUserAgent)
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

// unreachable removes the URL from an error of net/http.
func unreachable(err error, host string) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("no answer from %s: %w", host, err)
}

// refusal parses an error answer.
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
