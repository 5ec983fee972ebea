package metrics

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/thoughtgate/thoughtgate-go/internal/doctest"
)

// TestDocumented demands that the documentation has every metric with its type
// and labels.
func TestDocumented(t *testing.T) {
	m := New()
	m.RequestDone("tools/call", Success, time.Second)
	m.Refused("parse_error")
	m.CatalogOverflowed("files", "tool")
	m.ToolsListed("files", nil)
	m.TaskHeld("delete_file")
	m.CanMove("working", "failed")
	m.CanRecord("held")
	m.CanSend("risk")
	m.CanAsk("ops")
	m.ChannelListens("risk", nil)
	m.Built("v1", "go1")
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	var names []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), namespace+"_") {
			names = append(names, f.GetName())
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, "`"+l.GetName()+"`")
			}
			rows = append(rows, []string{"`" + f.GetName() + "`", strings.ToLower(f.GetType().String()), strings.Join(labels, ", ")})
		}
	}
	for _, name := range registered(m.registry) {
		if strings.HasPrefix(name, namespace+"_") && !slices.Contains(names, name) {
			t.Errorf("this test makes no series of %s", name)
		}
	}
	doctest.Table(t, "../../docs/metrics.md", "| metric | type | labels | meaning |", rows)
}

// registered returns the names of all metrics in r.
func registered(r *prometheus.Registry) []string {
	all := make(chan *prometheus.Desc)
	go func() {
		defer close(all)
		r.Describe(all)
	}()
	var names []string
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range all {
		if m := name.FindStringSubmatch(d.String()); m != nil {
			names = append(names, m[1])
		}
	}
	return names
}
