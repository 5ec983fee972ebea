package lifecycle

import (
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

func (e SetVariables) apply(t *task.Task, _ time.Time) *task.Error {
	changed, refused := task.VariableChange(e).To(t.Variables)
	if refused == nil {
		t.Variables = changed
	}
	return refused
}
