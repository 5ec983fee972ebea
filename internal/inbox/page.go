package inbox

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

// A Config is what an [Inbox] is made of. Desk, Cases and Now must
// be given.
type Config struct {
	Desk      *approval.Desk
	Cases     *casefile.Viewer
	Now       func() time.Time
	KeepAlive time.Duration // how often a stream of events gets a beat; 15 s
	Log       *slog.Logger

	// NeedsRestart returns the names of the settings that take effect only when
	// the gate is started again. It may be nil.
	NeedsRestart func() []string

	// Channels returns the status of each channel on which people are asked. It may be nil.
	Channels func() []channel.Status

	// Push returns what sends notifications to browsers; nil if nothing does. It may be
	// nil.
	Push func() *push.Push
}

// An Inbox serves the pages of approvers.
type Inbox struct {
	cfg    Config
	assets map[string]asset
	auth   *operator.Auth // set by Register
}

// A frame is what is around the content of every page.
type frame struct {
	title   string
	section string // of the navigation
	who     operator.Operator
	form    string // what shows that a form is one of ours
	waiting int    // how many calls wait
	now     time.Time
	style   string
	script  string
	icon    string
	notice  *notice
	self    string // where the page can be had again
	restart string // which settings need a restart of the gate

	channels []string // which channels messages wait for, in words

	push   string // the key with which a browser subscribes to notifications; empty if it cannot
	device string // another one for each login
}

func (f frame) mayDecide() bool { return f.who.Role.Includes(operator.Approver) }

// frame returns the frame of a page for who.
func (i *Inbox) frame(r *http.Request, who operator.Operator, section, title string) (frame, error) {
	waiting, err := i.cfg.Cases.Waiting(r.Context())
	return i.frameWith(r, who, section, title, waiting), err
}

// frameWith is frame for a page that knows how many calls wait.
func (i *Inbox) frameWith(r *http.Request, who operator.Operator, section, title string, waiting int) frame {
	f := i.bareFrame(title)
	f.waiting = waiting
	f.section, f.who, f.form, f.self = section, who, i.auth.FormToken(who), r.URL.RequestURI()
	f.restart = strings.Join(i.cfg.NeedsRestart(), ", ")
	f.push, f.device = i.pushKey(r, who)
	for _, s := range i.cfg.Channels() {
		if s.Waiting > 0 {
			f.channels = append(f.channels, fmt.Sprintf("Channel %s: %s not sent since %s: %s",
				s.Channel, counted(s.Waiting, "message"), s.Since.UTC().Format("15:04 UTC"), s.Error))
		}
		if s.DecisionsError != "" {
			f.channels = append(f.channels, fmt.Sprintf("Channel %s: the gate does not receive decisions made there: %s", s.Channel, s.DecisionsError))
		}
	}
	return f
}

// bareFrame returns the frame of a page for nobody.
func (i *Inbox) bareFrame(title string) frame {
	return frame{
		title: title, now: i.cfg.Now(),
		style: i.link("inbox.css"), script: i.link("inbox.js"), icon: i.link("icon.svg"),
	}
}

// show answers with a page.
func (i *Inbox) show(w http.ResponseWriter, r *http.Request, status int, page templ.Component) {
	var b bytes.Buffer
	if err := page.Render(r.Context(), &b); r.Context().Err() != nil {
		endedEarly(w)
		return
	} else if err != nil {
		i.cfg.Log.ErrorContext(r.Context(), "inbox page", "path", r.URL.Path, "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if _, err := w.Write(b.Bytes()); err != nil {
		i.cfg.Log.DebugContext(r.Context(), "page not sent", "error", err)
	}
}

// endedEarly answers a request that ended before its page was there: its body did not
// arrive in time, or the session of who made it is over. The page is not theirs to see.
func endedEarly(w http.ResponseWriter) {
	http.Error(w, "This request came too late, or your session has ended. Sign in, and look at the call again before you decide.", http.StatusBadRequest)
}

// link returns where an asset is found, which changes with its content.
func (i *Inbox) link(name string) string { return "/assets/" + name + "?v=" + i.assets[name].version }

// An asset is a file that pages refer to.
type asset struct {
	content []byte
	kind    string
	version string
}
