package casefile

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A preview is a held call as it stands in a list.
type preview struct {
	Approval

	principal string // as it came
	owner     string // of the task
	version   int64  // of the task
	redacted  string // what was to be redacted
}

// size returns about how much memory p takes.
func (p *preview) size() int {
	size := 2048 + len(p.Arguments) + len(p.Tool) + len(p.Name) + len(p.Principal) + len(p.principal) + len(p.owner) +
		len(p.Reason) + len(p.Description) + len(p.redacted)
	for _, a := range p.Approvals {
		size += 256 + len(a.Reason)
	}
	for _, warning := range p.Warnings {
		size += len(warning)
	}
	return size
}

// maxPreviews is how many bytes of previews a desk keeps. Those that were looked
// at longest ago go first.
const maxPreviews = 16 << 20

// previews are what a desk has made of tasks for its lists, so that a call with
// large arguments is read once, and not whenever somebody looks at a list. One is
// good for one version of its task.
type previews struct {
	mu     sync.Mutex
	tasks  map[task.ID]*list.Element // of *preview
	recent list.List                 // the one looked at last first
	size   int
}

// get returns the preview of a task that is made of its given version, or nil.
func (p *previews) get(id task.ID, version int64) *preview {
	p.mu.Lock()
	defer p.mu.Unlock()
	element := p.tasks[id]
	if element == nil {
		return nil
	}
	known := element.Value.(*preview)
	if known.version != version {
		return nil
	}
	p.recent.MoveToFront(element)
	return known
}

func (p *previews) put(one *preview) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tasks == nil {
		p.tasks = make(map[task.ID]*list.Element)
	}
	p.drop(p.tasks[one.ID])
	p.tasks[one.ID] = p.recent.PushFront(one)
	for p.size += one.size(); p.size > maxPreviews && p.recent.Len() > 1; {
		p.drop(p.recent.Back())
	}
}

func (p *previews) drop(element *list.Element) {
	if element == nil {
		return
	}
	old := element.Value.(*preview)
	p.recent.Remove(element)
	delete(p.tasks, old.ID)
	p.size -= old.size()
}

// preview returns the preview of the task that a list has the head of, or nil if
// the task is gone, or cannot be read.
func (v *Viewer) preview(ctx context.Context, head task.Task) (*preview, error) {
	known := v.previews.get(head.ID, head.Version)
	if known != nil && known.redacted == v.redacted(known.Workflow) {
		return known, nil
	}
	t, err := v.cfg.Store.Get(ctx, task.AnyOwner().Ref(head.ID))
	switch {
	case errors.Is(err, task.ErrNotFound):
		return nil, nil
	case errors.Is(err, task.ErrUnreadable):
		v.cfg.Log.ErrorContext(ctx, "a held call cannot be read and is left out of lists", "task_id", head.ID, "error", err)
		return nil, nil
	case err != nil:
		return nil, err
	}
	made := &preview{
		Approval: v.view(t, maxListed), principal: ReadFacts(t).Principal.ID, owner: t.Owner,
		version: t.Version, redacted: v.redacted(t.Workflow),
	}
	v.previews.put(made)
	return made, nil
}

// redacted returns, as one text, what a workflow redacts now.
func (v *Viewer) redacted(workflow string) string {
	return strings.Join(v.redactedPaths(workflow), "\n")
}

// redactedPaths returns what a workflow redacts. If there is no such workflow,
// that is not known, so everything is.
func (v *Viewer) redactedPaths(workflow string) []string {
	if terms, known := v.cfg.Terms(workflow); known {
		return terms.Redact
	}
	return []string{"arguments"}
}

// selects reports whether f is about p.
func (f Filter) selects(p *preview) bool {
	return slices.Contains(f.States, p.State) && contains(p.Name, f.Tool) && contains(p.principal, f.Principal) &&
		contains(p.Workflow, f.Workflow) && (f.Needed == nil || *f.Needed != p.NoApprovalNeeded) && p.hasWords(f.Text)
}

// hasWords reports whether each word of text is somewhere in p: in a name, in the
// beginning of the arguments, or in what is said of the call. What is redacted
// cannot be found.
func (p *preview) hasWords(text string) bool {
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 0 {
		return true
	}
	parts := []string{p.Name, p.Upstream, p.principal, p.Client, p.Workflow, p.Reason, p.Description, string(p.Arguments)}
	if p.ClientReason != nil {
		parts = append(parts, p.ClientReason.Text)
	}
	all := strings.ToLower(strings.Join(parts, "\n"))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(all, word) })
}
