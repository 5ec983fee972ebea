package inbox

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

// pending shows the calls that wait for a decision.
func (i *Inbox) pending(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	i.showPending(w, r, who, nil)
}

func (i *Inbox) showPending(w http.ResponseWriter, r *http.Request, who operator.Operator, n *notice) {
	s := readSelection(r.URL.Query())
	if r.Method != http.MethodGet {
		s.cursor = "" // what was rejected may have been all of that page
	}
	q, err := i.cfg.Cases.Queue(r.Context(), s.filter())
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	f := i.frameWith(r, who, "waiting", "Waiting", q.Pending)
	f.notice, f.self = n, s.link("/", s.cursor)
	i.show(w, r, http.StatusOK, pendingPage(f, q, s))
}

// A selection is what of the pending calls is asked for.
type selection struct {
	text, tool, agent, workflow string
	cursor                      string
}

func readSelection(q url.Values) selection {
	get := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	return selection{text: get("q"), tool: get("tool"), agent: get("agent"), workflow: get("workflow"), cursor: q.Get("cursor")}
}

func (s selection) filter() casefile.Filter {
	return casefile.Filter{Text: s.text, Tool: s.tool, Principal: s.agent, Workflow: s.workflow, Cursor: s.cursor}
}

func (s selection) narrow() bool {
	return s.text != "" || s.tool != "" || s.agent != "" || s.workflow != ""
}

// link returns the address of a page about the same calls.
func (s selection) link(path, cursor string) string {
	v := url.Values{}
	for name, value := range map[string]string{"q": s.text, "tool": s.tool, "agent": s.agent, "workflow": s.workflow, "cursor": cursor} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return withQuery(path, v)
}

// withQuery returns the address of a page with a query, if there is one.
func withQuery(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// countText says how many calls wait, and how many of them are asked for.
func countText(q casefile.Queue, s selection) string {
	if s.narrow() {
		return fmt.Sprintf("%d of %d pending", q.Matching, q.Pending)
	}
	return fmt.Sprintf("%d pending", q.Pending)
}

// idsOf returns the ids of a group as a form has them.
func idsOf(g casefile.Group) string {
	ids := make([]string, len(g.Calls))
	for n, a := range g.Calls {
		ids[n] = string(a.ID)
	}
	return strings.Join(ids, " ")
}

// versionOf returns what changes whenever a group is to be shown anew.
func versionOf(g casefile.Group) string {
	var b strings.Builder
	for _, a := range g.Calls {
		fmt.Fprintf(&b, "%s %d ", a.ID, len(a.Approvals))
	}
	return b.String()
}

// workflowText says who is asked, and how many of them must approve.
func workflowText(a casefile.Approval) string {
	if a.Quorum > 1 {
		return fmt.Sprintf("%s, %d of %d approvals", a.Workflow, len(a.Approvals), a.Quorum)
	}
	return a.Workflow
}
