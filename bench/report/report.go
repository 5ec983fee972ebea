// Package report formats measurements: statistics over rounds, aligned tables, and the list of
// values with their budgets. It never fails a run.
package report

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// A Row is one measured value with its budget.
type Row struct {
	What   string
	Value  float64
	Unit   string
	Budget float64 // 0 without a budget
	Floor  bool    // the budget is the least, not the most, that the value may be
	Note   string  // how the value was measured, or another remark

	Values []float64 // one for each round; see [Spread]
}

// Spreads explains the verdicts of rows with a spread.
const Spreads = `A value is the median over rounds, with the middle
half of the values and all of them behind it. If the budget lies within the middle half, the
verdict is "unclear": the noise of this run is larger than the distance. Two values whose
middle halves overlap do not differ as far as this run can tell.`

// Spread returns the row with the median of values, one for each round, and with their spread.
func Spread(r Row, values []float64) Row {
	r.Value, r.Values = Median(values), values
	r.Note = fmt.Sprintf("%s; %s", Middle(values), Range(values))
	return r
}

// Share returns the used share of the budget: values up to 1 are within it, for budgets of
// both directions.
func (r Row) Share() float64 { return r.shareOf(r.Value) }

func (r Row) shareOf(value float64) float64 {
	switch {
	case r.Floor && value <= 0:
		return math.Inf(1)
	case r.Floor:
		return r.Budget / value
	default:
		return max(value/r.Budget, 0)
	}
}

// Verdict returns "within", "over", "unclear" if the budget lies in the middle
// half of the values, or nothing for a row without budget.
func (r Row) Verdict() string {
	low, high := Quartiles(r.Values)
	switch {
	case r.Budget == 0:
		return ""
	case len(r.Values) > 0 && (r.shareOf(low) <= 1) != (r.shareOf(high) <= 1):
		return "unclear"
	case r.Share() <= 1: // false for NaN: a missing value is not within the budget
		return "within"
	default:
		return "over"
	}
}

func (r Row) budget() string {
	switch {
	case r.Budget == 0:
		return "-"
	case r.Floor:
		return "≥ " + Number(r.Budget) + " " + r.Unit
	default:
		return "≤ " + Number(r.Budget) + " " + r.Unit
	}
}

func (r Row) share() string {
	if r.Budget == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.Share())
}

// Budgets returns rows as a table.
func Budgets(rows []Row) string {
	t := Table{Head: []string{"what", "value", "budget", "ratio", "", ""}}
	for _, r := range rows {
		t.Add(r.What, Number(r.Value)+" "+r.Unit, r.budget(), r.share(), r.Verdict(), r.Note)
	}
	return t.String()
}

// Number writes v with about three significant digits and without exponent.
func Number(v float64) string {
	size := math.Abs(v)
	switch {
	case math.IsNaN(v):
		return "-"
	case size >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	case size >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// A Table is text in columns.
type Table struct {
	Head []string
	rows [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// String returns the table with its columns aligned.
func (t *Table) String() string {
	rows := append([][]string{t.Head}, t.rows...)
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}
