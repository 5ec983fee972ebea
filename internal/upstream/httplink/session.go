package httplink

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Send implements [upstream.Server]. If the server does not know the session any more,
// and so has done nothing, Send begins another one and sends the request in that.
func (l *Link) Send(ctx context.Context, r upstream.Request) (*upstream.Response, error) {
	id, err := l.present(&r)
	if err != nil {
		return nil, &upstream.UnsentError{Cause: err}
	}
	resp, err := l.cfg.Client.Send(ctx, r)
	if err != nil || resp.Status != http.StatusNotFound || id == "" {
		return resp, err
	}
	if err := l.renew(ctx, id); err != nil {
		l.cfg.Log.WarnContext(ctx, "the server has ended the session, and another one could not be begun", "cause", err)
		return resp, nil
	}
	_ = resp.Body.Close()
	if _, err = l.present(&r); err != nil {
		return nil, &upstream.UnsentError{Cause: err}
	}
	return l.cfg.Client.Send(ctx, r)
}

// present adds the token to a request and, if it is a legacy one, the session, which
// it returns.
func (l *Link) present(r *upstream.Request) (id string, err error) {
	header, err := l.header()
	if err != nil {
		return "", err
	}
	if wire.EraOf(r.Message) == wire.Legacy && r.Message.Method != methodInitialize {
		l.mu.Lock()
		id = l.session.id
		l.session.identify(header)
		l.mu.Unlock()
	}
	r.As.Header = header
	return id, nil
}

// header returns headers with the token.
func (l *Link) header() (http.Header, error) {
	header := make(http.Header)
	if l.cfg.Token == nil {
		return header, nil
	}
	token, err := l.cfg.Token()
	if err != nil {
		return nil, &wire.Problem{Type: wire.UpstreamDown, Detail: "the token for the server cannot be read", Cause: err}
	}
	header.Set("Authorization", "Bearer "+token)
	return header, nil
}

// identify adds what the server knows the client by.
func (s *session) identify(header http.Header) {
	if s.id != "" {
		header.Set("Mcp-Session-Id", s.id)
	}
	if s.version != "" {
		header.Set("Mcp-Protocol-Version", s.version)
	}
}

// begun notes the session that the server has begun with its answer to initialize.
func (l *Link) begun(id string, answer []byte) {
	m, err := jsonrpc.ParseMessage(bytes.TrimSpace(answer), jsonrpc.Limits{})
	if err != nil || !m.Result.Present() {
		return
	}
	version, _ := m.Result.Member("protocolVersion").Text()
	if !slices.Contains(wire.Versions(), version) {
		version = ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session.id, l.session.version = id, version
}

// renewTime is how long it may take to begin a session again.
const renewTime = 30 * time.Second

// renew begins a session in the place of the one with the given id, as the client has
// begun. The session is not that of one request: a client that cancels the request must
// not leave a session behind that is half begun.
func (l *Link) renew(ctx context.Context, old string) error {
	l.greeting.Lock()
	defer l.greeting.Unlock()
	l.mu.Lock()
	now := l.session
	l.mu.Unlock()
	if now.id != old {
		return nil // somebody else has
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), renewTime)
	defer stop()
	defer context.AfterFunc(l.life, stop)() //nolint:contextcheck // it ends with the link
	if err := l.greet(ctx, now.initialize); err != nil {
		return err
	}
	if !now.isReady {
		return nil
	}
	m, err := jsonrpc.ParseMessage([]byte(`{"jsonrpc":"2.0","method":"`+methodInitialized+`"}`), jsonrpc.Limits{})
	if err != nil {
		return err
	}
	return l.notify(ctx, upstream.Request{Message: m, Body: m.Raw, Forwarded: true})
}

// greet says initialize again, with an id that no client uses.
func (l *Link) greet(ctx context.Context, initialize []byte) error {
	said, err := jsonrpc.ParseMessage(initialize, jsonrpc.Limits{})
	if err != nil {
		return err
	}
	var patch jsonrpc.Patch
	id := jsonrpc.AppendString(nil, "tg-"+rand.Text())
	patch.Replace(said.ID, id)
	m, err := jsonrpc.ParseMessage(patch.Apply(said.Raw), jsonrpc.Limits{})
	if err != nil {
		return err
	}
	r := upstream.Request{Message: m, Body: m.Raw, Forwarded: true}
	if _, err := l.present(&r); err != nil {
		return err
	}
	resp, err := l.cfg.Client.Send(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := l.answerIn(resp, id)
	if err != nil {
		return err
	}
	answer, err := jsonrpc.ParseMessage(text, jsonrpc.Limits{})
	if err != nil || !answer.Result.Present() {
		return fmt.Errorf("the server does not take the client's initialize: %.200s", text)
	}
	l.begun(resp.Session, text)
	return nil
}

// ready notes that the client is ready, and begins to listen to what the server says
// unasked.
func (l *Link) ready() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session.isReady = true
	if l.session.listens != nil {
		l.session.listens()
	}
	var ctx context.Context
	ctx, l.session.listens = context.WithCancel(l.life)
	l.running.Go(func() { l.listen(ctx) })
}

// The times between attempts to listen.
const (
	shortPause = time.Second
	longPause  = 30 * time.Second
)

// listen takes what the server says unasked, until the server says that it does not do
// that, or ctx ends.
func (l *Link) listen(ctx context.Context) {
	place := position{pause: shortPause}
	for ctx.Err() == nil {
		resp, err := l.get(ctx, place.id)
		switch {
		case err == nil && resp.StatusCode == http.StatusOK:
			place.failures = 0
			_ = l.follow(resp.Body, &place, nil) // it goes on in the next one
		case err == nil && resp.StatusCode < http.StatusInternalServerError:
			_ = resp.Body.Close()
			return // 405: it does not; 404: the session has ended
		case err == nil:
			_ = resp.Body.Close()
			place.failures++
		default:
			place.failures++
		}
		place.wait(ctx)
	}
}

// get opens a stream of events, behind the one with the given id.
func (l *Link) get(ctx context.Context, behind string) (*http.Response, error) {
	header, err := l.header()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.session.identify(header)
	l.mu.Unlock()
	header.Set("Accept", "text/event-stream")
	if behind != "" {
		header.Set("Last-Event-Id", behind)
	}
	resp, err := l.cfg.Client.Do(ctx, httpclient.Peer{Use: httpclient.Stream}, &http.Request{Method: http.MethodGet, URL: new(url.URL), Header: header}, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK && httpclient.MediaType(resp.Header.Get("Content-Type")) != "text/event-stream" {
		resp.StatusCode = http.StatusMethodNotAllowed
	}
	return resp, nil
}

// endTime is how long a server may take to end a session.
const endTime = 2 * time.Second

// endSession sends the server the end of the session.
func (l *Link) endSession() {
	header, err := l.header()
	l.mu.Lock()
	id := l.session.id
	if err == nil {
		l.session.identify(header)
	}
	l.mu.Unlock()
	if err != nil || id == "" {
		return
	}
	ctx, stop := context.WithTimeout(l.life, endTime)
	defer stop()
	resp, err := l.cfg.Client.Do(ctx, httpclient.Peer{}, &http.Request{Method: http.MethodDelete, URL: new(url.URL), Header: header}, nil)
	if err == nil {
		_ = resp.Body.Close() // a server may refuse that
	}
}

// Close ends the session and everything that goes on.
func (l *Link) Close() {
	l.endSession()
	l.end()
	l.running.Wait()
	l.cfg.Client.Close()
}

// notify sends what needs no answer.
func (l *Link) notify(ctx context.Context, r upstream.Request) error {
	resp, err := l.Send(ctx, r)
	if err != nil {
		return problemOf(err)
	}
	_ = resp.Body.Close()
	if resp.Status >= http.StatusMultipleChoices {
		return refusal(resp.Status)
	}
	if r.Message.Method == methodInitialized {
		l.ready() //nolint:contextcheck // it listens for as long as the session lasts
	}
	return nil
}
