package casefile

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Filter selects approvals.
type Filter struct {
	States    []task.State // none means those that wait for a decision
	Tool      string       // a part of the tool's name
	Principal string       // a part of the requester's name
	Workflow  string       // a part of the workflow's name
	Text      string       // words, each of which is somewhere in the call as a list shows it
	Needed    *bool        // whether an approval was needed; nil for both
	Cursor    string       // Page.Next of the page before
	Limit     int          // 20 if zero, at most 100
}

// A Page is a part of what a filter selects, newest first.
type Page struct {
	Approvals []Approval `json:"approvals"`
	Next      string     `json:"next,omitzero"` // the cursor of the next page
}

// listSize is how many tasks are read at a time to go through all of them.
const listSize = 100

// maxSearch is how many pages of tasks are looked through for one page of
// those that a filter selects.
const maxSearch = 10

// Pending returns a page of the held calls that f selects, by default those
// that wait for a decision. If there are few among many, a page may have fewer
// than f asks for, or none, and still be followed by another.
func (v *Viewer) Pending(ctx context.Context, f Filter) (Page, error) {
	if len(f.States) == 0 {
		f.States = []task.State{task.InputRequired}
	}
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return Page{}, err
	}
	defer done()
	q := task.Query{Scope: task.AnyOwner(), States: f.States, Cursor: f.Cursor, Limit: f.Limit, Heads: true}
	page := Page{Approvals: make([]Approval, 0, q.PageSize())}
	for range maxSearch {
		listed, err := v.cfg.Store.List(ctx, q)
		if err != nil {
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

// fill adds those of the tasks to a page that f selects, until it is full, and
// returns the heads that it has not looked at.
func (v *Viewer) fill(ctx context.Context, page *Page, f Filter, heads []task.Task) (rest []task.Task, err error) {
	for i, head := range heads {
		if len(page.Approvals) == cap(page.Approvals) {
			return heads[i:], nil
		}
		p, err := v.preview(ctx, head)
		if err != nil {
			return nil, err
		}
		if p != nil && f.selects(p) {
			page.Approvals = append(page.Approvals, p.Approval)
		}
	}
	return nil, nil
}
