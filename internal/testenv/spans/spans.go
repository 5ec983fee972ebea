// Package spans collects the spans that a gate under test exports.
package spans

import (
	"encoding/hex"
	"io"
	"net/http"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A Span is a span that the collector received.
type Span struct {
	Name, Trace, ID, Parent string
	Links                   []string // the linked spans
	Attributes              map[string]string
}

// Traceparent returns the header that names s as the parent, without the flags.
func (s Span) Traceparent() string { return "00-" + s.Trace + "-" + s.ID + "-" }

// A Collector is an OTLP server that keeps the received spans.
type Collector struct {
	mu  sync.Mutex
	all []Span
}

// ServeHTTP implements [http.Handler].
func (c *Collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	batch := new(collectorpb.ExportTraceServiceRequest)
	_ = proto.Unmarshal(raw, batch) // a missing span fails the test
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range batch.GetResourceSpans() {
		for _, sent := range of.GetScopeSpans()[0].GetSpans() {
			one := Span{
				Name: sent.GetName(), Trace: hex.EncodeToString(sent.GetTraceId()), ID: hex.EncodeToString(sent.GetSpanId()),
				Parent: hex.EncodeToString(sent.GetParentSpanId()), Attributes: make(map[string]string),
			}
			for _, link := range sent.GetLinks() {
				one.Links = append(one.Links, hex.EncodeToString(link.GetTraceId())+"-"+hex.EncodeToString(link.GetSpanId()))
			}
			for _, a := range sent.GetAttributes() {
				one.Attributes[a.GetKey()] = a.GetValue().String()
			}
			c.all = append(c.all, one)
		}
	}
}

// Find returns the first span with this name for which fits returns true.
func (c *Collector) Find(t *testing.T, name string, fits func(Span) bool) Span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if one.Name == name && fits(one) {
			return one
		}
	}
	t.Fatalf("no such span %s among %+v", name, c.all)
	return Span{}
}

// Any fits every span.
func Any(Span) bool { return true }
