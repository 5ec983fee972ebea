package client

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// The format of task ids, and how much of one must be given. A shorter text could match a new task
// by chance.
const (
	idPrefix = "tg_"
	idLength = len(idPrefix) + 36
	leastID  = 4
)

// An IDError reports a text that does not identify one held call.
type IDError struct {
	Text    string
	Matches int
	What    string // what was searched for; an approval if empty
}

// Error implements error.
func (e *IDError) Error() string {
	what := cmp.Or(e.What, "approval")
	_, rest, prefixed := strings.Cut(e.Text, "_")
	if !prefixed {
		rest = e.Text
	}
	switch {
	case len(rest) < leastID:
		return fmt.Sprintf("%q is too short: give at least %d characters of the id", e.Text, leastID)
	case e.Matches == 0:
		return fmt.Sprintf("no %s %q", what, e.Text)
	case e.Matches == 1 && e.What == "":
		return fmt.Sprintf("%q is little more than the time of an approval: give as much of the id as lists show", e.Text)
	default:
		return fmt.Sprintf("%q matches %d %ss: give more of the id", e.Text, e.Matches, what)
	}
}

// Find returns the id that starts with text, with or without its prefix. It searches pending calls
// first, and ended ones only if none of those matches.
func (c *Client) Find(ctx context.Context, text string) (task.ID, error) {
	start := strings.ToLower(text)
	if !strings.HasPrefix(start, idPrefix) {
		start = idPrefix + start
	}
	switch {
	case len(start) == idLength:
		return task.ID(start), nil
	case len(start) < len(idPrefix)+leastID:
		return "", &IDError{Text: text}
	}
	for _, state := range []string{"pending", "all"} {
		listed, err := c.List(ctx, Selection{State: state})
		if err != nil {
			return "", err
		}
		found := matching(listed, start, func(a review.Approval) task.ID { return a.ID })
		//mutate:swap " && enough(found[0], start)" "" TestFind the timestamp of an id is enough to decide about a call
		if len(found) == 1 && enough(found[0], start) {
			return found[0], nil
		}
		if len(found) > 0 {
			return "", &IDError{Text: text, Matches: len(found)}
		}
	}
	return "", &IDError{Text: text}
}

// enough reports whether start is long enough to identify id. Ids begin with a timestamp, which
// calls of the same moment share. Ids of earlier versions are UUIDs, which have none.
func enough(id task.ID, start string) bool {
	return len(start) >= len(id.Short()) || strings.Contains(string(id), "-")
}

// matching returns the listed ids that begin with start.
func matching[T any, ID ~string](listed []T, start string, id func(T) ID) []ID {
	var ids []ID
	for _, one := range listed {
		if strings.HasPrefix(string(id(one)), start) {
			ids = append(ids, id(one))
		}
	}
	return ids
}

// FindGrant returns the id of the standing approval that starts with text, with or without its
// prefix.
func (c *Client) FindGrant(ctx context.Context, text string) (gatetask.GrantID, error) {
	const prefix = "gr_"
	start := strings.ToLower(text)
	if !strings.HasPrefix(start, prefix) {
		start = prefix + start
	}
	if grantstore.ValidID(gatetask.GrantID(start)) {
		return gatetask.GrantID(start), nil
	}
	all, err := c.Grants(ctx, "all")
	if err != nil {
		return "", err
	}
	found := matching(all, start, func(g review.Grant) gatetask.GrantID { return g.ID })
	if len(found) != 1 || len(start) < len(prefix)+leastID {
		return "", &IDError{Text: text, Matches: len(found), What: "standing approval"}
	}
	return found[0], nil
}

// FindChange returns the id of the change that starts with text.
func (c *Client) FindChange(ctx context.Context, text string) (string, error) {
	all, err := c.Changes(ctx)
	if err != nil {
		return "", err
	}
	found := matching(all, strings.ToLower(text), func(one toolhistory.Change) string { return one.ID })
	if len(found) != 1 || len(text) < leastID {
		return "", &IDError{Text: text, Matches: len(found), What: "changed tool"}
	}
	return found[0], nil
}

// FindConnection returns the id of the connection that starts with text.
func (c *Client) FindConnection(ctx context.Context, text string) (string, error) {
	all, err := c.Connections(ctx)
	if err != nil {
		return "", err
	}
	found := matching(all, strings.ToLower(text), func(one connection.Connection) string { return one.ID })
	if len(found) != 1 || len(text) < leastID {
		return "", &IDError{Text: text, Matches: len(found), What: "connection"}
	}
	return found[0], nil
}
