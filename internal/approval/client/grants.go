package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/task"
)

const grants = "/grants"

// A grantWish is the standing approval that an approver gives with an approval. Its
// length does not depend on the clock of this machine.
type grantWish struct {
	Seconds int      `json:"seconds"`
	Uses    int      `json:"uses"`
	Free    []string `json:"free,omitempty"`
}

func wishOf(g *task.GrantTerms) *grantWish {
	if g == nil {
		return nil
	}
	return &grantWish{int(time.Until(g.Until).Round(time.Second) / time.Second), g.Uses, g.Free}
}

// Grants returns standing approvals, newest first: those that are in the given state,
// "active" or "all".
func (c *Client) Grants(ctx context.Context, state string) ([]casefile.Grant, error) {
	var list struct {
		Grants []casefile.Grant `json:"grants"`
	}
	err := c.do(ctx, http.MethodGet, grants+"?state="+url.QueryEscape(state), nil, &list)
	return list.Grants, err
}

// Grant returns one standing approval with its uses.
func (c *Client) Grant(ctx context.Context, id task.GrantID) (casefile.Grant, error) {
	var g casefile.Grant
	err := c.do(ctx, http.MethodGet, grants+"/"+url.PathEscape(string(id)), nil, &g)
	return g, err
}

// Revoke ends a standing approval and returns it as it is then.
func (c *Client) Revoke(ctx context.Context, id task.GrantID, reason string) (casefile.Grant, error) {
	var g casefile.Grant
	body, err := json.Marshal(map[string]string{"reason": reason})
	if err == nil {
		err = c.do(ctx, http.MethodPost, grants+"/"+url.PathEscape(string(id))+"/revoke", body, &g)
	}
	return g, err
}

// FindGrant returns the id of the standing approval that text abbreviates: it begins
// with it, with or without its prefix, and no other does.
func (c *Client) FindGrant(ctx context.Context, text string) (task.GrantID, error) {
	const prefix = "gr_"
	start := strings.ToLower(text)
	if !strings.HasPrefix(start, prefix) {
		start = prefix + start
	}
	if grantstore.ValidID(task.GrantID(start)) {
		return task.GrantID(start), nil
	}
	all, err := c.Grants(ctx, "all")
	if err != nil {
		return "", err
	}
	var found []task.GrantID
	for _, g := range all {
		if strings.HasPrefix(string(g.ID), start) {
			found = append(found, g.ID)
		}
	}
	if len(found) != 1 || len(start) < len(prefix)+leastID {
		return "", &IDError{Text: text, Matches: len(found), What: "standing approval"}
	}
	return found[0], nil
}
