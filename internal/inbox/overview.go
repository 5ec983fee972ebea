package inbox

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/a-h/templ"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

// A timeRange is one that the overview can show.
type timeRange struct {
	name    string // in the address
	label   string
	periods int
	length  time.Duration // of a period
	format  string        // of the beginning of a period
}

var timeRanges = []timeRange{
	{"day", "24 hours", 24, time.Hour, "15:04"},
	{"week", "7 days", 28, 6 * time.Hour, "2 Jan 15:04"},
	{"month", "30 days", 30, 24 * time.Hour, "2 Jan"},
}

// rangeOf returns the range with a name, by default the first.
func rangeOf(name string) timeRange {
	for _, r := range timeRanges {
		if r.name == name {
			return r
		}
	}
	return timeRanges[0]
}

// An overviewView is the content of the overview.
type overviewView struct {
	callrecord.Summary

	at     timeRange
	grants int // standing approvals that can be used
}

// overview shows numbers about calls and decisions.
func (i *Inbox) overview(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	at := rangeOf(r.URL.Query().Get("range"))
	s, err := i.summaries.get(r.Context(), at, i.cfg.Now, i.cfg.Summarize)
	if err != nil {
		return err
	}
	grants, err := i.cfg.Viewer.Grants(r.Context(), false)
	if err != nil {
		return err
	}
	v := overviewView{s, at, len(grants)}
	return i.page(w, r, who, page{section: "overview", title: "Overview"}, func(f frame) templ.Component { return overviewPage(f, v) })
}

// summaries keeps the last summary of each range, because to make one the gate reads the record.
type summaries struct {
	mu   sync.Mutex
	last map[string]summary
}

// A summary is kept for a while.
type summary struct {
	callrecord.Summary

	until time.Time
}

// A summary is kept for five seconds, and for at least twenty times as long as it took to make.
const (
	keptFor = 5 * time.Second
	keptPer = 20
)

// A summarizer reads the record of calls.
type summarizer func(ctx context.Context, since, until time.Time, periods int) (callrecord.Summary, error)

func (s *summaries) get(ctx context.Context, at timeRange, now func() time.Time, read summarizer) (callrecord.Summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := now()
	if last, ok := s.last[at.name]; ok && begun.Before(last.until) {
		return last.Summary, nil
	}
	until := begun.Truncate(at.length).Add(at.length)
	made, err := read(ctx, until.Add(-at.length*time.Duration(at.periods)), until, at.periods)
	if err != nil {
		return callrecord.Summary{}, err
	}
	if s.last == nil {
		s.last = map[string]summary{}
	}
	ended := now()
	s.last[at.name] = summary{made, ended.Add(max(keptFor, keptPer*ended.Sub(begun)))}
	return made, nil
}

// A chart is a drawing of numbers by period, as stacked bars.
type chart struct {
	title string
	kinds []string // of the parts of a bar, from the bottom
	bars  []chartBar
	most  int // of the highest bar
}

// A chartBar has the numbers of a period.
type chartBar struct {
	label  string
	counts []int
}

// The size of a chart, in the units of its drawing.
const (
	chartWidth  = 720
	chartHeight = 140
	chartGap    = 0.25 // share of a bar's place that stays free
)

func newChart(v overviewView, title string, kinds []string, counts func(*callrecord.Counts) []int) chart {
	c := chart{title: title, kinds: kinds}
	for _, p := range v.Periods {
		bar := chartBar{p.From.UTC().Format(v.at.format), counts(&p.Counts)}
		c.bars, c.most = append(c.bars, bar), max(c.most, bar.total())
	}
	return c
}

func callsChart(v overviewView) chart {
	return newChart(v, "Calls", []string{"forwarded", "held", "denied"}, func(c *callrecord.Counts) []int {
		return []int{c.Forwarded, c.Held, c.Denied}
	})
}

func decisionsChart(v overviewView) chart {
	return newChart(v, "Ends of held calls", []string{"approved", "rejected", "expired", "other"}, func(c *callrecord.Counts) []int {
		return []int{c.Approved, c.Rejected, c.Expired, c.Other}
	})
}

func (b *chartBar) total() (n int) {
	for _, count := range b.counts {
		n += count
	}
	return n
}

// A chartPart is a rectangle of a chart.
type chartPart struct{ kind, x, y, width, height, text string }

// parts returns the rectangles of a chart.
func (c *chart) parts() []chartPart {
	var parts []chartPart
	place := float64(chartWidth) / float64(len(c.bars))
	for n, bar := range c.bars {
		top := float64(chartHeight)
		for k, count := range bar.counts {
			if count == 0 {
				continue
			}
			height := float64(count) / float64(c.most) * chartHeight
			top -= height
			parts = append(parts, chartPart{
				kind: c.kinds[k], x: units((float64(n) + chartGap/2) * place), y: units(top), width: units(place * (1 - chartGap)), height: units(height),
				text: fmt.Sprintf("%s: %d %s", bar.label, count, c.kinds[k]),
			})
		}
	}
	return parts
}

func units(n float64) string { return fmt.Sprintf("%.1f", n) }

// totals returns the sum of each part of the bars.
func (c *chart) totals() []int {
	sums := make([]int, len(c.kinds))
	for _, bar := range c.bars {
		for k, count := range bar.counts {
			sums[k] += count
		}
	}
	return sums
}

// share returns how much of the calls of the busiest group g has, in percent.
func share(g callrecord.Group, all []callrecord.Group) int {
	return g.Calls() * 100 / max(1, all[0].Calls())
}
