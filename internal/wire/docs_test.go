package wire

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/doctest"
)

// TestDocumented demands that the documentation has every kind of problem with its
// codes.
func TestDocumented(t *testing.T) {
	var rows [][]string
	for _, kind := range Types() {
		c := table[kind]
		status := strconv.Itoa(c.status)
		if c.status == 0 {
			status = fmt.Sprintf("%d, %d", inBand, c.noRequest)
		}
		rows = append(rows, []string{"`" + string(kind) + "`", strconv.Itoa(c.legacy), strconv.Itoa(c.modern), status})
	}
	doctest.Table(t, "../../docs/errors.md", "| `error_type` | legacy | modern | HTTP | cause, and what to do |", rows)
}
