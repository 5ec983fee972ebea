package approval_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// paths returns the path argument of each group, with the number of its calls if there are
// several.
func paths(q review.Queue) []string {
	names := []string{}
	for _, g := range q.Groups {
		name := strings.TrimSuffix(strings.TrimPrefix(string(g.Calls[0].Arguments), `{"path":"/`), `"}`)
		if n := len(g.Calls); n > 1 {
			name += fmt.Sprint(" ×", n)
		}
		names = append(names, name)
	}
	return names
}

// A queue lists the call with the least remaining time first, whenever it was made.
func TestQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		for i, limit := range []time.Duration{time.Hour, time.Minute, 30 * time.Minute} {
			o.setWorkflow("ops", approval.Workflow{Timeout: limit})
			o.hold(t, call("ann", fmt.Sprint("/", i)))
			pass(time.Second)
		}
		q, err := o.views.Queue(t.Context(), review.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"1", "2", "0"}, paths(q)); diff != "" {
			t.Errorf("least time left first (-want +got):\n%s", diff)
		}
	})
}

// Identical calls of one agent form a group. Calls of another agent are not in it.
func TestQueueGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		hold := func(owner, who, path string) task.ID {
			c := call(owner, path)
			c.Principal, c.SharedOwner = policy.Principal{ID: who}, true
			pass(time.Second)
			return o.hold(t, c).ID
		}
		first := hold("s1", "ci", "/a")
		hold("s1", "ci", "/b")
		hold("s2", "ci", "/a")
		hold("s3", "bot", "/a")
		last := hold("s1", "ci", "/a")
		q, err := o.views.Queue(t.Context(), review.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a ×3", "b", "a"}, paths(q)); diff != "" {
			t.Fatalf("groups (-want +got):\n%s", diff)
		}
		if calls := q.Groups[0].Calls; calls[0].ID != first || calls[2].ID != last {
			t.Errorf("calls of a group not in the order of remaining time: %v", calls)
		}
		if q.Pending != 5 || q.Matching != 5 {
			t.Errorf("%d pending, %d matching; want 5 and 5", q.Pending, q.Matching)
		}
	})
}

// The pages of a filtered queue have each group once, and the counts include all calls.
func TestQueuePages(t *testing.T) {
	o := open(t, nil)
	const calls = 230
	for i := range calls {
		c := call(fmt.Sprint("agent", i%7), fmt.Sprint("/", i))
		c.Principal = policy.Principal{ID: c.Owner}
		if i%2 == 0 {
			c.Message = message("Send_mail", fmt.Sprintf(`{"to":"customer%d","password":"hunter2"}`, i))
		}
		if i%5 == 0 {
			c.Verdict.Workflow = "two"
		}
		o.hold(t, c)
	}
	if n, err := o.views.CountPending(t.Context()); n != calls || err != nil {
		t.Errorf("%d calls wait, %v; want %d", n, err, calls)
	}
	for name, tt := range map[string]struct {
		filter review.Filter
		want   int
	}{
		"all":               {review.Filter{}, calls},
		"a tool":            {review.Filter{Tool: "mail"}, 115},
		"an agent":          {review.Filter{Principal: "AGENT3"}, 33},
		"a workflow":        {review.Filter{Workflow: "two"}, 46},
		"text of arguments": {review.Filter{Text: "CUSTOMER12"}, 6},
		"other text":        {review.Filter{Text: "agent3", Limit: 10}, 33},
		"all words":         {review.Filter{Text: "mail agent3 two"}, 4},
		"redacted text":     {review.Filter{Text: "hunter2", Workflow: "ops"}, 0},
		"nothing":           {review.Filter{Text: "nowhere"}, 0},
	} {
		var matching int
		seen := map[task.ID]bool{}
		for f := tt.filter; ; {
			q, err := o.views.Queue(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			matching = q.Matching
			for _, g := range q.Groups {
				for _, c := range g.Calls {
					if seen[c.ID] {
						t.Errorf("%s: %s twice", name, c.ID)
					}
					seen[c.ID] = true
				}
			}
			if f.Cursor = q.Next; f.Cursor == "" {
				break
			}
		}
		if len(seen) != tt.want || matching != tt.want {
			t.Errorf("%s: %d listed, %d counted; want %d", name, len(seen), matching, tt.want)
		}
	}
	for _, bad := range []string{"nonsense", "12", "!.tg_1"} {
		if _, err := o.views.Queue(t.Context(), review.Filter{Cursor: bad}); !errors.Is(err, task.ErrInvalidCursor) {
			t.Errorf("cursor %q: %v", bad, err)
		}
	}
}

// A queue reads previews only, whatever the search text is.
func TestQueueReadsPreviews(t *testing.T) {
	watched := &readStore{}
	o := open(t, func(c *approval.Config) {
		watched.Store = c.Store
		c.Store = watched
	})
	const calls = 120
	for i := range calls {
		o.hold(t, call("ann", fmt.Sprint("/", i)))
	}
	watched.gets.Store(0)
	watched.wholeLists.Store(0)
	watched.notAside.Store(0)
	for _, f := range []review.Filter{{}, {Text: "7"}, {Tool: "delete", Limit: 5}} {
		if _, err := o.views.Queue(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	if n := watched.gets.Load(); n > 0 {
		t.Errorf("%d calls were read", n)
	}
	if w, a := watched.wholeLists.Load(), watched.notAside.Load(); w+a > 0 {
		t.Errorf("%d lists of whole calls, %d reads that count as trouble if they are slow", w, a)
	}
}
