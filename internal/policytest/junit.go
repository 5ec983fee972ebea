package policytest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// WriteJUnit writes a report in the XML format of JUnit, with a suite for each file. It has only
// elements and attributes of the schema of Jenkins. Some readers need the times, which are not measured.
func WriteJUnit(w io.Writer, results []Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s<testsuites name=\"thoughtgate test\" %s>\n", xml.Header, counts(results))
	for len(results) > 0 {
		file, n := results[0].At.Source, 0
		for n < len(results) && results[n].At.Source == file {
			n++
		}
		fmt.Fprintf(&b, "<testsuite name=%s skipped=\"0\" %s>\n", quoted(file), counts(results[:n]))
		for i := range results[:n] {
			r := &results[i]
			fmt.Fprintf(&b, "<testcase classname=%s name=%s time=\"0\">", quoted(file), quoted(r.Name))
			if len(r.Wrong) > 0 {
				message := r.Wrong[0].Fact + ": " + r.Wrong[0].Text
				fmt.Fprintf(&b, "<failure type=\"verdict\" message=%s>", quoted(message))
				_ = xml.EscapeText(&b, []byte(r.At.String()+"\n"+r.Text())) // to memory
				b.WriteString("</failure>")
			}
			b.WriteString("</testcase>\n")
		}
		b.WriteString("</testsuite>\n")
		results = results[n:]
	}
	b.WriteString("</testsuites>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func counts(results []Result) string {
	return fmt.Sprintf(`tests="%d" failures="%d" errors="0" time="0"`, len(results), Failed(results))
}

// Failed returns the number of tests that have failed.
func Failed(results []Result) int {
	n := 0
	for i := range results {
		n += min(1, len(results[i].Wrong))
	}
	return n
}

// quoted returns an attribute's value.
func quoted(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // to memory
	return `"` + b.String() + `"`
}
