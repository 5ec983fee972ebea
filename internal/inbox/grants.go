package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// grants shows the standing approvals.
func (i *Inbox) grants(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	i.showGrants(w, r, who, http.StatusOK, nil)
}

func (i *Inbox) showGrants(w http.ResponseWriter, r *http.Request, who operator.Operator, status int, n *notice) {
	all := r.Method == http.MethodGet && r.URL.Query().Get("state") == "all"
	list, err := i.cfg.Cases.Grants(r.Context(), all)
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	f, err := i.frame(r, who, "grants", "Standing approvals")
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	f.notice = n
	if r.Method != http.MethodGet {
		f.self = "/grants"
	}
	i.show(w, r, status, grantsPage(f, list, all))
}

// grant shows one standing approval with its uses.
func (i *Inbox) grant(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	g, err := i.cfg.Cases.Grant(r.Context(), task.GrantID(r.PathValue("id")))
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	f, err := i.frame(r, who, "grants", "Standing approval")
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	i.show(w, r, http.StatusOK, grantPage(f, g))
}

// revoke ends a standing approval.
func (i *Inbox) revoke(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	g, err := i.cfg.Desk.Revoke(r.Context(), task.GrantID(r.PathValue("id")), api.Approver(who), r.PostFormValue("reason"))
	switch {
	case err == nil:
		i.showGrants(w, r, who, http.StatusOK, &notice{good: true, title: "The standing approval was revoked", text: usesText(g) + " Further calls are held."})
	case errors.Is(err, grantstore.ErrRevoked):
		i.showGrants(w, r, who, http.StatusConflict, &notice{title: "It was revoked before", text: "Nothing has changed."})
	default:
		i.fail(w, r, who, err)
	}
}

// The fields of the form with which a standing approval is given.
const (
	fieldUses = "grant_uses"
	fieldFor  = "grant_for"
	fieldFree = "grant_free"
)

// gives returns the standing approval that a form gives, or nil.
func (i *Inbox) gives(r *http.Request, id task.ID, who operator.Operator) (*task.GrantTerms, error) {
	if r.PostFormValue(fieldUses) == "" {
		return nil, nil //nolint:nilnil // no standing approval is no error
	}
	uses, wrong := strconv.Atoi(r.PostFormValue(fieldUses))
	seconds, bad := strconv.Atoi(r.PostFormValue(fieldFor))
	c, err := i.loadCase(r, id, who)
	if err != nil {
		return nil, err
	}
	terms := &task.GrantTerms{Uses: uses}
	if c.Offer == nil || wrong != nil || bad != nil || seconds > c.Offer.LongestSeconds {
		return nil, &casefile.NoGrantError{Why: "it goes further than the workflow allows"}
	}
	terms.Until = i.cfg.Now().Add(time.Duration(seconds) * time.Second)
	named := map[string]string{}
	for _, name := range c.Offer.Free {
		named[freeValue(name)] = name
	}
	for _, value := range r.PostForm[fieldFree] {
		name, known := named[value]
		if !known {
			return nil, &casefile.NoGrantError{Why: "an argument cannot be left free"}
		}
		terms.Free = append(terms.Free, name)
	}
	return terms, nil
}

// freeValue returns what a form calls an argument. Browsers change some characters
// of the values that they send.
func freeValue(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// An option is a choice in a form.
type option struct{ value, text string }

// useOptions returns the numbers of uses that a form offers.
func useOptions(o *casefile.Offer) []option {
	var all []option
	for _, n := range []int{1, 2, 5, 10, 20, 50, 100, 200} {
		if n < o.Uses {
			all = append(all, option{strconv.Itoa(n), "up to " + counted(n, "more call")})
		}
	}
	return append(all, option{strconv.Itoa(o.Uses), "up to " + counted(o.Uses, "more call")})
}

// timeOptions returns the times that a form offers.
func timeOptions(o *casefile.Offer) []option {
	var all []option
	for _, d := range []time.Duration{10 * time.Minute, time.Hour, 4 * time.Hour, 8 * time.Hour, 24 * time.Hour} {
		if d < o.Longest() {
			all = append(all, option{strconv.Itoa(int(d / time.Second)), "within " + lengthText(d)})
		}
	}
	return append(all, option{strconv.Itoa(o.LongestSeconds), "within " + lengthText(o.Longest())})
}

// lengthText returns a length of time in words.
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

// givenSoFar says which standing approvals those who have approved a want to give.
func givenSoFar(a casefile.Approval) []string {
	var all []string
	for _, d := range a.Approvals {
		text := d.By + " gives no standing approval, so there will be none."
		if g := d.Gives; g != nil {
			text = fmt.Sprintf("%s allows %s until %s.", d.By, counted(g.Uses, "more call"), g.Until.UTC().Format("2 January, 15:04 UTC"))
			for n, name := range g.Free {
				text += map[bool]string{true: " Any value for: ", false: ", "}[n == 0] + visible(name)
			}
		}
		all = append(all, text)
	}
	return all
}

// grantStatus says whether a standing approval can be used.
func grantStatus(g casefile.Grant) status {
	switch g.State {
	case casefile.GrantActive:
		return status{label: "Active", tone: "good"}
	case casefile.GrantSpent:
		return status{label: "Used up", tone: "calm"}
	case casefile.GrantRevoked:
		return status{label: "Revoked", tone: "bad"}
	default:
		return status{label: "Over", tone: "calm"}
	}
}

func usesText(g casefile.Grant) string {
	return fmt.Sprintf("Used %d of %d times.", g.Used, g.MaxUses)
}

// becameText says what became of a use.
func becameText(u casefile.GrantUse) string {
	switch u.Became {
	case casefile.UseNotMade:
		return "counted, but the gate stopped before it made the call: it never ran"
	case casefile.UseUnknown:
		return "no longer on record"
	case string(task.Completed):
		return "ran"
	default:
		return u.Became
	}
}

// revokedText says who revoked a standing approval, or nothing.
func revokedText(g casefile.Grant) string {
	if g.Revoked == nil {
		return ""
	}
	return g.Revoked.By + ", " + g.Revoked.At.UTC().Format("2 January, 15:04 UTC") + said(g.Revoked.Reason)
}
