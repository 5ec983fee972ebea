package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/thoughtgate/thoughtgate-go/internal/otlp"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
)

const (
	firstBackoff  = time.Second // doubles with every attempt
	lastBackoff   = 8 * firstBackoff
	maxRetryAfter = 10 * time.Second // during a longer wait, more spans would be lost than the batch has
)

// A collector posts batches of spans as OTLP protobuf. The span processor calls it from
// one goroutine at a time.
//
// It logs failures and does not return them to the processor, which would print each of them
// through a global logger.
type collector struct {
	client *otlp.Client
	log    *slog.Logger

	abort   context.CancelFunc              // ends the present export and all later ones
	onAbort func(func()) (stop func() bool) // registers a function that abort calls, until stop

	failed int // batches since the last success
	lost   int // spans since the last success
}

func newCollector(cfg Config, log *slog.Logger, transport *http.Transport) (*collector, error) {
	client, err := otlp.New(otlp.Config{
		Endpoint: cfg.Endpoint, Path: "/v1/traces", Items: "spans", Headers: cfg.Headers, Version: cfg.Version, Transport: transport,
	})
	if err != nil {
		return nil, err
	}
	life, abort := context.WithCancel(context.Background())
	return &collector{
		client:  client,
		log:     log,
		abort:   abort,
		onAbort: func(f func()) func() bool { return context.AfterFunc(life, f) },
	}, nil
}

// Start implements [otlptrace.Client].
func (*collector) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (c *collector) Stop(context.Context) error {
	c.abort()
	c.client.HTTP.CloseIdleConnections()
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
	if rejected, ok := errors.AsType[*otlp.RejectedError](err); ok {
		spans = int(min(rejected.Count, math.MaxInt32))
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
		wait, err := c.client.Post(ctx, body)
		if wait == otlp.NoRetryAfter {
			wait = backoff/2 + rand.N(backoff/2) // gates must not retry at the same moment
		}
		if err == nil || wait > maxRetryAfter || backoff == lastBackoff || !pause.For(ctx, wait) {
			return err
		}
	}
}
