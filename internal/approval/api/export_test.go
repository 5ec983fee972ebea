package api

import (
	"errors"
	"slices"
)

// ErrorTypes returns every type of error that the API answers with.
func ErrorTypes() []string {
	types := []string{explain(errors.New("unknown")).Type}
	for _, err := range []error{errUnauthorized, errUnknown, errTooLarge, errWrongType, badRequest("")} {
		types = append(types, explain(err).Type)
	}
	for _, p := range problems {
		types = append(types, p.Type)
	}
	slices.Sort(types)
	return slices.Compact(types)
}
