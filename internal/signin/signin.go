// Package signin lets a person sign in to the MCP server of a wrap, and keeps the tokens for all
// gates of the user:
//
//	tokens := signin.New(signin.Config{URL: server, Store: signin.NewStore(stateDir, signin.SystemKeyring{})})
//
// The first request that the server refuses opens a browser. The request waits a while for the
// sign-in. If that takes longer, the request fails with the link in its error, the sign-in goes on,
// and a later request succeeds. Other gates of the user wait for the same sign-in.
package signin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
)

// Config says how to sign in to one server.
type Config struct {
	URL  string // of the server
	Name string // of the wrap
	// ID and Secret are those of a client that the person has registered; may be empty.
	ID, Secret string
	Issuer     string // the only authorization server to use; may be empty

	Store *Store
	HTTP  *http.Client                                // see [oauth.HTTPClient]
	Open  func(ctx context.Context, url string) error // opens a browser; nil if the machine has none
	Say   func(text string)                           // tells the person how to sign in
	Log   *slog.Logger
	Now   func() time.Time

	Patience time.Duration // how long a request waits for a sign-in; [DefaultPatience] if zero
}

const (
	// DefaultPatience is less than the time that usual hosts allow for a request.
	DefaultPatience = 25 * time.Second
	// signInTimeout is how long a person has to sign in.
	signInTimeout = 10 * time.Minute
	// pauseAfterFailure is how long requests fail at once after a failed sign-in, because an agent
	// that tries again must not open a browser each time.
	pauseAfterFailure = time.Minute
)

// Tokens has the tokens for one server. It implements [httpclient.Tokens].
type Tokens struct {
	cfg    Config
	ctx    context.Context // canceled by Close
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	latest  *attempt
	got     string // the token of the latest sign-in, or the one that has replaced it
	renewed string // the token by which a refused one was replaced without a sign-in
	named   bool   // the record of the server has the name of the wrap
}

// An attempt is a sign-in that runs, or that has ended.
type attempt struct {
	cause httpclient.RefusedToken
	done  chan struct{}
	err   error     // valid after done is closed
	ended time.Time // valid after done is closed

	mu  sync.Mutex
	how string // how the person signs in; empty before that is known
}

// New returns the tokens for a server.
func New(cfg Config) *Tokens {
	if cfg.Patience == 0 {
		cfg.Patience = DefaultPatience
	}
	t := &Tokens{cfg: cfg}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	return t
}

// Close ends a sign-in that runs, and the requests that wait for it.
func (t *Tokens) Close() { t.cancel(errors.New("the gate is stopping")) }

// Wait waits until no sign-in runs, or ctx ends.
func (t *Tokens) Wait(ctx context.Context) {
	t.mu.Lock()
	a := t.latest
	t.mu.Unlock()
	if a == nil {
		return
	}
	select {
	case <-a.done:
	case <-ctx.Done():
	}
}

// SignIn signs in and waits for the person, unless there is a token that the server accepts.
func (t *Tokens) SignIn(ctx context.Context) error {
	token, err := t.Token(ctx, httpclient.Peer{}, nil)
	if err != nil {
		return err
	}
	refused, err := t.probe(ctx, token)
	if err != nil || token != "" && refused.Status != http.StatusUnauthorized {
		return err
	}
	if token != "" {
		if next, err := t.replace(ctx, token); err != nil || next != "" {
			return err
		}
	}
	a := t.begin(refused)
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// probe asks the server with a token, which may be empty. The answer may say how to sign in.
func (t *Tokens) probe(ctx context.Context, token string) (httpclient.RefusedToken, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.cfg.URL, http.NoBody)
	if err != nil {
		return httpclient.RefusedToken{}, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := t.cfg.HTTP.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok { // without the URL, which may have a key
		return httpclient.RefusedToken{}, fmt.Errorf("the server cannot be reached: %w", failed.Err)
	}
	if err != nil {
		return httpclient.RefusedToken{}, err
	}
	_ = resp.Body.Close()
	return httpclient.RefusedToken{Token: token, Status: resp.StatusCode, Challenge: resp.Header["Www-Authenticate"]}, nil
}

// client returns the OAuth client.
func (t *Tokens) client(redirect string) *oauth.Client {
	return &oauth.Client{Resource: t.cfg.URL, Name: "ThoughtGate", Redirect: redirect, ID: t.cfg.ID, Secret: t.cfg.Secret, Issuer: t.cfg.Issuer, HTTP: t.cfg.HTTP, Now: t.cfg.Now}
}

// Token implements [httpclient.Tokens]. Without a sign-in there is no token; the server may not
// need one.
func (t *Tokens) Token(ctx context.Context, _ httpclient.Peer, _ http.Header) (string, error) {
	g, err := t.cfg.Store.read(t.cfg.URL)
	if err == nil && g != nil {
		err = t.note(ctx)
	}
	switch {
	case err != nil:
		return "", failed(err)
	case g == nil || g.Access == "":
		return "", nil
	case g.Fresh(t.cfg.Now()):
		return g.Access, nil
	}
	token, err := t.renew(ctx, g.Access)
	if err != nil {
		return "", failed(err)
	}
	return token, nil
}

// note adds the name of the wrap to the record of the server, once, for [Store.Logout].
func (t *Tokens) note(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.named {
		return nil
	}
	lock, err := t.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	t.named = true
	return t.cfg.Store.addName(t.cfg.URL, t.cfg.Name)
}

// lock locks the record of the server until the file is closed.
func (t *Tokens) lock(ctx context.Context) (*os.File, error) {
	return t.cfg.Store.lock(ctx, t.cfg.Store.file(t.cfg.URL, "lock"), nil)
}

// Renew implements [httpclient.Tokens]. Only messages lead to a sign-in: no person waits for the
// stream of notifications or for the end of a session.
func (t *Tokens) Renew(ctx context.Context, _ httpclient.Peer, header http.Header, refused httpclient.RefusedToken) (string, error) {
	isScope := refused.Status == http.StatusForbidden
	if refused.Last {
		t.noteUseless(refused)
	}
	if refused.Last || isScope && !oauth.NeedsSignIn(refused.Status, refused.Challenge) {
		return "", nil
	}
	if refused.Token != "" && !isScope {
		next, err := t.replace(ctx, refused.Token)
		if err != nil {
			return "", failed(err)
		}
		if next != "" {
			return next, nil
		}
	}
	if header.Get("Content-Type") == "" {
		return "", nil
	}
	return t.signIn(ctx, refused)
}

// errUseless means that a sign-in has changed nothing.
var errUseless = errors.New("the server does not accept the token of the sign-in that has just ended")

// noteUseless makes the latest sign-in one that has failed if the server refuses its token for the reason for
// which the person signed in. Otherwise every request would open a browser.
func (t *Tokens) noteUseless(refused httpclient.RefusedToken) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest == nil || t.latest.counts(t.cfg.Now()) || refused.Token != t.got || refused.Status != t.latest.cause.Status {
		return
	}
	if refused.Status == http.StatusForbidden && !slices.Equal(refused.Challenge, t.latest.cause.Challenge) {
		return // the server asks for other scopes
	}
	done := make(chan struct{})
	close(done)
	t.latest = &attempt{done: done, err: errUseless, ended: t.cfg.Now()}
}

// replace returns another token in place of a refused one, or nothing if the person must sign in.
func (t *Tokens) replace(ctx context.Context, refused string) (string, error) {
	t.mu.Lock()
	again := t.renewed == refused
	t.mu.Unlock()
	if again { // the server does not accept renewed tokens either
		return "", nil
	}
	next, err := t.renew(ctx, refused)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = next
	if t.got == refused {
		t.got = next
	}
	return next, err
}

// renew returns a new token in place of old, unless another process has one already. It returns
// nothing if the person must sign in.
func (t *Tokens) renew(ctx context.Context, old string) (string, error) {
	lock, err := t.lock(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	g, err := t.cfg.Store.read(t.cfg.URL)
	if err != nil || g == nil || g.Access == "" {
		return "", err
	}
	//mutate:false TestRefreshesAreNotRepeated two gates of a user use a refresh token twice
	if g.Access != old && g.Fresh(t.cfg.Now()) {
		return g.Access, nil
	}
	next, err := t.client("").Renew(ctx, g)
	if errors.Is(err, oauth.ErrSignInAgain) {
		t.cfg.Log.InfoContext(ctx, "the sign-in cannot be renewed", "err", err)
		next = &oauth.Grant{Resource: g.Resource, Registration: g.Registration, Scopes: g.Scopes}
		if errors.Is(err, oauth.ErrUnknownClient) {
			next.Registration.ID = ""
		}
		err = nil
	}
	if err != nil {
		return "", err
	}
	return next.Access, t.cfg.Store.write(t.cfg.URL, t.cfg.Name, next)
}

// failed returns the problem of a request for which there is no token.
func failed(err error) error {
	return &mcp.Problem{Type: mcp.UpstreamDown, Detail: "no access token for the server: " + err.Error(), Cause: err}
}

// signIn returns the token of a sign-in, if that ends in time.
func (t *Tokens) signIn(ctx context.Context, refused httpclient.RefusedToken) (string, error) {
	a := t.begin(refused)
	timer := time.NewTimer(t.cfg.Patience)
	defer timer.Stop()
	select {
	case <-a.done:
	case <-timer.C:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if err := a.result(t.cfg.URL); err != nil {
		if errors.Is(err, oauth.ErrNoOAuth) {
			return "", nil
		}
		return "", &mcp.Problem{Type: mcp.NotConnected, Detail: err.Error(), Cause: err}
	}
	g, err := t.cfg.Store.read(t.cfg.URL)
	if err != nil || g == nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.got = g.Access
	return g.Access, nil
}

// result returns the error of a sign-in at a server, or of one that still runs.
func (a *attempt) result(server string) error {
	select {
	case <-a.done:
		return a.err
	default:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.how == "" {
		return errors.New("the server wants you to sign in; that begins at the moment: try again")
	}
	if strings.Contains(server, "?") {
		server = "URL" // the query may have a key
	}
	return fmt.Errorf("the server wants you to sign in: %s; then try again. If the page does not load because the agent has given up, run thoughtgate login %s", a.how, server)
}

// begin begins a sign-in, unless one runs or has just failed.
func (t *Tokens) begin(refused httpclient.RefusedToken) *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest.counts(t.cfg.Now()) {
		return t.latest
	}
	a := &attempt{cause: refused, done: make(chan struct{})}
	t.latest = a
	go t.attempt(t.ctx, a, refused)
	return a
}

// attempt signs in, and ends a.
func (t *Tokens) attempt(ctx context.Context, a *attempt, refused httpclient.RefusedToken) {
	defer close(a.done)
	ctx, stop := context.WithTimeoutCause(ctx, signInTimeout, errors.New("nobody has signed in in time"))
	defer stop()
	err := t.run(ctx, a, refused)
	if a.ended = t.cfg.Now(); err != nil {
		a.err = fmt.Errorf("sign in to the server: %w", err)
		t.cfg.Log.WarnContext(ctx, "sign-in failed", "server", t.cfg.Name, "err", err)
	}
}

// counts reports whether an attempt, which may be nil, stands for the next one: it runs, or has
// just failed.
func (a *attempt) counts(now time.Time) bool {
	if a == nil {
		return false
	}
	select {
	case <-a.done:
		return a.err != nil && now.Before(a.ended.Add(pauseAfterFailure))
	default:
		return true
	}
}

// errElsewhere means that another process did not succeed either.
var errElsewhere = errors.New("another gate of yours has asked you to sign in, without success")

// run signs in, or waits until another process has done so.
func (t *Tokens) run(ctx context.Context, a *attempt, refused httpclient.RefusedToken) error {
	s, waited := t.cfg.Store, false
	name := s.file(t.cfg.URL, "sign-in")
	lock, err := s.lock(ctx, name, func() {
		waited = true
		a.tell(linkIn(name))
	})
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	abandoned := linkIn(name) != "" // by a gate that ended while the person signed in
	if err := lock.Truncate(0); err != nil {
		return err
	}
	earlier, err := s.read(t.cfg.URL)
	if err != nil {
		return err
	}
	//mutate:swap "earlier != nil" "false" TestGatesShareOneSignIn each gate of a user opens a browser
	if earlier != nil && earlier.Access != "" && earlier.Access != refused.Token {
		return nil
	}
	if waited && !abandoned {
		return errElsewhere
	}
	say := func(how string) {
		a.tell(how)
		_ = errors.Join(lock.Truncate(0), writeAt(lock, how)) // for the gates that wait
		t.cfg.Say(how)
	}
	g, err := t.authorize(ctx, refused.Challenge, earlier, say)
	if t.ctx.Err() == nil {
		err = errors.Join(err, lock.Truncate(0))
	}
	if err != nil {
		return err
	}
	file, err := t.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return s.write(t.cfg.URL, t.cfg.Name, g)
}

// forgetRegistration removes the registration of a sign-in without tokens from the store, before this sign-in uses
// it again. If the authorization server has forgotten it and shows the person an error, this sign-in does not end.
// The next one then registers again.
func (t *Tokens) forgetRegistration(ctx context.Context, earlier *oauth.Grant) error {
	if earlier == nil || earlier.Access != "" || earlier.Registration.ID == "" {
		return nil
	}
	lock, err := t.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	without := *earlier
	without.Registration.ID = ""
	return t.cfg.Store.write(t.cfg.URL, t.cfg.Name, &without)
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// linkIn returns what the process that signs in tells the person.
func linkIn(name string) string {
	text, _ := os.ReadFile(name)
	return string(text)
}

// tell sets how the person signs in.
func (a *attempt) tell(how string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.how = how
}
