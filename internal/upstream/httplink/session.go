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

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Send implements [upstream.Server]. If the server no longer knows the session, and so has not run
// the request, Send begins another session and sends the request again.
func (l *Link) Send(ctx context.Context, r upstream.Request) (*upstream.Response, error) {
	id, err := l.authorize(&r)
	if err != nil {
		return nil, &upstream.UnsentError{Cause: err}
	}
	resp, err := l.cfg.Client.Send(ctx, r)
	if err != nil || resp.Status != http.StatusNotFound || id == "" {
		return resp, err
	}
	var ran bool
	//mutate:swap "; ran {" "; ran && false {" TestLegacy a call that may have run is sent again in a new session
	if resp.Body, ran = httpclient.MayHaveRun(resp.Body, l.cfg.Client.ReadTimeout(httpclient.Call)); ran {
		return resp, nil
	}
	if err := l.renew(ctx, id); err != nil {
		l.cfg.Log.WarnContext(ctx, "server ended the session; cannot begin another one", "err", err)
		return resp, nil
	}
	_ = resp.Body.Close()
	if _, err = l.authorize(&r); err != nil {
		return nil, &upstream.UnsentError{Cause: err}
	}
	return l.cfg.Client.Send(ctx, r)
}

// authorize adds the token to a request and, if it is legacy, the session, whose id it returns.
func (l *Link) authorize(r *upstream.Request) (id string, err error) {
	header, err := l.header()
	if err != nil {
		return "", err
	}
	if mcp.EraOf(r.Message) == mcp.Legacy && r.Message.Method != mcpname.Initialize {
		l.mu.Lock()
		id = l.session.id
		l.session.identify(header)
		l.mu.Unlock()
	}
	r.Credentials.Header = header
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
		return nil, &mcp.Problem{Type: mcp.UpstreamDown, Detail: "the token for the server cannot be read", Cause: err}
	}
	header.Set("Authorization", "Bearer "+token)
	return header, nil
}

// identify adds the headers of the session.
func (s *session) identify(header http.Header) {
	if s.id != "" {
		header.Set("Mcp-Session-Id", s.id)
	}
	if s.version != "" {
		header.Set("Mcp-Protocol-Version", s.version)
	}
}

// noteSession keeps the session that the server has begun with its answer to initialize.
func (l *Link) noteSession(id string, answer []byte) {
	m, err := jsonrpc.ParseMessage(bytes.TrimSpace(answer), jsonrpc.Limits{})
	if err != nil || !m.Result.Present() {
		return
	}
	version, _ := m.Result.Member("protocolVersion").Text()
	if !slices.Contains(mcp.Versions(), version) {
		version = ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session.id, l.session.version = id, version
}

// renewTimeout limits the time to begin another session.
const renewTimeout = 30 * time.Second

// renew begins another session in place of the one with this id, with the client's initialize
// request. It does not end with ctx: a client that cancels its request must not leave a
// half-initialized session behind.
func (l *Link) renew(ctx context.Context, old string) error {
	l.renewMu.Lock()
	defer l.renewMu.Unlock()
	l.mu.Lock()
	now := l.session
	l.mu.Unlock()
	if now.id != old {
		return nil // another request has renewed it
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), renewTimeout)
	defer stop()
	defer context.AfterFunc(l.ctx, stop)() // end with the link
	if err := l.initialize(ctx, now.initialize); err != nil {
		return err
	}
	if !now.isReady {
		return nil
	}
	m := jsonrpc.NewRequest(nil, mcpname.NotifyInitialized, jsonrpc.Params{})
	r := upstream.Request{Message: &m, Body: m.Raw, Forwarded: true}
	if _, err := l.authorize(&r); err != nil {
		return err
	}
	resp, err := l.cfg.Client.Send(ctx, r) // not l.Send, which would renew the session again
	return l.notified(r, resp, err)
}

// initialize repeats the client's initialize request with a new id.
func (l *Link) initialize(ctx context.Context, initialize []byte) error {
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
	if _, err := l.authorize(&r); err != nil {
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
	if err != nil || !answer.Result.Present() || !jsonrpc.SameID(answer.ID.Bytes, id) {
		return fmt.Errorf("the server refuses the client's initialize request: %.200s", text)
	}
	httpclient.Accept(resp.Body)
	l.noteSession(resp.Session, text)
	return nil
}

// startListening notes that the client is initialized, and opens the stream of the server's
// notifications.
func (l *Link) startListening() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session.isReady = true
	if l.session.stopListening != nil {
		l.session.stopListening()
	}
	var ctx context.Context
	ctx, l.session.stopListening = context.WithCancel(l.ctx)
	l.running.Go(func() { l.listen(ctx) })
}

// Pauses between attempts to listen.
const (
	shortPause = time.Second
	longPause  = 30 * time.Second
)

// listen passes on the server's notifications until the server refuses, or ctx ends.
func (l *Link) listen(ctx context.Context) {
	resume := position{pause: shortPause}
	for ctx.Err() == nil {
		resp, err := l.get(ctx, resume.id)
		switch {
		case err == nil && resp.StatusCode == http.StatusOK:
			resume.failures = 0
			_ = l.follow(resp.Body, &resume, nil) // the next stream continues there
		case err == nil && resp.StatusCode < http.StatusInternalServerError:
			_ = resp.Body.Close()
			return // 405: not supported; 404: the session has ended
		case err == nil:
			_ = resp.Body.Close()
			resume.failures++
		default:
			resume.failures++
		}
		resume.wait(ctx)
	}
}

// get opens an event stream after the event with this id.
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

// endTimeout limits the request that ends the session.
const endTimeout = 2 * time.Second

// endSession tells the server that the session ends.
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
	ctx, stop := context.WithTimeout(l.ctx, endTimeout)
	defer stop()
	resp, err := l.cfg.Client.Do(ctx, httpclient.Peer{}, &http.Request{Method: http.MethodDelete, URL: new(url.URL), Header: header}, nil)
	if err == nil {
		_ = resp.Body.Close() // a server may refuse
	}
}

// Close ends the session and all requests.
func (l *Link) Close() {
	l.endSession()
	l.cancel()
	l.running.Wait()
	l.cfg.Client.Close()
}

// notify sends a message that needs no answer.
func (l *Link) notify(ctx context.Context, r upstream.Request) error {
	resp, err := l.Send(ctx, r)
	return l.notified(r, resp, err)
}

// notified handles the response to a message that needs no answer.
func (l *Link) notified(r upstream.Request, resp *upstream.Response, err error) error {
	if err != nil {
		return upstream.ProblemOf(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.Status >= http.StatusMultipleChoices {
		return statusProblem(resp.Status)
	}
	httpclient.Accept(resp.Body) // has an effect if the body is empty
	if r.Message.Method == mcpname.NotifyInitialized {
		l.startListening() // until the session ends
	}
	return nil
}
