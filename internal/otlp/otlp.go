// Package otlp posts messages to an OpenTelemetry collector, as OTLP over HTTP with protobuf. The
// official exporters bring gRPC, which calls methods by reflected name. The linker would then have
// to keep every method of the program.
package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The waits of [Client.Post] that are no times.
const (
	Never        = time.Duration(math.MaxInt64) // do not retry
	NoRetryAfter = time.Duration(-1)            // the collector gave no wait
)

const (
	attemptTimeout = 10 * time.Second
	maxResponse    = 64 << 10
)

// A Client posts messages of one kind.
type Client struct {
	HTTP *http.Client

	url    string
	header http.Header
	items  string
}

// A Config configures [New].
type Config struct {
	Endpoint  string // URL of the collector
	Path      string // of the URL if Endpoint has none
	Items     string // what messages consist of, such as spans
	Headers   map[string]string
	Version   string // of the gateway
	Transport *http.Transport
}

// New returns a client. Its error does not quote the endpoint, which may contain a password.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("endpoint is not an http or https URL")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = cfg.Path
	}
	header := http.Header{}
	for name, value := range cfg.Headers {
		header.Set(name, value)
	}
	header.Set("Content-Type", "application/x-protobuf")
	header.Set("User-Agent", "thoughtgate/"+cfg.Version)
	return &Client{
		HTTP: &http.Client{
			Transport: cfg.Transport,
			Timeout:   attemptTimeout,
			// The headers may contain a key for this collector only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		url: u.String(), header: header, items: cfg.Items,
	}, nil
}

// Post sends a message once. If that fails, it returns the wait before the next attempt. A message
// of which the collector has accepted a part is a [RejectedError].
func (c *Client) Post(ctx context.Context, message []byte) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(message))
	if err != nil {
		return Never, err
	}
	req.Header = c.header.Clone()
	resp, err := c.HTTP.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // without the URL, which may contain a key
		}
		return NoRetryAfter, err
	}
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxResponse)) // details only: the status decides
	_ = resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return Never, c.rejection(answer)
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return retryAfter(resp.Header), fmt.Errorf("collector answered %s", resp.Status)
	default:
		return Never, fmt.Errorf("collector answered %s", resp.Status)
	}
}

// retryAfter returns the wait that the collector asks for, or NoRetryAfter. A date is compared
// with the Date header, since the clock of the collector may differ.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, 1<<30)) * time.Second
	}
	until, err := http.ParseTime(value)
	now, noDate := http.ParseTime(h.Get("Date"))
	if err != nil || noDate != nil {
		return NoRetryAfter
	}
	return max(0, until.Sub(now))
}

// A RejectedError says that the collector accepted only a part of a message. It must not be sent
// again.
type RejectedError struct {
	Count   uint64
	items   string
	message []byte
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("collector rejected %d %s: %s", e.Count, e.items, e.message)
}

// rejection returns a [RejectedError] if the answer to an accepted message reports rejected items.
// The answers for all signals have the same form. It is parsed without the generated type, which
// would bring gRPC into the program.
func (c *Client) rejection(answer []byte) error {
	_, partial := field(answer, 1)
	count, _ := field(partial, 1)
	_, message := field(partial, 2)
	if count == 0 {
		return nil
	}
	return &RejectedError{count, c.items, message}
}

// field returns the value of a field of a protobuf message: a number, or bytes.
func field(message []byte, wanted protowire.Number) (number uint64, data []byte) {
	for len(message) > 0 {
		n, kind, tag := protowire.ConsumeTag(message)
		size := protowire.ConsumeFieldValue(n, kind, message[max(tag, 0):])
		if tag < 0 || size < 0 {
			return 0, nil // not protobuf; the status says that the message was accepted
		}
		if n == wanted {
			number, _ = protowire.ConsumeVarint(message[tag:])
			data, _ = protowire.ConsumeBytes(message[tag:])
			return number, data
		}
		message = message[tag+size:]
	}
	return 0, nil
}
