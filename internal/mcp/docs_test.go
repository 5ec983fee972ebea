package mcp

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/doctest"
)

// TestDocumented generates the list of refusals in the documentation.
func TestDocumented(t *testing.T) {
	notes := doctest.Notes(t, "problem.go")
	var list strings.Builder
	for _, kind := range Types() {
		c, name := table[kind], string(kind)
		status := strconv.Itoa(c.status)
		if c.status == 0 {
			status = fmt.Sprintf("%d/%d", inBand, c.noRequest)
		}
		fmt.Fprintf(&list, "- `%s` (%s, HTTP %s): %s\n", name, doctest.Codes(c.legacy, c.modern), status, doctest.Sentence(c.message, notes[[2]string{name, name}]))
	}
	doctest.Generated(t, "../../docs/errors.md", "refusals", list.String())
}
