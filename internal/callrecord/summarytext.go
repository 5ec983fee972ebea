package callrecord

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// Entries returns all entries that find finds.
func Entries(ctx context.Context, find Finder, f Filter) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for page, err := range Pages(ctx, find, f) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for i := range page.Entries {
				if !yield(page.Entries[i], nil) {
					return
				}
			}
		}
	}
}

// Text returns the numbers in words.
func (c *Counts) Text() string {
	calls := func(n int) string {
		if n == 1 {
			return "1 call"
		}
		return fmt.Sprintf("%d calls", n)
	}
	parts := []string{fmt.Sprintf("%d forwarded", c.Forwarded)}
	if c.Observed > 0 {
		parts[0] += fmt.Sprintf(", of which %d only because policy is observed", c.Observed)
	}
	for _, one := range []struct {
		n    int
		what string
	}{{c.Denied, "denied"}, {c.Held, "held"}, {c.Approved, "approved"}, {c.Rejected, "rejected"}, {c.Expired, "expired"}, {c.Other, "withdrawn or failed"}} {
		if one.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	return calls(c.Calls()) + ": " + strings.Join(parts, "; ")
}

// Would returns what would have become of the calls: held or denied.
func (n *Notice) Would() string {
	if n.Action == policy.Deny {
		return "denied"
	}
	return "held"
}

// maxName is the greatest length of a name in a line of text.
const maxName = 80

// Lines returns s in words: the numbers, and at most the given number of lines about observed
// calls.
func (s *Summary) Lines(limit int) []string {
	lines := []string{s.Total.Text()}
	for i, n := range s.Observed {
		if i == limit {
			return append(lines, fmt.Sprintf("and %d more: see the overview in the inbox", len(s.Observed)-i))
		}
		who := "anonymous agents"
		if n.Principal != "" {
			who = safetext.Name(n.Principal, maxName)
		}
		lines = append(lines, fmt.Sprintf("%d would have been %s: %s at %s, by %s (%s)", n.Calls, n.Would(),
			safetext.Name(n.Name, maxName), safetext.Name(n.Upstream, maxName), who, safetext.Name(n.Rule, maxName)))
	}
	return lines
}
