package replay

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

const (
	mostLines = 50  // of a list in a text
	mostName  = 120 // characters of a name
	mostText  = 300
)

// Text returns the report for a terminal. It has no arguments, because logs of CI are often
// public.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d calls from %s to %s would be judged differently\n", r.Different, r.Calls, r.First.UTC().Format(time.RFC3339), r.Last.UTC().Format(time.RFC3339))
	list(&b, r.Groups, func(g *Group) string {
		e := &g.Example
		id := ""
		if e.ID != "" {
			id = " (" + name(e.ID) + ")"
		}
		return fmt.Sprintf("  %7d  %s: %s → %s by %s\n           such as %s by %s%s, then by %s; now: %s\n",
			g.Calls, g.Named, g.From, g.To, name(g.Rule), e.Time.UTC().Format(time.RFC3339), agent(e.Principal), id, name(cmp.Or(e.Rule, "no rule")), safetext.Line(e.Reason, mostText))
	})
	if r.Unknown > 0 {
		fmt.Fprintf(&b, "%d of %d calls cannot be judged again: the verdict may depend on arguments that are not in the record (record.arguments)\n", r.Unknown, r.Calls)
		list(&b, r.Subjects, func(s *Subject) string { return fmt.Sprintf("  %7d  %s\n", s.Calls, s.Named) })
	}
	a := &r.Approvals
	fmt.Fprintf(&b, "approvals a day, in %.1f days: %s\n", a.Days, a.Total.text(a.Days))
	list(&b, a.Agents, func(c *Count) string {
		return fmt.Sprintf("  agent %s: %s\n", agent(c.Name), c.text(a.Days))
	})
	list(&b, a.Workflows, func(c *Count) string {
		return fmt.Sprintf("  workflow %s: %s\n", name(c.Name), c.text(a.Days))
	})
	return b.String()
}

// list writes the first items.
func list[T any](b *strings.Builder, items []T, text func(*T) string) {
	for i := range items[:min(len(items), mostLines)] {
		b.WriteString(text(&items[i]))
	}
	if more := len(items) - mostLines; more > 0 {
		fmt.Fprintf(b, "           and %d more\n", more)
	}
}

func name(text string) string { return safetext.Name(text, mostName) }

func agent(id string) string {
	if id == "" {
		return "anonymous"
	}
	return name(id)
}

// String returns for example tools/call "delete_user" on crm.
func (n Named) String() string {
	return fmt.Sprintf(`%s "%s" on %s`, name(n.Method), name(n.Name), name(n.Upstream))
}

// String returns for example "approve ops", or "forward (observed: approve ops)".
func (v Verdict) String() string {
	if v.Observed != "" {
		return fmt.Sprintf("%s (observed: %s)", v.Action, Verdict{Action: v.Observed, Workflow: v.Workflow})
	}
	return strings.TrimSpace(string(v.Action) + " " + name(v.Workflow))
}

func (c *Count) text(days float64) string {
	return fmt.Sprintf("%.1f → %.1f (%+.1f)", float64(c.Then)/days, float64(c.Now)/days, c.PerDay)
}
