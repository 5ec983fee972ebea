package mcptask

import (
	"strconv"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/doctest"
)

const errorsPage = "../docs/errors.md"

// TestDocumentedErrors demands that the documentation has every error about a task.
func TestDocumentedErrors(t *testing.T) {
	var rows [][]string
	for _, p := range problems {
		told := "error"
		if p.tool {
			told = "tool result"
		}
		rows = append(rows, []string{"`" + p.name + "`", strconv.Itoa(p.legacy), strconv.Itoa(p.modern), told})
	}
	rows = append(rows,
		[]string{"`task_forbidden`", strconv.Itoa(TaskForbidden().Code), "–", "error"},
		[]string{"`missing_client_capability`", "–", strconv.Itoa(MissingExtension().Code), "error"},
	)
	doctest.Table(t, errorsPage, "| `error_type` | legacy | modern | told by | cause, and what to do |", rows)
}

// TestDocumentedEndings demands that the documentation has every way in which a
// held call can end without a result.
func TestDocumentedEndings(t *testing.T) {
	var rows [][]string
	for stage, e := range endings {
		told := "error"
		if e.refusal {
			told = "tool result"
		}
		rows = append(rows, []string{"`" + string(stage) + "`", "`" + e.name + "`", strconv.Itoa(e.code), told})
	}
	doctest.Table(t, errorsPage, "| stage | `error_type` | legacy | told by | cause, and what to do |", rows)
}
