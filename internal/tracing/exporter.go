package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
)

const (
	attemptTimeout = 10 * time.Second
	firstBackoff   = time.Second // doubles with every attempt
	lastBackoff    = 8 * firstBackoff
	maxRetryAfter  = 10 * time.Second // during a longer wait, more spans would be lost than the batch has
	maxResponse    = 64 << 10

	never        = time.Duration(math.MaxInt64) // do not retry
	noRetryAfter = time.Duration(-1)            // the collector gave no wait
)

// A collector posts batches of spans as OTLP protobuf. The span processor calls it from
// one goroutine at a time.
//
// It logs failures and does not return them to the processor, which would print each of them
// through a global logger.
type collector struct {
	client *http.Client
	url    string
	header http.Header
	log    *slog.Logger

	abort   context.CancelFunc              // ends the present export and all later ones
	onAbort func(func()) (stop func() bool) // registers a function that abort calls, until stop

	failed int // batches since the last success
	lost   int // spans since the last success
}

func newCollector(cfg Config, log *slog.Logger, transport *http.Transport) (*collector, error) {
	target, err := tracesURL(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for name, value := range cfg.Headers {
		header.Set(name, value)
	}
	header.Set("Content-Type", "application/x-protobuf")
	header.Set("User-Agent", "thoughtgate/"+cfg.Version)
	life, abort := context.WithCancel(context.Background())
	return &collector{
		client: &http.Client{
			Transport: transport,
			Timeout:   attemptTimeout,
			// The headers may contain a key for this collector only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		url:     target,
		header:  header,
		log:     log,
		abort:   abort,
		onAbort: func(f func()) func() bool { return context.AfterFunc(life, f) },
	}, nil
}

// tracesURL returns the URL for posting spans. Its error does not quote the endpoint, which
// may contain a password.
func tracesURL(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", errors.New("endpoint is not an http or https URL")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

// Start implements [otlptrace.Client].
func (*collector) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (c *collector) Stop(context.Context) error {
	c.abort()
	c.client.CloseIdleConnections()
	if c.failed > 0 {
		return fmt.Errorf("spans lost: %d", c.lost)
	}
	return nil
}

// UploadTraces implements [otlptrace.Client]. It returns no error.
func (c *collector) UploadTraces(ctx context.Context, batch []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := c.onAbort(cancel)
	defer stop()

	spans := 0
	for _, resource := range batch {
		for _, scope := range resource.GetScopeSpans() {
			spans += len(scope.GetSpans())
		}
	}
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: batch}) // the same bytes as an ExportTraceServiceRequest
	if err == nil {
		err = c.send(ctx, body)
	}
	c.report(ctx, err, spans)
	return nil
}

// report logs the first, second, fourth, eighth failure and so on, and the first success after
// failures.
func (c *collector) report(ctx context.Context, err error, spans int) {
	if err == nil {
		if c.failed > 0 {
			c.log.InfoContext(ctx, "traces are exported again", "lost_spans", c.lost)
		}
		c.failed, c.lost = 0, 0
		return
	}
	if rejected, ok := errors.AsType[*rejectedError](err); ok {
		spans = int(min(rejected.spans, math.MaxInt32))
	}
	c.failed++
	c.lost += spans
	if c.failed&(c.failed-1) == 0 {
		c.log.WarnContext(ctx, "trace export failed", "err", err, "failed_batches", c.failed, "lost_spans", c.lost)
	}
}

// send posts body until the collector accepts it, refuses it for good, or the number of
// attempts is exhausted.
func (c *collector) send(ctx context.Context, body []byte) error {
	for backoff := firstBackoff; ; backoff *= 2 {
		wait, err := c.post(ctx, body)
		if wait == noRetryAfter {
			wait = backoff/2 + rand.N(backoff/2) // gates must not retry at the same moment
		}
		if err == nil || wait > maxRetryAfter || backoff == lastBackoff || !pause.For(ctx, wait) {
			return err
		}
	}
}

// post sends body once. If that fails, it returns the wait before the next attempt.
func (c *collector) post(ctx context.Context, body []byte) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return never, err
	}
	req.Header = c.header.Clone()
	resp, err := c.client.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // without the URL, which may contain a key
		}
		return noRetryAfter, err
	}
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxResponse)) // details only: the status decides
	_ = resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return never, rejection(answer)
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return retryAfter(resp.Header), fmt.Errorf("collector answered %s", resp.Status)
	default:
		return never, fmt.Errorf("collector answered %s", resp.Status)
	}
}

// retryAfter returns the wait that the collector asks for, or noRetryAfter. A date is compared
// with the Date header, since the clock of the collector may differ.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, 1<<30)) * time.Second
	}
	until, err := http.ParseTime(value)
	now, noDate := http.ParseTime(h.Get("Date"))
	if err != nil || noDate != nil {
		return noRetryAfter
	}
	return max(0, until.Sub(now))
}

// A rejectedError says that the collector accepted only a part of a batch.
type rejectedError struct {
	spans   uint64
	message []byte
}

func (e *rejectedError) Error() string {
	return fmt.Sprintf("collector rejected %d spans: %s", e.spans, e.message)
}

// rejection returns a [rejectedError] if the answer to an accepted batch, an
// ExportTraceServiceResponse, reports rejected spans. It parses the message without the
// generated type, which would bring gRPC into the program.
func rejection(answer []byte) error {
	_, partial := field(answer, 1)
	spans, _ := field(partial, 1)
	_, message := field(partial, 2)
	if spans == 0 {
		return nil
	}
	return &rejectedError{spans, message}
}

// field returns the value of a field of a protobuf message: a number, or bytes.
func field(message []byte, wanted protowire.Number) (number uint64, data []byte) {
	for len(message) > 0 {
		n, kind, tag := protowire.ConsumeTag(message)
		size := protowire.ConsumeFieldValue(n, kind, message[max(tag, 0):])
		if tag < 0 || size < 0 {
			return 0, nil // not protobuf; the status says that the batch was accepted
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
