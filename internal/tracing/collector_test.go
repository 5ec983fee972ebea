package tracing_test

import (
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
)

// A collector is an OTLP server that keeps the exports that it receives.
type collector struct {
	*httptest.Server

	answer func(w http.ResponseWriter, r *http.Request, n int) // answers export number n, from 0; nil answers 200

	mu       sync.Mutex
	received []received
}

type received struct {
	head string // method, path, key, content type and user agent
	body *collectorpb.ExportTraceServiceRequest
	at   time.Time
}

func newCollector(tb testing.TB) *collector {
	tb.Helper()
	c := new(collector)
	c.Server = httptest.NewServer(c)
	tb.Cleanup(c.Close)
	return c
}

// ServeHTTP implements [http.Handler].
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body := new(collectorpb.ExportTraceServiceRequest)
	if err := proto.Unmarshal(raw, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	head := strings.Join([]string{
		r.Method, r.URL.String(), r.Header.Get("X-Api-Key"), r.Header.Get("Content-Type"), r.Header.Get("User-Agent"),
	}, " ")
	c.mu.Lock()
	c.received = append(c.received, received{head, body, time.Now()})
	n := len(c.received) - 1
	c.mu.Unlock()
	if c.answer != nil {
		c.answer(w, r, n)
	}
}

// open returns a Tracing that exports to c and samples everything.
func (c *collector) open(tb testing.TB, cfg tracing.Config) *tracing.Tracing {
	tb.Helper()
	cfg.Sample = 1
	if cfg.Endpoint == "" {
		cfg.Endpoint = c.URL
	}
	tr, err := tracing.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	return tr
}

// only returns the one export that c received.
func (c *collector) only(t *testing.T) received {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.received) != 1 {
		t.Fatalf("%d exports; want 1", len(c.received))
	}
	return c.received[0]
}

func (c *collector) none(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.received) != 0 {
		t.Errorf("%d exports; want none", len(c.received))
	}
}

func closeTracing(tb testing.TB, tr *tracing.Tracing) {
	tb.Helper()
	if err := tr.Close(tb.Context()); err != nil {
		tb.Error(err)
	}
}

// parents returns the parents of all spans that c received, in hex.
func (c *collector) parents() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for _, r := range c.received {
		for _, s := range flatten(r.body) {
			ids = append(ids, s.Parent)
		}
	}
	return ids
}

// A span is a received span in a form that can be compared and printed.
type span struct {
	ID, Name, Kind, Trace, Parent, State string
	Flags                                uint32
	Attrs                                map[string]any
	Status                               string
}

func flatten(req *collectorpb.ExportTraceServiceRequest) []span {
	var spans []span
	for _, s := range req.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans() {
		spans = append(spans, span{
			ID:     hex.EncodeToString(s.GetSpanId()),
			Name:   s.GetName(),
			Kind:   s.GetKind().String(),
			Trace:  hex.EncodeToString(s.GetTraceId()),
			Parent: hex.EncodeToString(s.GetParentSpanId()),
			State:  s.GetTraceState(),
			Flags:  s.GetFlags(),
			Attrs:  attributes(s.GetAttributes()),
			Status: s.GetStatus().GetCode().String() + " " + s.GetStatus().GetMessage(),
		})
	}
	return spans
}

func attributes(kvs []*commonpb.KeyValue) map[string]any {
	attrs := make(map[string]any)
	for _, kv := range kvs {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			attrs[kv.GetKey()] = v.StringValue
		case *commonpb.AnyValue_BoolValue:
			attrs[kv.GetKey()] = v.BoolValue
		default:
			attrs[kv.GetKey()] = kv.GetValue().String()
		}
	}
	return attrs
}
