package translate

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A serverEra remembers the era of a server. Only a legacy era expires by itself: an upgraded server
// still takes initialize, so nothing else would show the change.
type serverEra struct {
	mu    sync.Mutex
	era   mcp.Era
	until time.Time // zero if the era is not known
}

const (
	legacyFor = 5 * time.Minute
	modernFor = time.Hour
	// probeTimeout is how long a server may take to say what it speaks.
	probeTimeout = 10 * time.Second
)

// known returns the era, if it is known.
func (s *serverEra) known() (mcp.Era, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.era, time.Now().Before(s.until)
}

// note remembers the era.
func (s *serverEra) note(era mcp.Era) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.era, s.until = era, time.Now().Add(legacyFor)
	if era == mcp.Modern {
		s.until = time.Now().Add(modernFor)
	}
}

// forget makes the next request ask the server.
func (s *serverEra) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Time{}
}

// eraOf returns the era of the server. It asks with the credentials of x, and by server/discover,
// because a legacy server could run any other method. A refusal is the answer of a server that first
// wants other credentials.
func (t *Translator) eraOf(x *exchange) (era mcp.Era, refusal *http.Response, err error) {
	if era, ok := t.server.known(); ok {
		return era, nil, nil
	}
	result, status, err := t.discover(x, []byte("{}"), nil)
	switch {
	case t.cfg.Program && err != nil && x.http.Context().Err() == nil && !wasNotAsked(err):
		era = mcp.Legacy // some programs do not answer what they do not know, or end
	case err != nil:
		return 0, nil, err
	case status.saysNothing():
		return 0, status.response(), nil
	case speaksModern(result):
		era = mcp.Modern
	default:
		era = mcp.Legacy
	}
	t.server.note(era)
	return era, nil, nil
}

// speaksModern reports whether an answer to server/discover, or the data of its error, offers the
// modern version.
func speaksModern(answer *jsonrpc.Message) bool {
	if answer == nil {
		return false
	}
	versions := answer.Result.Member("supportedVersions")
	if !versions.Present() {
		versions = answer.Error.Member("data").Member("supported")
	}
	return slices.ContainsFunc(slices.Collect(versions.Elements()), func(v jsonrpc.Value) bool {
		version, _ := v.Text()
		return version == mcp.Version20260728
	})
}

// An answerStatus is what an HTTP response says besides its body.
type answerStatus struct {
	code      int
	challenge []string
}

func statusIn(resp *http.Response) answerStatus {
	return answerStatus{code: resp.StatusCode, challenge: resp.Header["Www-Authenticate"]}
}

// concernsCredentials reports whether the server wants other credentials.
func (s answerStatus) concernsCredentials() bool {
	return s.code == http.StatusUnauthorized || s.code == http.StatusForbidden
}

// saysNothing reports whether a server of any era may answer a request with this status.
func (s answerStatus) saysNothing() bool {
	return s.concernsCredentials() || s.code == http.StatusRequestTimeout || s.code == http.StatusTooManyRequests || s.code >= http.StatusInternalServerError
}

// wasNotAsked reports whether a program did not get a request because of a limit, which is that of one
// client perhaps.
func wasNotAsked(err error) bool {
	problem, ok := errors.AsType[*mcp.Problem](err)
	return ok && (problem.Type == mcp.ClientLimit || problem.Type == mcp.Overloaded || problem.Type == mcp.ShuttingDown)
}

// response returns a response to the client with this status, and without a body.
func (s answerStatus) response() *http.Response {
	resp := nothing(s.code)
	if s.challenge != nil {
		resp.Header["Www-Authenticate"] = s.challenge
	}
	return resp
}

// discover sends server/discover for a client with these capabilities and this information. The answer
// is nil if the server sent no message.
func (t *Translator) discover(x *exchange, capabilities, info []byte) (*jsonrpc.Message, answerStatus, error) {
	ctx, stop := own(x.http.Context(), probeTimeout)
	defer stop()
	meta := jsonrpc.AppendObject(nil, modernMeta(capabilities, info, "")...)
	m := jsonrpc.NewRequest(newID(), mcpname.ServerDiscover, jsonrpc.NewParams(jsonrpc.Member{Name: "_meta", JSON: meta}))
	header := x.credentials()
	header.Set("Mcp-Protocol-Version", mcp.Version20260728)
	header.Set("Mcp-Method", m.Method)
	resp, err := t.post(ctx, x.plain(), header, m.Raw)
	if err != nil {
		return nil, answerStatus{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	status := statusIn(resp)
	got, _ := newSource(resp, t.cfg.MaxMessage).response(m.ID) // an answer that is no message is that of a legacy server
	return got, status, nil
}

// plain returns the peer of a request that the translator makes for the client.
func (x *exchange) plain() httpclient.Peer {
	by := x.by
	by.Use = httpclient.Plain
	return by
}

// own returns a context for a request of the translator itself. It ends with ctx, but does not have
// its values: the trace in them is for the request of the client.
func own(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	detached, cancel := context.WithTimeout(context.Background(), timeout)
	stop := context.AfterFunc(ctx, cancel)
	return detached, func() { stop(); cancel() }
}

// newURL returns the URL of a request without a query.
func newURL() *url.URL { return new(url.URL) }

// errBrokenAnswer reports a server that does not answer as its era demands.
var errBrokenAnswer = errors.New("the server's answer does not keep to the protocol")
