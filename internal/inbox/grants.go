package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// grants shows the standing approvals.
func (i *Inbox) grants(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	return i.showGrants(w, r, who, page{})
}

func (i *Inbox) showGrants(w http.ResponseWriter, r *http.Request, who operator.Operator, p page) error {
	all := r.Method == http.MethodGet && r.URL.Query().Get("state") == "all"
	list, err := i.cfg.Viewer.Grants(r.Context(), all)
	if err != nil {
		return err
	}
	p.section, p.title, p.self = "grants", "Standing approvals", "/grants"
	return i.page(w, r, who, p, func(f frame) templ.Component { return grantsPage(f, list, all) })
}

// grant shows one standing approval with its uses.
func (i *Inbox) grant(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	g, err := i.cfg.Viewer.Grant(r.Context(), gatetask.GrantID(r.PathValue("id")))
	if err != nil {
		return err
	}
	return i.page(w, r, who, page{section: "grants", title: "Standing approval"}, func(f frame) templ.Component { return grantPage(f, g) })
}

// revoke ends a standing approval.
func (i *Inbox) revoke(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	g, err := i.cfg.Approvals.Revoke(r.Context(), gatetask.GrantID(r.PathValue("id")), api.Approver(who), r.PostFormValue("reason"))
	if errors.Is(err, grantstore.ErrRevoked) {
		return i.showGrants(w, r, who, page{status: http.StatusConflict, notice: &notice{title: "It was revoked before", text: "Nothing has changed."}})
	}
	if err != nil {
		return err
	}
	return i.showGrants(w, r, who, page{notice: &notice{good: true, title: "The standing approval was revoked", text: usesText(g) + " Further calls are held."}})
}

// The form fields of a standing approval.
const (
	fieldUses = "grant_uses"
	fieldFor  = "grant_for"
	fieldFree = "grant_free"

	fieldReach = "grant_reach"
	fieldBelow = "grant_below"

	fieldUntil = "grant_until" // as an approver has signed it with a passkey
)

// gives returns the standing approval that a form gives, or nil.
func (i *Inbox) gives(r *http.Request, id task.ID, who operator.Operator) (*gatetask.GrantTerms, error) {
	if r.PostFormValue(fieldUses) == "" {
		return nil, nil // the approver gives no standing approval
	}
	uses, wrong := strconv.Atoi(r.PostFormValue(fieldUses))
	seconds, bad := strconv.Atoi(r.PostFormValue(fieldFor))
	c, err := i.loadCase(r, id, who)
	if err != nil {
		return nil, err
	}
	terms := &gatetask.GrantTerms{Uses: uses}
	if c.GrantOffer == nil || wrong != nil || bad != nil || seconds > c.GrantOffer.LongestSeconds {
		return nil, &review.NoGrantError{Reason: "it goes further than the workflow allows"}
	}
	// Whole seconds, because an approver with a passkey signs them and sends them again.
	terms.Until = i.cfg.Now().Add(time.Duration(seconds) * time.Second).UTC().Truncate(time.Second)
	if signed, err := time.Parse(time.RFC3339, r.PostFormValue(fieldUntil)); err == nil && signed.Before(terms.Until) {
		terms.Until = signed.UTC()
	}
	terms.GrantShape, err = shapeIn(r, *c.GrantOffer)
	return terms, err
}

// shapeIn returns the shape of a standing approval in a form. The approval service checks it.
func shapeIn(r *http.Request, o review.Offer) (gatetask.GrantShape, error) {
	named := map[string]string{}
	for _, name := range o.Free {
		named[freeValue(name)] = name
	}
	reach, tools, _ := strings.Cut(r.PostFormValue(fieldReach), ":")
	shape := gatetask.GrantShape{Reach: gatetask.GrantReach(reach), Tools: tools}
	for _, value := range r.PostForm[fieldFree] {
		name, known := named[value]
		if !known {
			return shape, &review.NoGrantError{Reason: "an argument cannot be left free"}
		}
		shape.Free = append(shape.Free, name)
	}
	below := map[string]gatetask.GrantBelow{"": {}}
	for _, p := range o.Below {
		for _, directory := range p.Directories {
			below[belowValue(p.Argument, directory)] = gatetask.GrantBelow{Argument: p.Argument, Directory: directory}
		}
	}
	for _, value := range r.PostForm[fieldBelow] {
		b, known := below[value]
		if !known {
			return shape, &review.NoGrantError{Reason: "a path cannot be below that directory"}
		}
		if value != "" {
			shape.Below = append(shape.Below, b)
		}
	}
	return shape, nil
}

// coverage shows what a standing approval would have covered.
func (i *Inbox) coverage(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	id := task.ID(r.PathValue("id"))
	terms, err := i.gives(r, id, who)
	if err == nil && terms == nil {
		err = &review.NoGrantError{Reason: "choose how many calls it may let run"}
	}
	var c approval.Coverage
	if err == nil {
		c, err = i.cfg.Approvals.Coverage(r.Context(), id, api.Approver(who), *terms)
	}
	p := page{title: "What a standing approval covers"}
	switch {
	case err == nil:
	case isOutcome(err):
		p.status, p.notice = http.StatusUnprocessableEntity, &notice{title: "It cannot be given", text: api.Message(err)}
	default:
		return err
	}
	return i.page(w, r, who, p, func(f frame) templ.Component { return coveragePage(f, id, c, terms) })
}

// coverageText describes what a standing approval would have covered.
func coverageText(c approval.Coverage) string {
	if c.Recorded == 0 {
		return "No calls are recorded since " + c.Since.Format(shortTime) + ", so it cannot be said what it covers."
	}
	text := fmt.Sprintf("Since %s it would have let %d of the %s run.", c.Since.Format(shortTime), c.Covered, counted(c.Recorded, "recorded call"))
	if c.Rejected > 0 {
		text += fmt.Sprintf(" People rejected %d of these.", c.Rejected)
	}
	if c.Unknown > 0 {
		text += fmt.Sprintf(" %s of the agent cannot be judged, because their arguments are not recorded in full.", counted(c.Unknown, "more call"))
	}
	if c.Waiting > 0 {
		text += fmt.Sprintf(" %s wait now; they stay held.", counted(c.Waiting, "call")+" like these")
	}
	return text
}

// shortTime is the layout of a time in a sentence.
const shortTime = "2 January, 15:04 UTC"

// exampleText describes a covered call.
func exampleText(x approval.CoveredExample) string {
	text := x.Time.UTC().Format(shortTime) + ": " + visible(x.Tool) + " on " + x.Server
	if len(x.Paths) > 0 {
		text += " " + visible(strings.Join(x.Paths, ", "))
	}
	if x.Outcome != "" {
		text += ", " + x.Outcome
	}
	return text
}

// reachText describes the tools of a reach of several tools.
func reachText(r gatetask.GrantReach, upstream string) string {
	switch r {
	case gatetask.ReachReadOnly:
		return "read-only tools of " + upstream
	case gatetask.ReachServer:
		return "all tools of " + upstream
	case gatetask.ReachAgent:
		return "all tools of all servers"
	default:
		return ""
	}
}

// reachOptions returns the reaches that a form offers.
func reachOptions(o *review.Offer, upstream string) []option {
	all := []option{{"", "this tool only"}}
	for _, r := range o.Reach {
		value := string(r)
		if r == gatetask.ReachReadOnly {
			value += ":" + o.Tools
		}
		all = append(all, option{value, reachText(r, upstream) + ", with any arguments"})
	}
	return all
}

// directoryOptions returns the directories that a form offers for a path.
func directoryOptions(p review.OfferedPath) []option {
	all := []option{{"", "exactly this path"}}
	for _, directory := range p.Directories {
		all = append(all, option{belowValue(p.Argument, directory), "any path below " + visible(directory)})
	}
	return all
}

// belowValue returns the form value for a directory; see [freeValue].
func belowValue(argument, directory string) string { return freeValue(argument + "\x00" + directory) }

// belowText describes the paths that a standing approval allows.
func belowText(all []gatetask.GrantBelow) string {
	var texts []string
	for _, b := range all {
		texts = append(texts, visible(b.Argument)+": any path below "+visible(b.Directory))
	}
	return strings.Join(texts, "; ")
}

// freeValue returns the form value for the name of an argument. It is a digest because
// browsers change some characters of the values that they send.
func freeValue(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// An option is a choice in a form.
type option struct{ value, text string }

// useOptions returns the numbers of uses that a form offers.
func useOptions(o *review.Offer) []option {
	var all []option
	for _, n := range []int{1, 2, 5, 10, 20, 50, 100, 200} {
		if n < o.Uses {
			all = append(all, option{strconv.Itoa(n), "up to " + counted(n, "more call")})
		}
	}
	return append(all, option{strconv.Itoa(o.Uses), "up to " + counted(o.Uses, "more call")})
}

// timeOptions returns the durations that a form offers.
func timeOptions(o *review.Offer) []option {
	var all []option
	for _, d := range []time.Duration{10 * time.Minute, time.Hour, 4 * time.Hour, 8 * time.Hour, 24 * time.Hour} {
		if d < o.Longest() {
			all = append(all, option{strconv.Itoa(int(d / time.Second)), "within " + lengthText(d)})
		}
	}
	return append(all, option{strconv.Itoa(o.LongestSeconds), "within " + lengthText(o.Longest())})
}

// lengthText returns a duration in its largest unit.
func lengthText(d time.Duration) string {
	switch {
	case d%(24*time.Hour) == 0:
		return counted(int(d/(24*time.Hour)), "day")
	case d%time.Hour == 0:
		return counted(int(d/time.Hour), "hour")
	case d%time.Minute == 0:
		return counted(int(d/time.Minute), "minute")
	default:
		return counted(int(d/time.Second), "second")
	}
}

// givenSoFar describes the standing approvals that earlier approvers of a have chosen.
func givenSoFar(a review.Approval) []string {
	var all []string
	for _, d := range a.Approvals {
		text := d.By + " gives no standing approval, so there will be none."
		if g := d.NewGrant; g != nil {
			text = fmt.Sprintf("%s allows %s until %s.", d.By, counted(g.Uses, "more call"), g.Until.UTC().Format("2 January, 15:04 UTC"))
			for n, name := range g.Free {
				text += map[bool]string{true: " Any value for: ", false: ", "}[n == 0] + visible(name)
			}
			if len(g.Below) > 0 {
				text += " " + belowText(g.Below) + "."
			}
			if g.Reach != gatetask.ReachTool {
				text += " For " + reachText(g.Reach, a.Upstream) + "."
			}
		}
		all = append(all, text)
	}
	return all
}

// grantStatuses are the statuses of standing approvals.
var grantStatuses = map[review.GrantState]status{
	review.GrantActive:  {label: "Active", tone: "good"},
	review.GrantSpent:   {label: "Used up", tone: "calm"},
	review.GrantExpired: {label: "Over", tone: "calm"},
	review.GrantRevoked: {label: "Revoked", tone: "bad"},
}

func usesText(g review.Grant) string {
	return fmt.Sprintf("Used %d of %s.", g.Used, counted(g.MaxUses, "time"))
}

// becameText describes the outcome of a use.
func becameText(u review.GrantUse) string {
	switch u.Outcome {
	case review.UseNotMade:
		return "counted, but the gate stopped before it made the call: it never ran"
	case review.UseUnknown:
		return "no longer on record"
	case string(task.Completed):
		return "ran"
	default:
		return u.Outcome
	}
}

// revokedText describes the revocation of a standing approval, or returns "".
func revokedText(g review.Grant) string {
	if g.Revoked == nil {
		return ""
	}
	return g.Revoked.By + ", " + g.Revoked.At.UTC().Format("2 January, 15:04 UTC") + said(g.Revoked.Reason)
}

// mayAccept reports whether the operator may accept changed tools.
func (f frame) mayAccept() bool { return f.who.Role.Includes(operator.Admin) }

// changes shows the changed tools that are not accepted yet.
func (i *Inbox) changes(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	return i.showChanges(w, r, who, page{})
}

func (i *Inbox) showChanges(w http.ResponseWriter, r *http.Request, who operator.Operator, p page) error {
	list, err := i.cfg.Approvals.Changes(r.Context())
	if err != nil {
		return err
	}
	p.section, p.title, p.self = "changes", "Changed tools", "/changes"
	return i.page(w, r, who, p, func(f frame) templ.Component { return changesPage(f, list) })
}

// accept accepts a changed tool.
func (i *Inbox) accept(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	c, err := i.cfg.Approvals.AcceptChange(r.Context(), r.PathValue("id"), api.Approver(who), i.ruling(r, who, approval.Approve))
	if errors.Is(err, approval.ErrDecidedByAgent) {
		return i.showChanges(w, r, who, page{status: http.StatusForbidden, notice: &notice{title: "Nothing was accepted", text: "An agent started the program that sent this."}})
	}
	if errors.Is(err, task.ErrNotFound) {
		return i.showChanges(w, r, who, page{status: http.StatusNotFound, notice: &notice{title: "This change is no longer pending", text: "Nothing was accepted."}})
	}
	if err != nil {
		return err
	}
	return i.showChanges(w, r, who, page{notice: &notice{good: true, title: "The changed tool was accepted", text: visible(c.Tool) + ": " + c.What + "."}})
}
