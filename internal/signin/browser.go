package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/localhost"
	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
)

// authorize lets the person sign in: in a browser of this machine if there is one, and otherwise on
// another device if the authorization server can do that. Say tells the person how.
func (t *Tokens) authorize(ctx context.Context, challenges []string, earlier *oauth.Grant, say func(how string)) (*oauth.Grant, error) {
	if err := t.forgetRegistration(ctx, earlier); err != nil {
		return nil, err
	}
	if t.cfg.Open != nil {
		return t.inBrowser(ctx, challenges, earlier, say)
	}
	g, err := t.onOtherDevice(ctx, challenges, earlier, say)
	if err == nil || ctx.Err() != nil || errors.Is(err, oauth.ErrDenied) || errors.Is(err, oauth.ErrNoOAuth) {
		return g, err
	}
	t.cfg.Log.InfoContext(ctx, "no sign-in on another device", "err", err)
	return t.inBrowser(ctx, challenges, earlier, say)
}

// onOtherDevice lets the person sign in on any device, with a code.
func (t *Tokens) onOtherDevice(ctx context.Context, challenges []string, earlier *oauth.Grant, say func(how string)) (*oauth.Grant, error) {
	c := t.client("")
	d, err := c.BeginDevice(ctx, challenges, earlier)
	if err != nil {
		return nil, err
	}
	link, err := checkLink(d.URL)
	if err != nil {
		return nil, err
	}
	say(fmt.Sprintf("open %s in any browser and enter the code %q", link, d.Code))
	return c.FinishDevice(ctx, d)
}

// callbackPath is the path at which the browser comes back.
const callbackPath = "/callback"

// inBrowser lets the person sign in with a browser of this machine.
func (t *Tokens) inBrowser(ctx context.Context, challenges []string, earlier *oauth.Grant, say func(how string)) (*oauth.Grant, error) {
	l, err := listen(ctx, earlier)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	c := t.client("http://" + l.Addr().String() + callbackPath)
	s, err := c.Begin(ctx, challenges, earlier)
	if err != nil {
		return nil, err
	}
	link, err := checkLink(s.URL)
	if err != nil {
		return nil, err
	}
	b := &callback{host: l.Addr().String(), state: s.State, done: make(chan struct{}), finish: func(answer url.Values) (*oauth.Grant, error) {
		return c.Finish(ctx, s, answer)
	}}
	how := fmt.Sprintf("open %s in a browser on this machine", link)
	if t.cfg.Open == nil {
		_, port, _ := net.SplitHostPort(b.host)
		how += fmt.Sprintf(" (for a browser on another machine, first run there: ssh -L %s:127.0.0.1:%[1]s THIS-MACHINE)", port)
	}
	say(how)
	if t.cfg.Open != nil {
		if err := t.cfg.Open(ctx, link); err != nil {
			t.cfg.Log.InfoContext(ctx, "cannot open a browser", "err", err)
		}
	}
	return b.serve(ctx, l)
}

// listen listens for the browser: at the port of the earlier sign-in if that is free, because then
// the client is registered already, and otherwise at any port.
func listen(ctx context.Context, earlier *oauth.Grant) (net.Listener, error) {
	var config net.ListenConfig
	if earlier != nil {
		if u, err := url.Parse(earlier.Registration.Redirect); err == nil && u.Hostname() == "127.0.0.1" {
			if l, err := config.Listen(ctx, "tcp", u.Host); err == nil {
				return l, nil
			}
		}
	}
	return config.Listen(ctx, "tcp", "127.0.0.1:0")
}

// checkLink returns an address for the browser. It comes from the authorization server.
func checkLink(text string) (string, error) {
	u, err := url.Parse(text)
	//mutate:false TestHostileLinksOfDevices a server opens any program for an address
	if err != nil || u.Scheme != "https" && (u.Scheme != "http" || !localhost.Is(u.Hostname())) || u.Host == "" || u.User != nil {
		return "", errors.New("the authorization server names an address that is not https")
	}
	return u.String(), nil
}

// A callback waits for the browser that comes back from the authorization server.
type callback struct {
	host, state string
	finish      func(answer url.Values) (*oauth.Grant, error)

	once  sync.Once
	done  chan struct{}
	grant *oauth.Grant // valid after done is closed
	err   error
}

// closeTimeout is how long the browser has to read the page.
const closeTimeout = 2 * time.Second

// serve returns the grant that the browser brings.
func (b *callback) serve(ctx context.Context, l net.Listener) (*oauth.Grant, error) {
	server := http.Server{Handler: b, ReadHeaderTimeout: closeTimeout, ConnContext: refuseOthers}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // ends with Shutdown
	}()
	select {
	case <-b.done:
	case <-ctx.Done():
	}
	closing, stop := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer stop()
	_ = errors.Join(server.Shutdown(closing), server.Close())
	<-served
	select {
	case <-b.done:
		return b.grant, b.err
	default:
		return nil, context.Cause(ctx)
	}
}

// refuseOthers closes connections of other users, where the system tells whose they are: they may
// have read the state in the command line of the browser.
func refuseOthers(ctx context.Context, c net.Conn) context.Context {
	if uid, err := localuser.Of(c); err == nil && uid != os.Getuid() && uid != 0 {
		_ = c.Close()
	}
	return ctx
}

// ServeHTTP implements [http.Handler]. Only the first request with the state of the sign-in counts.
func (b *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	answer := r.URL.Query()
	//mutate:swap " == 0" " == 7" TestStrangeCallbacks any page ends a sign-in
	if r.Method != http.MethodGet || r.Host != b.host || r.URL.Path != callbackPath || subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(b.state)) == 0 {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "This is not the answer to a sign-in that runs.\n")
		return
	}
	first := false
	b.once.Do(func() {
		first = true
		defer close(b.done)
		b.grant, b.err = b.finish(answer)
	})
	switch {
	case !first:
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, "This sign-in has ended.\n")
	case b.err != nil:
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "The sign-in failed: "+b.err.Error()+"\n")
	default:
		_, _ = io.WriteString(w, "You are signed in. You can close this page.\n")
	}
}
