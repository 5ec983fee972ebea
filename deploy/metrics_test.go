package deploy_test

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// TestQueries proves that every query of the dashboard and the alerts hits a
// series of a gate that had traffic, and groups only by labels that it has.
func TestQueries(t *testing.T) {
	series := scrape(t)
	queries := map[string]string{}
	maps.Copy(queries, dashboard(t))
	maps.Copy(queries, alerts(t))
	if len(queries) < 40 {
		t.Errorf("only %d queries", len(queries))
	}
	for where, query := range queries {
		checkQuery(t, series, where, query)
	}
}

// scrape returns the labels of every series of a gate that had traffic of all
// kinds, with those that Prometheus adds.
func scrape(t *testing.T) []labels.Labels {
	t.Helper()
	g := serve(t, "workflows: {default: {channels: [inbox, chat]}}\n"+
		"channels: {chat: {slack: {bot_token: xoxb-1, app_token: xapp-1, channel: C1, url: 'http://127.0.0.1:1/'}}}\n")
	g.say("tools/list", `{}`)
	g.say("tools/call", `{"name":"get_x"}`)
	g.say("tools/call", `{"name":"drop_x"}`)
	id := g.hold("hold_x")
	g.decide(id, "approve")
	if got := g.say("tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(got, "done") {
		t.Fatalf("the approved call: %s", got)
	}
	g.decide(g.hold("hold_y"), "reject")

	text := g.get(g.operators + "/metrics")
	missing := func(name string) bool { return !strings.Contains(text, name) }
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if !missing("thoughtgate_channel_listening") && !missing("thoughtgate_channel_messages_waiting") {
			break
		}
		text = g.get(g.operators + "/metrics") // the channel has not tried to connect yet
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var all []labels.Labels
	for name, f := range families {
		for _, m := range f.GetMetric() {
			b := labels.NewBuilder(labels.FromStrings("job", "thoughtgate", "instance", "gate:8081"))
			for _, l := range m.GetLabel() {
				b.Set(l.GetName(), l.GetValue())
			}
			if m.GetHistogram() == nil {
				all = append(all, b.Set("__name__", name).Labels())
				continue
			}
			all = append(all, b.Set("__name__", name+"_sum").Labels(), b.Set("__name__", name+"_count").Labels(),
				b.Set("__name__", name+"_bucket").Set("le", "+Inf").Labels())
		}
	}
	return all
}

// checkQuery demands that each selector of a query hits a series, and that the
// labels by which the query groups are among those that were hit.
func checkQuery(t *testing.T, series []labels.Labels, where, query string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, query)
		return
	}
	known := []string{}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		found := false
		for _, s := range series {
			if matches(s, selector.LabelMatchers) {
				found = true
				s.Range(func(l labels.Label) { known = append(known, l.Name) })
			}
		}
		if !found {
			t.Errorf("%s: no series is hit by %s", where, selector)
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			for _, name := range a.Grouping {
				if !slices.Contains(known, name) {
					t.Errorf("%s: groups by %s, which no series has: %s", where, name, query)
				}
			}
		}
		return nil
	})
}

func matches(s labels.Labels, all []*labels.Matcher) bool {
	return !slices.ContainsFunc(all, func(m *labels.Matcher) bool { return !m.Matches(s.Get(m.Name)) })
}

// dashboard returns the queries of the dashboard by their panels, as Grafana
// sends them.
func dashboard(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("grafana/thoughtgate.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct{ Expr, LegendFormat string }
			GridPos struct{ X, Y, W, H int }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")
	queries, ids := map[string]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q: its id is not unique, it does not fit, or it has no query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for i, target := range p.Targets {
			query := variables.Replace(target.Expr)
			queries[p.Title+" "+string(rune('A'+i))] = query
			for _, name := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !strings.Contains(query, name[1]) {
					t.Errorf("%s: the legend has %s, which the query drops", p.Title, name[1])
				}
			}
		}
	}
	return queries
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// alerts returns the queries of the alerts by their names.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	rules, errs := rulefmt.ParseFile("prometheus/alerts.yml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if rules == nil {
		t.FailNow()
	}
	queries := map[string]string{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			queries[r.Alert] = r.Expr
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s has no summary, description or severity", r.Alert)
			}
			checkRunbook(t, r.Alert, r.Annotations["runbook"])
		}
	}
	return queries
}

// checkRunbook demands that the section that an alert names exists.
func checkRunbook(t *testing.T, alert, runbook string) {
	t.Helper()
	page, anchor, _ := strings.Cut(runbook, "#")
	text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(page)))
	if err != nil {
		t.Errorf("%s: %v", alert, err)
		return
	}
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok && strings.ReplaceAll(strings.ToLower(title), " ", "-") == anchor {
			return
		}
	}
	t.Errorf("%s: %s has no section %s", alert, page, anchor)
}
