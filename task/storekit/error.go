package storekit

import (
	"errors"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// MaybeChanged reports whether a store that returned err may have made the change.
func MaybeChanged(err error) bool {
	_, refused := errors.AsType[*task.Error](err)
	return err != nil && (!refused || errors.Is(err, task.ErrUnavailable))
}
