package review

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Filter selects approvals.
type Filter struct {
	States    []task.State // none selects pending calls
	Tool      string       // a part of the tool's name
	Principal string       // a part of the requester's name
	Workflow  string       // a part of the workflow's name
	Text      string       // words that must occur in the listed call
	Cursor    string       // Page.Next of the page before
	Limit     int          // 20 if zero, at most 100
}

// A Page is a page of the calls that a filter selects, newest first.
type Page struct {
	Approvals []Approval `json:"approvals"`
	Next      string     `json:"next,omitzero"` // the cursor of the next page
}

// listSize is how many tasks are read at a time.
const listSize = 100

// maxSearch is how many pages of tasks are read for one page of selected calls.
const maxSearch = 10

// Pending returns a page of the calls that f selects, by default the pending ones. If few of many
// calls match, a page can be short or empty although another one follows.
func (v *Viewer) Pending(ctx context.Context, f Filter) (Page, error) {
	if len(f.States) == 0 {
		f.States = []task.State{task.InputRequired}
	}
	ctx, done, err := v.Begin(ctx)
	if err != nil {
		return Page{}, err
	}
	defer done()
	q := task.Query{Scope: task.AnyOwner(), States: f.States, Cursor: f.Cursor, Limit: f.Limit, Outlines: true}
	page := Page{Approvals: make([]Approval, 0, q.PageSize())}
	for range maxSearch {
		listed, err := v.cfg.Store.List(ctx, q)
		switch {
		case errors.Is(err, task.ErrUnreadable):
			v.logUnreadable(ctx, err)
		case err != nil:
			return Page{}, err
		}
		page.Next, q.Cursor = listed.Next, listed.Next
		rest, err := v.fill(ctx, &page, f, listed.Tasks)
		if err != nil {
			return Page{}, err
		}
		if len(page.Approvals) == q.PageSize() {
			if last := len(listed.Tasks) - len(rest) - 1; len(rest) > 0 {
				page.Next = q.CursorAfter(listed.Tasks[last].Position())
			}
			break
		}
		if q.Cursor == "" {
			break
		}
	}
	return page, nil
}

// fill adds selected tasks to a page until it is full, and returns the tasks that it has not
// checked.
func (v *Viewer) fill(ctx context.Context, page *Page, f Filter, outlines []task.Task) (rest []task.Task, err error) {
	for i, t := range outlines {
		if len(page.Approvals) == cap(page.Approvals) {
			return outlines[i:], nil
		}
		one, err := v.item(ctx, t)
		if err != nil {
			return nil, err
		}
		if one != nil && f.selects(one) {
			page.Approvals = append(page.Approvals, one.Approval)
		}
	}
	return nil, nil
}

// selects reports whether f selects i.
func (f Filter) selects(i *item) bool {
	return slices.Contains(f.States, i.State) && isIn(f.Tool, i.Name, i.Tool) && isIn(f.Principal, i.principal, i.Principal) &&
		isIn(f.Workflow, i.Workflow) && i.hasWords(f.Text)
}

// hasWords reports whether each word of text occurs in i: in a name, the first part of the
// arguments, or the explanation. Redacted text is not searched.
func (i *item) hasWords(text string) bool {
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 0 {
		return true
	}
	parts := []string{i.Name, i.Tool, i.Upstream, i.principal, i.Principal, i.Client, i.Workflow, i.Reason, i.Description, string(i.Arguments)}
	if i.ClientReason != nil {
		parts = append(parts, i.ClientReason.Text)
	}
	all := strings.ToLower(strings.Join(parts, "\n"))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(all, word) })
}

// isIn reports whether one of the texts contains part, ignoring case.
func isIn(part string, texts ...string) bool {
	return part == "" || slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower(part))
	})
}
