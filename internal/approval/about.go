package approval

import (
	"context"
	"log/slog"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// About returns a context whose lines of the log are about the call of t. They
// have the correlation id of the request that made the call, which is kept with
// it: whichever replica does something for the call later, its lines are found
// with the others.
func About(ctx context.Context, t task.Task) context.Context {
	return logging.AboutCall(ctx, func() logging.Call {
		return logging.Call{
			CorrelationID: casefile.ReadFacts(t).Correlation, Principal: casefile.Requester(t), TaskID: string(t.ID), Tool: t.Call.Name,
		}
	})
}

// logCreated logs that a call was held, and how its state has changed since.
func logCreated(ctx context.Context, log *slog.Logger, t task.Task, notes []task.Note) {
	ctx = About(ctx, t)
	log.InfoContext(ctx, "Task created", "upstream", t.Call.Upstream, "workflow", t.Workflow)
	logMoves(ctx, log, notes)
}

// logMoves logs the changes of state that notes describe.
func logMoves(ctx context.Context, log *slog.Logger, notes []task.Note) {
	for _, n := range notes {
		if n.From != "" {
			log.InfoContext(ctx, "Task status changed", "from", n.From, "to", n.To, "by", n.Actor, "outcome", n.Outcome)
		}
	}
}

// lastMove returns how the state of t changed last, for the log.
func lastMove(t task.Task) (from, to task.State) {
	if len(t.Transitions) == 0 {
		return "", t.State
	}
	last := t.Transitions[len(t.Transitions)-1]
	return last.From, last.To
}
