package httpclient

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"time"
)

// Tokens gives the access tokens of one server. They are sent in place of the Authorization of clients.
type Tokens interface {
	// Token returns the access token for a request of by with these headers. Its error ends the request; a
	// [*mcp.Problem] says why.
	Token(ctx context.Context, by Peer, header http.Header) (string, error)
	// Renew returns the token for one more attempt after the server has refused one, or nothing if the client
	// must get the answer of the server. Its error is like that of Token.
	Renew(ctx context.Context, by Peer, header http.Header, refused RefusedToken) (string, error)
}

// A RefusedToken is an access token that a server does not accept.
type RefusedToken struct {
	Token     string
	Status    int      // 401, or 403, for instance because of the scopes of the token
	Challenge []string // the WWW-Authenticate headers
	Last      bool     // there is no further attempt
}

// sendWithToken sends a request with an access token, and once more with another one if the server refuses it. A
// refused request has not run.
func (c *Client) sendWithToken(ctx context.Context, by Peer, r *http.Request, body []byte) (*http.Response, error) {
	token, err := c.cfg.Tokens.Token(ctx, by, r.Header)
	for last := false; err == nil; last = true {
		resp, err := c.send(ctx, by, r, c.withToken(token), body)
		if err != nil || resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
			return resp, err
		}
		var ran bool
		//mutate:swap "; ran {" "; ran && false {" internal/app.TestRefusalWithResultIsNotRepeated a call that may have run is sent again
		if resp.Body, ran = MayHaveRun(resp.Body, c.ReadTimeout(by.Use)); ran {
			return resp, nil
		}
		next, err := c.cfg.Tokens.Renew(ctx, by, r.Header, RefusedToken{Token: token, Status: resp.StatusCode, Challenge: resp.Header["Www-Authenticate"], Last: last})
		if err == nil && (next == "" || last) {
			return resp, nil
		}
		_ = resp.Body.Close()
		if err != nil {
			return nil, err
		}
		token = next
	}
	return nil, err
}

// withToken returns the headers that are added to a request with an access token.
func (c *Client) withToken(token string) http.Header {
	extra := maps.Clone(c.cfg.Headers)
	if extra == nil {
		extra = make(http.Header, 1)
	}
	if token != "" {
		extra["Authorization"] = []string{"Bearer " + token}
	}
	return extra
}

// maxRefusal is how much of a refusal is checked for a result. A longer one counts as a result.
const maxRefusal = 64 << 10

// MayHaveRun reports whether a refusal may have the result of its request, so that the request must not be sent
// again. It returns the whole body. A server that needs longer than limit counts as one that sent half a result.
func MayHaveRun(body io.ReadCloser, limit time.Duration) (io.ReadCloser, bool) {
	slow := time.AfterFunc(limit, func() { _ = body.Close() }) // which ends the read
	head, err := io.ReadAll(io.LimitReader(body, maxRefusal+1))
	rest := io.Reader(body)
	//mutate:swap "!slow.Stop()" "slow.Stop() && false" internal/app.TestSlowRefusalEndsCall the rest of a slow refusal seems to be its end
	if !slow.Stop() {
		rest, err = errorReader{os.ErrDeadlineExceeded}, os.ErrDeadlineExceeded
	}
	body = &peekedBody{Reader: io.MultiReader(bytes.NewReader(head), rest), Closer: body}
	return body, err != nil || len(head) > maxRefusal || bytes.Contains(head, []byte(`"result"`))
}

// An errorReader fails.
type errorReader struct{ err error }

// Read implements [io.Reader].
func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// A peekedBody is a body whose beginning was read before.
type peekedBody struct {
	io.Reader
	io.Closer
}
