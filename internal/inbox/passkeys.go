package inbox

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/passkey"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// The form fields that the script fills with what a passkey answers.
const (
	fieldSigned  = "signed"  // the signature of a passkey
	fieldCreated = "created" // a new passkey
)

// site returns the site of the browser that sent r.
func (i *Inbox) site(r *http.Request) (passkey.Site, error) {
	at, err := passkey.SiteAt(i.auth.Origin(r))
	if err != nil {
		return at, errors.Join(passkey.ErrInvalid, err)
	}
	return at, nil
}

// A signing is what the script passes to the browser for a signature, and sends with the form afterwards.
type signing struct {
	Options any               `json:"get"`
	Fields  map[string]string `json:"fields,omitempty"`
}

// signing returns what the operator's browser needs to sign a challenge.
func (i *Inbox) signing(r *http.Request, who operator.Operator, c passkey.Challenge) (s signing, err error) {
	at, err := i.site(r)
	if err != nil {
		return s, err
	}
	own, err := i.cfg.Approvals.Passkeys().Of(r.Context(), who.Name)
	if err != nil {
		return s, err
	}
	s.Options, err = at.Signing(c, own)
	return s, err
}

// A confirmation says how the approver's browser confirms an approval.
type confirmation struct {
	place     string // where a decision of this page counts
	needed    bool   // whether it asks for a passkey
	problem   string // why it cannot; empty if it can
	link      string // to a page that helps
	elsewhere string // the text of the link
}

// confirmation returns how the operator confirms an approval of a call.
func (i *Inbox) confirmation(r *http.Request, who operator.Operator, d review.Details) (confirmation, error) {
	c := confirmation{place: placeText(who), needed: d.Confirm != ""}
	if !c.needed || d.State != task.InputRequired {
		return c, nil
	}
	at, notHere := i.site(r)
	own, err := i.cfg.Approvals.Passkeys().Of(r.Context(), who.Name)
	if err != nil {
		return c, err
	}
	_, none := at.Signing(nil, own)
	switch {
	case notHere != nil:
		c.problem = "This workflow needs your passkey, and browsers do not allow passkeys at this address."
		c.link = onLocalhost(i.auth.Origin(r), "/approvals/"+url.PathEscape(string(d.ID)))
		c.elsewhere = "Open it at localhost"
	case none != nil:
		c.problem, c.link, c.elsewhere = "This workflow needs your passkey, and you have none.", "/passkeys", "Add a passkey"
	}
	return c, nil
}

// passkeyText explains why an approval does not count without a passkey, or with the one that was used. It
// returns "" for other errors.
func passkeyText(err error) string {
	switch {
	case errors.Is(err, approval.ErrPasskeyRequired):
		return "This workflow needs your passkey. It needs a browser that runs the script of this page."
	case errors.Is(err, approval.ErrPasskeyInvalid):
		return sentence(err)
	default:
		return ""
	}
}

// placeText says where the operator's decision counts.
func placeText(who operator.Operator) string {
	how := "with a token"
	if who.Method == operator.ByOIDC {
		how = "with the identity provider"
	}
	return "This browser, signed in as " + who.Name + " " + how + "."
}

// confirm answers with what the approver signs for the decision of a form. A decision that cannot
// count is answered like the form itself.
func (i *Inbox) confirm(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	id := task.ID(r.PathValue("id"))
	ruling, err := i.form(r, id, who, approval.Approve)
	return i.sendStatement(w, r, who, ruling, err)
}

// confirmCorrection is confirm for a rejection with a correction.
func (i *Inbox) confirmCorrection(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	ruling, err := i.correctionForm(r, who)
	return i.sendStatement(w, r, who, ruling, err)
}

// sendStatement answers with what the approver signs for a decision, unless err is why it cannot count.
func (i *Inbox) sendStatement(w http.ResponseWriter, r *http.Request, who operator.Operator, ruling approval.Ruling, err error) error {
	if err != nil {
		return i.showOutcome(w, r, who, ruling, err)
	}
	about, err := i.cfg.Approvals.Statement(r.Context(), task.ID(r.PathValue("id")), api.Approver(who), ruling)
	if err != nil {
		return i.showOutcome(w, r, who, ruling, err)
	}
	s, err := i.signing(r, who, passkey.ToApprove(about))
	if errors.Is(err, passkey.ErrNoPasskey) {
		err = approval.ErrPasskeyRequired
	}
	if err != nil {
		return i.showOutcome(w, r, who, ruling, err)
	}
	if ruling.Gives != nil {
		s.Fields = map[string]string{fieldUntil: ruling.Gives.Until.Format(time.RFC3339)}
	}
	return sendJSON(w, s)
}

func sendJSON(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.MarshalWrite(w, value)
}

// A passkeyView is the content of the page of passkeys.
type passkeyView struct {
	own, others []passkey.Passkey
	code        string // of an invitation, from the address
	link        string // a new invitation, shown once
	invited     string // the operator of link
	problem     string // why this browser cannot use passkeys here
	elsewhere   string // the address at which it can, if known
}

// mayAdd reports whether the operator can add a passkey.
func (v passkeyView) mayAdd() bool { return v.problem == "" && (v.code != "" || len(v.own) > 0) }

// passkeys shows the operator's passkeys, and to administrators those of all operators.
func (i *Inbox) passkeys(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	return i.showPasskeys(w, r, who, page{}, passkeyView{code: r.URL.Query().Get("code")})
}

func (i *Inbox) showPasskeys(w http.ResponseWriter, r *http.Request, who operator.Operator, p page, v passkeyView) error {
	all, err := i.cfg.Approvals.Passkeys().All(r.Context())
	if err != nil {
		return err
	}
	for _, one := range all {
		switch {
		case one.Operator == who.Name && !one.Removed():
			v.own = append(v.own, one)
		case who.Role.Includes(operator.Admin):
			v.others = append(v.others, one)
		}
	}
	if _, err := i.site(r); err != nil {
		v.problem, v.elsewhere = "Browsers allow passkeys only at the name of a host, over https or at localhost.", onLocalhost(i.auth.Origin(r), r.URL.RequestURI())
	}
	p.section, p.title, p.self = "passkeys", "Passkeys", "/passkeys"
	return i.page(w, r, who, p, func(f frame) templ.Component { return passkeysPage(f, v) })
}

// onLocalhost returns the address of a page of a gate on this machine at which browsers allow passkeys,
// or "".
func onLocalhost(origin *url.URL, path string) string {
	if ip := net.ParseIP(origin.Hostname()); ip == nil || !ip.IsLoopback() {
		return ""
	}
	return origin.Scheme + "://" + net.JoinHostPort("localhost", origin.Port()) + path
}

// session identifies the session of an operator in challenges.
func (i *Inbox) session(who operator.Operator) string { return i.auth.FormToken(who) }

// newPasskey answers with what the operator's browser needs to create a passkey.
func (i *Inbox) newPasskey(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	at, err := i.site(r)
	if err != nil {
		return i.passkeyProblem(w, r, who, err)
	}
	own, err := i.cfg.Approvals.Passkeys().Of(r.Context(), who.Name)
	if err != nil {
		return err
	}
	return sendJSON(w, map[string]any{"create": at.Creation(who.Name, passkey.ToCreate(who.Name, i.session(who)), own)})
}

// confirmPasskey answers with what the operator signs to add the new passkey of a form.
func (i *Inbox) confirmPasskey(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	s, err := i.signing(r, who, passkey.ToAdd(who.Name, r.PostFormValue(fieldCreated)))
	if err != nil {
		return i.passkeyProblem(w, r, who, err)
	}
	return sendJSON(w, s)
}

// addPasskey adds the new passkey of a form.
func (i *Inbox) addPasskey(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	at, err := i.site(r)
	if err == nil {
		err = i.cfg.Approvals.Passkeys().Add(r.Context(), passkey.Request{
			Operator: who.Name, Session: i.session(who), Site: at, Label: r.PostFormValue("label"),
			Created: r.PostFormValue(fieldCreated), Code: r.PostFormValue("code"), Confirmed: r.PostFormValue(fieldSigned),
		})
	}
	if err != nil {
		return i.passkeyProblem(w, r, who, err)
	}
	good := notice{good: true, title: "The passkey was added", text: "Add a second one on another device, for the day on which you lose this one."}
	return i.showPasskeys(w, r, who, page{notice: &good}, passkeyView{})
}

// sentence returns the text of an error as a sentence. Joined errors are on lines of their own.
func sentence(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// passkeyProblem shows why nothing was changed. It returns errors that are failures.
func (i *Inbox) passkeyProblem(w http.ResponseWriter, r *http.Request, who operator.Operator, err error) error {
	for _, known := range []error{passkey.ErrInvalid, passkey.ErrNotInvited, passkey.ErrTooMany, passkey.ErrNoPasskey, passkey.ErrLast} {
		if errors.Is(err, known) {
			n := notice{title: "Nothing was changed", text: sentence(err)}
			i.cfg.Log.WarnContext(r.Context(), "passkey not changed", "operator", who.Name, "err", err)
			return i.showPasskeys(w, r, who, page{status: http.StatusForbidden, notice: &n}, passkeyView{})
		}
	}
	return err
}

// confirmRemoval answers with what the operator signs to remove a passkey.
func (i *Inbox) confirmRemoval(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	s, err := i.signing(r, who, passkey.ToRemove(r.PostFormValue("passkey"), who.Name))
	if err != nil {
		return i.passkeyProblem(w, r, who, err)
	}
	return sendJSON(w, s)
}

// removePasskey removes a passkey: one of the operator's own, or any if the operator is an administrator.
func (i *Inbox) removePasskey(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	name, keys := r.PostFormValue("passkey"), i.cfg.Approvals.Passkeys()
	own, err := keys.Of(r.Context(), who.Name)
	if err != nil {
		return err
	}
	at, err := i.site(r)
	switch {
	case err != nil:
	//mutate:false TestPasskeyPage an approver removes the passkey of another
	case !who.Role.Includes(operator.Admin) && !slices.ContainsFunc(own, func(p passkey.Passkey) bool { return p.Name() == name }):
		err = passkey.ErrNoPasskey
	default:
		err = keys.Remove(r.Context(), name, who.Name, r.PostFormValue(fieldSigned), at)
	}
	if err != nil {
		return i.passkeyProblem(w, r, who, err)
	}
	n := notice{good: true, title: "The passkey was removed", text: "Approvals that it has signed and that have not run do not count any more."}
	return i.showPasskeys(w, r, who, page{notice: &n}, passkeyView{})
}

// invitation returns the invitation of a form.
func (i *Inbox) invitation(r *http.Request, who operator.Operator) passkey.Invitation {
	v := passkey.Invitation{Operator: r.PostFormValue("operator"), By: who.Name, Expires: i.cfg.Now().Add(invitationValid).UTC().Truncate(time.Second)}
	if signed, err := time.Parse(time.RFC3339, r.PostFormValue("expires")); err == nil {
		v.Expires = signed.UTC()
	}
	return v
}

// invitationValid is how long an operator can use an invitation.
const invitationValid = 12 * time.Hour

// confirmInvitation answers with what an administrator signs to invite an operator.
func (i *Inbox) confirmInvitation(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	v := i.invitation(r, who)
	s, err := i.signing(r, who, passkey.ToInvite(v))
	if err != nil {
		return i.passkeyProblem(w, r, who, err)
	}
	s.Fields = map[string]string{"expires": v.Expires.Format(time.RFC3339)}
	return sendJSON(w, s)
}

// invite shows a link with which an operator can add a passkey.
func (i *Inbox) invite(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	at, err := i.site(r)
	var code string
	v := i.invitation(r, who)
	switch {
	case v.Operator == "":
		err = passkey.ErrNotInvited
	case err == nil:
		code, err = i.cfg.Approvals.Passkeys().Invite(r.Context(), v, r.PostFormValue(fieldSigned), at)
	}
	if err != nil {
		return i.passkeyProblem(w, r, who, err)
	}
	return i.showPasskeys(w, r, who, page{}, passkeyView{link: at.Origin + "/passkeys?code=" + url.QueryEscape(code), invited: v.Operator})
}
