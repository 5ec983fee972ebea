package approval

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// toolDrift returns why t must not run if one of its tools is defined otherwise
// than when t was held, or nil. A definition that is not known counts as
// unchanged.
func toolDrift(ctx context.Context, t task.Task, send Sender) *task.Failure {
	held := heldDefinitions(t)
	definer, ok := send.(Definer)
	if !ok || t.Approval == nil || !slices.ContainsFunc(held, func(digest string) bool { return digest != "" }) {
		return nil
	}
	for i, now := range definer.Definitions(ctx, t) {
		if i >= len(held) || !redefined(held[i], now) {
			continue
		}
		reason := "the tool has changed since the call was held"
		if t.Call.Method == MethodBatch {
			reason = fmt.Sprintf("the tool of message %d of the batch has changed since the batch was held", i+1)
		}
		return &task.Failure{Stage: task.StageToolDrift, Reason: reason, Retriable: true}
	}
	return nil
}

// heldDefinitions returns the digests of the definitions that the tools of t had
// when t was held, as [Definer] does.
func heldDefinitions(t task.Task) []string {
	if t.Call.Method == MethodBatch {
		return readFacts(t).DigestsInBatch
	}
	return []string{t.Verdict.ToolDigest}
}

// redefined reports whether two digests tell that a tool has been defined
// otherwise.
func redefined(one, other string) bool { return comparableDigests(one, other) && one != other }

// comparableDigests reports whether two digests of definitions were made in the
// same way, so that they tell whether the definitions differ. A digest that is
// not known cannot be compared.
func comparableDigests(one, other string) bool {
	return one != "" && other != "" && formOf(one) == formOf(other)
}

// formOf returns how a digest was made. Early digests do not say that.
func formOf(digest string) string {
	form, _, told := strings.Cut(digest, "-")
	if !told {
		return ""
	}
	return form
}
