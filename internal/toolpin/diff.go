package toolpin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Title describes d in words, on one line.
func (d Difference) Title() string {
	what := "has changed"
	switch {
	case d.Old == nil:
		what = "is new"
	case d.New == nil:
		what = "is gone"
	}
	return fmt.Sprintf("%s: the tool %s %s", safetext.Name(d.Upstream, maxShown), safetext.Name(d.Tool, maxShown), what)
}

// Members returns the names of the members of the definition that differ, if both are known.
func (d Difference) Members() []string {
	if d.Old == nil || d.New == nil {
		return nil
	}
	var names []string
	is := members(d.New)
	for name, value := range members(d.Old) {
		if other, both := is[name]; !both || other != value {
			names = append(names, name)
		}
		delete(is, name)
	}
	names = slices.AppendSeq(names, maps.Keys(is))
	slices.Sort(names)
	return names
}

func members(definition []byte) map[string]string {
	all := map[string]string{}
	for name, value := range (jsonrpc.Value{Bytes: definition}).Members() {
		all[name] = string(value.Bytes)
	}
	return all
}

const (
	context     = 2       // unchanged lines around each change
	maxLine     = 300     // bytes of a line before it is folded
	maxProducts = 1 << 18 // lines of the old times lines of the new definition that are compared
)

// Lines returns at most limit lines that show what has changed. Each begins with "-" for the old
// definition, "+" for the new one, or a space. Hidden characters are escaped.
func (d Difference) Lines(limit int) []string {
	all := compare(linesOf(d.Tool, d.Old), linesOf(d.Tool, d.New))
	if len(all) > limit {
		left := len(all) - limit + 1
		all = append(all[:limit-1], fmt.Sprintf("… and %d more lines", left))
	}
	return all
}

// Text returns lines of [Difference.Lines], of at most size bytes in all.
func (d Difference) Text(limit, size int) string {
	lines := d.Lines(limit)
	const end = "… and more lines"
	for i, line := range lines {
		if size -= len(line) + 1; size < len(end) {
			lines = append(lines[:i], end)
			break
		}
	}
	return strings.Join(lines, "\n")
}

// linesOf returns the lines of a definition. Line breaks in strings begin a new line, and so do
// sentences, so that a change of a long description is easy to find.
func linesOf(name string, definition []byte) []string {
	if definition == nil {
		return nil
	}
	v := nameFirst(name, definition)
	if err := v.Indent(jsontext.WithIndent("  "), jsontext.PreserveRawStrings(true)); err != nil {
		v = definition // too deep to be indented
	}
	var lines []string
	for line := range strings.SplitSeq(safetext.Escape(string(v)), "\n") {
		lines = append(lines, folded(line)...)
	}
	return lines
}

// folded returns the parts of a line.
func folded(line string) []string {
	if len(line) <= maxLine/3 && !strings.Contains(line, `\n`) {
		return []string{line}
	}
	margin := line[:len(line)-len(strings.TrimLeft(line, " "))]
	var parts []string
	start, escape := 0, false // whether the last character begins an escape
	for i, c := range line {
		next := i + utf8.RuneLen(c)
		breaks := escape && c == 'n'
		escape = c == '\\' && !escape
		if breaks || !escape && (endsSentence(line[start:next]) || next-start >= maxLine) {
			parts = append(parts, continued(margin, line[start:next], start))
			start = next
		}
	}
	if start < len(line) {
		parts = append(parts, continued(margin, line[start:], start))
	}
	return parts
}

// endsSentence reports whether a long text ends with a punctuation mark and a space.
func endsSentence(text string) bool {
	n := len(text)
	return n > maxLine/4 && text[n-1] == ' ' && strings.IndexByte(".:;,", text[n-2]) >= 0
}

// continued marks all parts of a line but the first.
func continued(margin, part string, start int) string {
	if start == 0 {
		return part
	}
	return margin + "  ↪ " + part
}

// compare returns the changes between two texts, with a few unchanged lines around each.
func compare(was, is []string) []string {
	prefix := 0
	for prefix < min(len(was), len(is)) && was[prefix] == is[prefix] {
		prefix++
	}
	suffix := 0
	for suffix < min(len(was), len(is))-prefix && was[len(was)-1-suffix] == is[len(is)-1-suffix] {
		suffix++
	}
	var all []string
	add := func(sign string, lines []string) {
		for _, line := range lines {
			all = append(all, sign+line)
		}
	}
	add(" ", was[:prefix])
	all = append(all, changes(was[prefix:len(was)-suffix], is[prefix:len(is)-suffix])...)
	add(" ", was[len(was)-suffix:])
	return nearChanges(all)
}

// changes compares two texts by their longest common subsequence. Very long texts are not
// compared line by line.
func changes(was, is []string) []string {
	var all []string
	i, j := 0, 0
	if len(was)*len(is) <= maxProducts {
		common := commonLines(was, is)
		for i < len(was) && j < len(is) {
			switch {
			case was[i] == is[j]:
				all = append(all, " "+was[i])
				i, j = i+1, j+1
			case common[i+1][j] >= common[i][j+1]:
				all = append(all, "-"+was[i])
				i++
			default:
				all = append(all, "+"+is[j])
				j++
			}
		}
	}
	for _, line := range was[i:] {
		all = append(all, "-"+line)
	}
	for _, line := range is[j:] {
		all = append(all, "+"+line)
	}
	return all
}

// commonLines returns the length of the longest common subsequence of was[i:] and is[j:], by i and j.
func commonLines(was, is []string) [][]int32 {
	common := make([][]int32, len(was)+1)
	common[len(was)] = make([]int32, len(is)+1)
	for i, old := range slices.Backward(was) {
		common[i] = make([]int32, len(is)+1)
		for j, line := range slices.Backward(is) {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if old == line {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	return common
}

// nearChanges omits the unchanged lines that are not near a change.
func nearChanges(all []string) []string {
	near := make([]bool, len(all))
	for i, line := range all {
		if line[0] != ' ' {
			for k := max(0, i-context); k <= min(len(all)-1, i+context); k++ {
				near[k] = true
			}
		}
	}
	var kept []string
	for i, line := range all {
		if near[i] {
			kept = append(kept, line)
		} else if i > 0 && near[i-1] && slices.Contains(near[i:], true) {
			kept = append(kept, " …")
		}
	}
	return kept
}
