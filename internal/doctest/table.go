package doctest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Table demands that a page has a table with the given first line, and in it a
// row for each of rows and no other. A row in the page begins with the cells of
// one of rows, and has one more cell, with any text.
func Table(t *testing.T, page, header string, rows [][]string) {
	t.Helper()
	has := readTable(t, page, header)
	var want []string
	for _, cells := range rows {
		want = append(want, "| "+strings.Join(cells, " | ")+" |")
	}
	for _, row := range want {
		if !slices.Contains(has, row) {
			t.Errorf("%s: no row %s", page, row)
		}
	}
	for i, row := range has {
		if !slices.Contains(want, row) || slices.Contains(has[:i], row) {
			t.Errorf("%s: the code has no row %s, or the page has it twice", page, row)
		}
	}
}

// readTable returns the rows of a table without their last cells.
func readTable(t *testing.T, page, header string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n"+header+"\n|")
	if !found {
		t.Fatalf("%s has no table %q", page, header)
	}
	table, _, _ := strings.Cut(rest, "\n\n")
	var has []string
	for line := range strings.Lines(table) {
		begin, words := cutLastCell(line)
		switch {
		case strings.HasPrefix(line, "--"): // below the header
		case words == "":
			t.Errorf("%s: no words in %s", page, line)
		default:
			has = append(has, begin)
		}
	}
	return has
}

// cutLastCell returns the cells of a row but the last, and the last.
func cutLastCell(line string) (begin, last string) {
	line = strings.TrimSuffix(strings.TrimSpace(line), "|")
	i := strings.LastIndex(line, "|")
	return line[:i+1], strings.TrimSpace(line[i+1:])
}
