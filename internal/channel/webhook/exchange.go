package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
)

// A Request is a JSON request to the API of a service.
type Request struct {
	Service string // its name, for errors
	Method  string
	URL     string
	Header  http.Header
	Body    any
}

// Exchange sends a request, and returns the body of the answer, at most 64 KiB of it. The
// body is valid after an error too. The errors are those of [Send] and [ResponseError].
func Exchange(ctx context.Context, client *http.Client, q Request) ([]byte, error) {
	body, err := json.Marshal(q.Body)
	if err != nil {
		return nil, channel.NotSent(err)
	}
	r, err := http.NewRequestWithContext(ctx, q.Method, q.URL, bytes.NewReader(body))
	if err != nil {
		return nil, channel.NotSent(fmt.Errorf("%s: the URL is not valid", q.Service)) // it may hold a secret
	}
	maps.Copy(r.Header, q.Header)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ThoughtGate")
	res, err := Send(client, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil && res.StatusCode/100 == 2 {
		return answer, err
	}
	return answer, ResponseError(q.Service, res)
}

// Advise returns err with what the service said about it.
func Advise(err error, said string) error {
	if err == nil || strings.TrimSpace(said) == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, said)
}
