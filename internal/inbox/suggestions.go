package inbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/suggest"
)

// ErrTooMany means that the record of calls is too large for a page.
var ErrTooMany = errors.New("the record has too many calls")

// suggestions shows rules that are proposed from the record of calls.
func (i *Inbox) suggestions(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	report, err := i.proposals.get(r.Context(), i.cfg.Now, i.cfg.Suggest)
	if err != nil && !unsuggested(err) {
		return err
	}
	return i.page(w, r, who, page{section: "overview", title: "Suggestions"}, func(f frame) templ.Component {
		return suggestionsPage(f, report, noSuggestions(err))
	})
}

// unsuggested reports whether err only says that there is nothing to show.
func unsuggested(err error) bool {
	return errors.Is(err, ErrTooMany) || errors.Is(err, suggest.ErrNoCalls)
}

// noSuggestions says why there is no report, or "".
func noSuggestions(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrTooMany):
		return "There are too many calls for a page. Run thoughtgate suggest, which takes its time."
	default:
		return "There are no rules, or no calls in the record of the last 30 days."
	}
}

// A turn lets one request at a time do something costly, and keeps the last result, like
// [summaries].
type turn struct {
	taken  chan struct{}
	report *suggest.Report
	err    error
	until  time.Time
}

func (t *turn) get(ctx context.Context, now func() time.Time, read func(context.Context) (*suggest.Report, error)) (*suggest.Report, error) {
	select {
	case t.taken <- struct{}{}:
		defer func() { <-t.taken }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	begun := now()
	if begun.Before(t.until) {
		return t.report, t.err
	}
	report, err := read(ctx)
	if err == nil || unsuggested(err) {
		ended := now()
		t.report, t.err, t.until = report, err, ended.Add(max(keptFor, keptPer*ended.Sub(begun)))
	}
	return report, err
}

// proposalText describes why a rule is proposed.
func proposalText(p *suggest.Proposal) string {
	if p.Kind == suggest.ReadOnly {
		return "only reads"
	}
	return "always approved with such arguments"
}

// evidenceText describes what a proposal is based on.
func evidenceText(e *suggest.Evidence) string {
	return visible(fmt.Sprintf("%s, %d held, %d approved since %s by %s; none was rejected",
		counted(e.Calls, "call"), e.Held, e.Approved, e.Since.UTC().Format("2 January 2006"), strings.Join(e.By[:min(len(e.By), maxPeople)], ", ")))
}

// maxPeople is how many names of approvers are shown.
const maxPeople = 5

func savesText(perWeek float64) string { return fmt.Sprintf("%.1f approvals a week", perWeek) }
