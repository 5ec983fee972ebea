package approval

import (
	"context"
	"fmt"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
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
		if i >= len(held) || !casefile.Redefined(held[i], now) {
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
		return casefile.ReadFacts(t).DigestsInBatch
	}
	return []string{t.Verdict.ToolDigest}
}
