package mcptask

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/doctest"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

const errorsPage = "../docs/errors.md"

// TestDocumentedErrors generates the list of errors about tasks in the documentation.
func TestDocumentedErrors(t *testing.T) {
	notes := doctest.Notes(t, "errors.go")
	forbidden, missing := TaskForbidden(), MissingExtension()
	lines := []string{
		fmt.Sprintf("- `task_forbidden` (%d): %s\n", forbidden.Code, doctest.Sentence(forbidden.Message, "For legacy clients.")),
		fmt.Sprintf("- `missing_client_capability` (%d): %s\n", missing.Code, doctest.Sentence(missing.Message, "For modern clients, with HTTP 400.")),
	}
	for _, p := range problems {
		lines = append(lines, fmt.Sprintf("- `%s` (%s%s): %s\n", p.name, doctest.Codes(p.legacy, p.modern), result(p.tool), doctest.Sentence(p.text, notes[[2]string{p.name, p.text}])))
	}
	doctest.Generated(t, errorsPage, "tasks", sorted(lines))
}

// advice adds the recommended action to the text of a stage.
var advice = map[task.Stage]string{
	lifecycle.StageInspection:          "Only by programs that use the library.",
	lifecycle.StageApprovalRejected:    "The text has the reason. It did not run.",
	lifecycle.StageApprovalTimeout:     "See `workflows.*.timeout`. It did not run.",
	lifecycle.StageUncollected:         "It did not run.",
	lifecycle.StagePolicyDrift:         "It did not run.",
	lifecycle.StageToolDrift:           "It did not run.",
	lifecycle.StageArgumentDrift:       "It did not run. Find out who can write to the store.",
	lifecycle.StageUpstreamError:       "The answer could not be kept.",
	lifecycle.StageUpstreamUnreachable: "It did not run, unless the server had asked something before.",
	lifecycle.StageUpstreamTimeout:     "See `limits.call_timeout`. It may have run.",
	lifecycle.StageUpstreamInvalid:     "It may have run.",
	lifecycle.StageUpstreamGone:        "It may have run.",
	lifecycle.StageResultTooLarge:      "See `limits.max_result`.",
	lifecycle.StageExecutorLost:        "The gate, or its connection to the store, died. It may have run, and never runs again.",
	lifecycle.StageCancelled:           "For `tools/call` it is a tool result.",
}

// TestDocumentedEndings generates the list of the ways in which a held call can end
// without a result.
func TestDocumentedEndings(t *testing.T) {
	var lines []string
	for stage, e := range endings {
		name := ""
		if e.name != string(stage) {
			name = "`" + e.name + "`, "
		}
		words := endSentence(task.Task{Failure: &task.Failure{Stage: stage}})
		lines = append(lines, fmt.Sprintf("- `%s` (%s%s%s): %s\n", stage, name, strconv.Itoa(e.code), result(e.refusal), doctest.Sentence(words, advice[stage])))
	}
	doctest.Generated(t, errorsPage, "endings", sorted(lines))
}

func sorted(lines []string) string {
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func result(isResult bool) string {
	if isResult {
		return ", result"
	}
	return ""
}
