package api

import (
	"errors"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

// ErrorTypes returns every type of error that the API answers with.
func ErrorTypes() []string {
	types := []string{
		operator.TypeUnauthorized, operator.TypeForbidden, operator.TypeCrossSite, operator.TypeRateLimited, operator.TypeUnavailable,
		explain(errors.New("unknown")).Type,
	}
	for _, err := range []error{errUnknown, errTooLarge, errWrongType, badRequest("")} {
		types = append(types, explain(err).Type)
	}
	for _, p := range problems {
		types = append(types, p.Type)
	}
	slices.Sort(types)
	return slices.Compact(types)
}
