package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/publicip"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// An API is the JSON API of a service.
type API struct {
	URL string // without a slash at the end

	service string // its name, for errors
	header  http.Header
	client  *http.Client
}

// apiTimeout is for one request.
const apiTimeout = 15 * time.Second

// NewAPI returns the API of the named service. A configured URL replaces the standard one, and may
// resolve to a private address. The header is sent with each request.
func NewAPI(service, standard string, configured *url.URL, header http.Header) *API {
	a := &API{URL: standard, service: service, header: header, client: NewClient(ClientConfig{apiTimeout, configured != nil})}
	if configured != nil {
		a.URL = strings.TrimSuffix(configured.String(), "/")
	}
	return a
}

// Close closes idle connections.
func (a *API) Close() { a.client.CloseIdleConnections() }

// Exchange sends a request to a path below the URL, and returns the body of the answer, at most
// 64 KiB of it. The body is valid after an error too. The errors are those of [Send] and
// [ResponseError].
func (a *API) Exchange(ctx context.Context, method, path string, content any) ([]byte, error) {
	body, err := json.Marshal(content)
	if err != nil {
		return nil, channel.NotSent(err)
	}
	r, err := http.NewRequestWithContext(ctx, method, a.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, channel.NotSent(fmt.Errorf("%s: the URL is not valid", a.service)) // it may hold a secret
	}
	maps.Copy(r.Header, a.header)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ThoughtGate")
	res, err := Send(a.client, r)
	if errors.Is(err, publicip.ErrPrivate) { // without the advice, since there is no such setting
		return nil, channel.NotSent(fmt.Errorf("%s: %w", a.service, publicip.ErrPrivate))
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil && res.StatusCode/100 == 2 {
		return answer, err
	}
	return answer, ResponseError(a.service, res)
}

// maxAdvice is the greatest length of what a service says about an error.
const maxAdvice = 300

// Advise returns err with what the service said about it.
func Advise(err error, said string) error {
	if said = safetext.Line(said, maxAdvice); err == nil || said == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, said)
}
