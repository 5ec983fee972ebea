package client

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// The shape of a task's id, and how much of it must be given. With less, one
// that has just arrived could be meant by chance.
const (
	idPrefix = "tg_"
	idLength = len(idPrefix) + 36
	leastID  = 4
)

// An IDError reports a text that does not name one held call.
type IDError struct {
	Text    string
	Matches int
	What    string // what was to be found; an approval if it is empty
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

// Find returns the id that text abbreviates: it begins with it, with or without
// its prefix, and no other does. Calls that wait for a decision come first:
// one that has ended is found only if none of them is meant.
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
		found := matching(listed, start)
		if len(found) == 1 && enough(found[0], start) {
			return found[0], nil
		}
		if len(found) > 0 {
			return "", &IDError{Text: text, Matches: len(found)}
		}
	}
	return "", &IDError{Text: text}
}

// enough reports whether start names id and nothing that may arrive before it is
// used. An id begins with the time, which it has in common with others of the same
// moment. Those of earlier versions are UUIDs, which have no time.
func enough(id task.ID, start string) bool {
	return len(start) >= len(id.Short()) || strings.Contains(string(id), "-")
}

func matching(listed []casefile.Approval, start string) []task.ID {
	var ids []task.ID
	for _, a := range listed {
		if strings.HasPrefix(string(a.ID), start) {
			ids = append(ids, a.ID)
		}
	}
	return ids
}
