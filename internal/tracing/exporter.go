package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
)

const (
	maxAttempts    = 4
	attemptTimeout = 10 * time.Second
	firstBackoff   = time.Second      // doubles with every attempt
	maxRetryAfter  = 10 * time.Second // a longer wait would cost more spans than the batch holds
	maxResponse    = 64 << 10
)

// An exporter posts batches of spans to a collector as OTLP protobuf. The
// span processor calls it from one goroutine at a time.
//
// It reports failures itself and not to the processor, which would print each
// of them through a global logger.
type exporter struct {
	client *http.Client
	url    string
	header http.Header
	log    *slog.Logger

	abort   context.CancelFunc              // ends the export under way and all later ones
	onAbort func(func()) (stop func() bool) // has its argument called by abort, until stop

	failed int // batches since the last success
	lost   int // spans since the last success
}

func newExporter(cfg Config, log *slog.Logger, transport *http.Transport) (*exporter, error) {
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
	return &exporter{
		client: &http.Client{
			Transport: transport,
			Timeout:   attemptTimeout,
			// The headers may hold a key that only this collector may see.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		url:     target,
		header:  header,
		log:     log,
		abort:   abort,
		onAbort: func(f func()) func() bool { return context.AfterFunc(life, f) },
	}, nil
}

// tracesURL returns where to post spans. Its error does not quote the
// endpoint, which may hold a password.
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

// ExportSpans implements [sdktrace.SpanExporter]. It returns no error.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := e.onAbort(cancel)
	defer stop()

	body, err := encode(spans)
	if err == nil {
		err = e.send(ctx, body)
	}
	e.report(ctx, err, len(spans))
	return nil
}

// Shutdown implements [sdktrace.SpanExporter].
func (e *exporter) Shutdown(context.Context) error {
	e.abort()
	e.client.CloseIdleConnections()
	if e.failed > 0 {
		return fmt.Errorf("spans lost: %d", e.lost)
	}
	return nil
}

// report logs the first of a row of failures, the second, the fourth and so
// on, and the end of the row.
func (e *exporter) report(ctx context.Context, err error, spans int) {
	if err == nil {
		if e.failed > 0 {
			e.log.InfoContext(ctx, "traces are exported again", "lost_spans", e.lost)
		}
		e.failed, e.lost = 0, 0
		return
	}
	if rejected, ok := errors.AsType[*rejectedError](err); ok {
		spans = int(rejected.spans)
	}
	e.failed++
	e.lost += spans
	if e.failed&(e.failed-1) == 0 {
		e.log.WarnContext(ctx, "trace export failed", "error", err, "failed_batches", e.failed, "lost_spans", e.lost)
	}
}

// send posts body until the collector takes it, refuses it for good, or was
// asked often enough.
func (e *exporter) send(ctx context.Context, body []byte) error {
	for attempt := 1; ; attempt++ {
		err := e.post(ctx, body)
		retry, again := errors.AsType[*retryError](err)
		if !again || attempt == maxAttempts || !pause.For(ctx, retry.delay(attempt)) {
			return err
		}
	}
}

// post sends body once. It returns a [retryError] if that may be repeated.
func (e *exporter) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = e.header.Clone()
	resp, err := e.client.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // without the URL, which may hold a key
		}
		return &retryError{err: err}
	}
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxResponse)) // only a remark: the status decides
	_ = resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return rejection(answer)
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return refusal(resp)
	default:
		return fmt.Errorf("collector answered %s", resp.Status)
	}
}

// refusal returns the error for a response that asks to try again later.
func refusal(resp *http.Response) error {
	err := fmt.Errorf("collector answered %s", resp.Status)
	after, asked := retryAfter(resp.Header)
	if after > maxRetryAfter {
		return err
	}
	return &retryError{err: err, asked: asked, after: after}
}

// retryAfter returns how long the collector wants to be left alone. A date is
// taken relative to the collector's own clock.
func retryAfter(h http.Header) (time.Duration, bool) {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, 1<<30)) * time.Second, true
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0, false
	}
	return max(0, until.Sub(now)), true
}

// A retryError is a failure that may pass.
type retryError struct {
	err   error
	asked bool // the collector said when to come back
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }

func (e *retryError) Unwrap() error { return e.err }

// delay returns how long to wait after the given attempt, counted from 1.
// Unless the collector said so itself, gateways must not come back together.
func (e *retryError) delay(attempt int) time.Duration {
	if e.asked {
		return e.after
	}
	d := firstBackoff << (attempt - 1)
	return d/2 + rand.N(d/2) //nolint:gosec // jitter only; not security-sensitive
}
