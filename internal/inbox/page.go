package inbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/provenance"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/suggest"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Config configures [New]. All fields except KeepAlive are required.
type Config struct {
	Approvals *approval.Service
	Viewer    *review.Viewer
	Agents    *provenance.Agents // tells which program sends a decision; may be nil

	// Connections are the connections to servers that want OAuth; nil if there are none.
	Connections *connection.Connections

	Now       func() time.Time
	KeepAlive time.Duration // interval of the beats in a stream of events; 15 s by default
	Log       *slog.Logger

	// NeedsRestart returns the names of the settings that take effect only when
	// the gate is started again.
	NeedsRestart func() []string

	// Changes returns the latest changes of the policy and of other settings, newest first.
	Changes func(context.Context) ([]task.Note, error)

	// Record is the record of calls that the history shows; nil if nothing is recorded.
	Record *callrecord.Log

	// Summarize counts the calls in the record, from since until until.
	Summarize func(ctx context.Context, since, until time.Time, periods int) (callrecord.Summary, error)

	// Suggest proposes rules from the record of calls. It returns [ErrTooMany] if that takes too long.
	Suggest func(context.Context) (*suggest.Report, error)

	Trials Trials

	// Channels returns the status of each channel that asks approvers.
	Channels func() []channel.Status

	// Missing returns the servers of endpoints that cannot be used.
	Missing func() []MissingServer

	// Push returns the channel that sends notifications to browsers. It may return nil.
	Push func() *push.Push
}

// A MissingServer is a server that an endpoint has to do without.
type MissingServer struct {
	Server, Endpoint, Cause string
	Since                   time.Time
}

// An Inbox serves the pages of approvers. It is safe for concurrent use after
// [Inbox.Register].
type Inbox struct {
	cfg    Config
	assets map[string]asset
	auth   *operator.Auth // set by Register

	summaries summaries
	proposals turn
	trying    trying
}

// A frame is the data for the header and the footer of a page.
type frame struct {
	title   string
	section string // the current entry of the navigation
	who     operator.Operator
	form    string // the form token, see operator.Auth.FormToken
	waiting int    // number of pending calls
	now     time.Time
	style   string
	script  string
	icon    string
	notice  *notice
	self    string // address from which the script reloads the page
	restart string // names of the settings that need a restart

	connects bool // there are servers to connect

	troubles []string // warnings about channels and servers that fail

	push   string // the key for subscribing to notifications; empty if this is not possible
	device string // a name for the session, see pushKey
}

// mayReject reports whether the operator's role lets it reject calls and revoke standing approvals.
func (f frame) mayReject() bool { return f.who.Role.Includes(operator.Rejecter) }

// A page has the properties of a page that depend on its handler.
type page struct {
	section, title string
	waiting        int     // number of pending calls; 0 if it was not counted
	status         int     // 0 means 200
	notice         *notice // the result of a form; may be nil
	self           string  // address for reloading, if the page answers a form
}

// page answers with a page for the operator.
func (i *Inbox) page(w http.ResponseWriter, r *http.Request, who operator.Operator, p page, content func(frame) templ.Component) error {
	if p.waiting == 0 {
		var err error
		if p.waiting, err = i.cfg.Viewer.CountPending(r.Context()); err != nil {
			return err
		}
	}
	f := i.frame(r, who, p.section, p.title, p.waiting)
	f.notice = p.notice
	if r.Method != http.MethodGet {
		f.self = p.self
	}
	i.show(w, r, cmp.Or(p.status, http.StatusOK), content(f))
	return nil
}

// frame returns the frame of a page for a signed-in operator.
func (i *Inbox) frame(r *http.Request, who operator.Operator, section, title string, waiting int) frame {
	f := i.bareFrame(title)
	f.waiting = waiting
	f.section, f.who, f.form, f.self = section, who, i.auth.FormToken(who), selfOf(r)
	f.connects = len(i.cfg.Connections.Servers()) > 0
	f.restart = strings.Join(i.cfg.NeedsRestart(), ", ")
	f.push, f.device = i.pushKey(r, who)
	//mutate:true TestChannelTroubleIsForAdmins approvers read errors of channels
	if who.Role.Includes(operator.Admin) {
		f.troubles = append(i.channelTrouble(), i.serverTrouble()...)
	}
	return f
}

// selfOf returns the address of a page without the call that was decided before, whose notice is shown once.
func selfOf(r *http.Request) string {
	query := r.URL.Query()
	if !query.Has(fieldAfter) {
		return r.URL.RequestURI()
	}
	query.Del(fieldAfter)
	return withQuery(r.URL.Path, query)
}

// channelTrouble says which channels fail, and what to do about it.
func (i *Inbox) channelTrouble() (all []string) {
	for _, s := range i.cfg.Channels() {
		if s.Waiting > 0 {
			all = append(all, fmt.Sprintf("Channel %s: %s not sent since %s. The gate tries again until it can; check the channel's settings if this lasts. Cause: %s",
				s.Channel, counted(s.Waiting, "message"), s.Since.UTC().Format("15:04 UTC"), s.Error))
		}
		if s.DecisionsError != "" {
			all = append(all, fmt.Sprintf("Channel %s: the gate does not receive decisions made there. Check its token, and that the gate can reach it. Cause: %s", s.Channel, s.DecisionsError))
		}
	}
	return all
}

// serverTrouble says which servers of endpoints cannot be used, and what to do about it.
func (i *Inbox) serverTrouble() (all []string) {
	for _, m := range i.cfg.Missing() {
		all = append(all, fmt.Sprintf("Server %s of %s: unavailable since %s. Agents get errors for its tools; other servers are not affected. Check that it runs and that the gate can reach it; "+
			"the gate tries again. Cause: %s", m.Server, m.Endpoint, m.Since.UTC().Format("15:04 UTC"), m.Cause))
	}
	return all
}

// bareFrame returns the frame of a page without an operator.
func (i *Inbox) bareFrame(title string) frame {
	return frame{
		title: title, now: i.cfg.Now(),
		style: i.link("inbox.css"), script: i.link("inbox.js"), icon: i.link("icon.svg"),
	}
}

// show renders a page and sends it.
func (i *Inbox) show(w http.ResponseWriter, r *http.Request, status int, page templ.Component) {
	var b bytes.Buffer
	if err := page.Render(r.Context(), &b); r.Context().Err() != nil {
		endedEarly(w)
		return
	} else if err != nil {
		i.cfg.Log.ErrorContext(r.Context(), "inbox page", "path", r.URL.Path, "err", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if _, err := w.Write(b.Bytes()); err != nil {
		i.cfg.Log.DebugContext(r.Context(), "page not sent", "err", err)
	}
}

// endedEarly answers a request whose context ended before its page was rendered: the body
// arrived too late, or the session ended. In both cases the client must not see the page.
func endedEarly(w http.ResponseWriter) {
	http.Error(w, "This request came too late, or your session has ended. Sign in, and look at the call again before you decide.", http.StatusBadRequest)
}

// link returns the address of an asset. It changes with the content of the asset.
func (i *Inbox) link(name string) string { return "/assets/" + name + "?v=" + i.assets[name].version }

// An asset is a static file, such as the style sheet.
type asset struct {
	content []byte
	kind    string
	version string
}

// An event tells open pages that a call has changed. It has the data for a
// notification; for everything else the script reloads the page.
type event struct {
	ID        task.ID   `json:"id"`
	Pending   bool      `json:"pending"`
	Tool      string    `json:"tool"`
	Requester string    `json:"requester"`
	CreatedAt time.Time `json:"createdAt"`
}

// events sends every pending call, and then each change, until the client leaves or
// its session ends.
func (i *Inbox) events(w http.ResponseWriter, r *http.Request, _ operator.Operator) error {
	// A comment would also keep the connection open, but scripts do not see comments:
	// without beats the script could not detect a broken connection.
	beat := fmt.Sprintf("event: beat\ndata: %d\n\n", i.cfg.KeepAlive.Milliseconds())
	api.Stream{Viewer: i.cfg.Viewer, KeepAlive: i.cfg.KeepAlive, Comment: beat, Event: eventText, Log: i.cfg.Log}.Serve(w, r)
	return nil
}

func eventText(a review.Approval) (string, error) {
	text, err := json.Marshal(event{
		ID: a.ID, Pending: a.State == task.InputRequired, Tool: a.Tool, Requester: requester(a), CreatedAt: a.CreatedAt,
	})
	return "data: " + string(text) + "\n\n", err
}

// pushKey returns the key with which the operator's browser can subscribe to
// notifications, and a name for the session. Both are empty if it cannot subscribe.
func (i *Inbox) pushKey(r *http.Request, who operator.Operator) (key, device string) {
	p := i.cfg.Push()
	if p == nil || who.SessionID() == "" || !who.Role.Includes(operator.Approver) {
		return "", ""
	}
	key, err := p.Key(r.Context())
	if err != nil {
		i.cfg.Log.WarnContext(r.Context(), "the key for push messages cannot be read", "err", err)
		return "", ""
	}
	sum := sha256.Sum256([]byte("device " + who.SessionID()))
	return key, hex.EncodeToString(sum[:8])
}

// subscribe makes a browser receive notifications.
func (i *Inbox) subscribe(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	i.changePush(w, r, func(p *push.Push) error {
		return p.Subscribe(r.Context(), who, push.Subscription{
			Endpoint: r.PostFormValue("endpoint"), Key: r.PostFormValue("key"), Auth: r.PostFormValue("auth"),
		})
	})
	return nil
}

// unsubscribe removes the subscription of the session.
func (i *Inbox) unsubscribe(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	i.changePush(w, r, func(p *push.Push) error { return p.Unsubscribe(r.Context(), who) })
	return nil
}

func (i *Inbox) changePush(w http.ResponseWriter, r *http.Request, change func(*push.Push) error) {
	p := i.cfg.Push()
	if p == nil {
		http.NotFound(w, r)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxSubscription)
	switch err := change(p); {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, push.ErrNoLogin), errors.Is(err, push.ErrEndpoint):
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		i.cfg.Log.ErrorContext(r.Context(), "inbox: push", "err", err)
		http.Error(w, "the gate's store cannot be reached at the moment", http.StatusServiceUnavailable)
	}
}

// maxSubscription is the maximum size of a form with a subscription, in bytes.
const maxSubscription = 8 << 10
