package httpclient_test

import (
	"net/url"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
)

// Every forwarded call is measured, so that must not allocate.
func TestMeasureDoesNotAllocate(t *testing.T) {
	c := httpclient.New(httpclient.Config{Name: "x", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Metrics: metrics.New()})
	if n := testing.AllocsPerRun(100, func() { c.Measure().End(metrics.Success) }); n > 0 {
		t.Errorf("a measurement allocates %v times", n)
	}
}
