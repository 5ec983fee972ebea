package api

import (
	"errors"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// Routes returns the served patterns with their roles.
func Routes() map[string]string {
	all := map[string]string{}
	for _, r := range new(handler).routes() {
		all[r.pattern] = string(r.role)
	}
	return all
}

// Parameters returns the served patterns with their query parameters.
func Parameters() map[string][]string {
	all := map[string][]string{}
	for _, r := range new(handler).routes() {
		all[r.pattern] = r.query
	}
	return all
}

// OpenAPI returns the description of the API.
func OpenAPI() []byte { return openAPI }

// GrantWish is a part of a decision, and Revocation the body of one.
type (
	GrantWish  = grantWish
	Revocation = revocation
)

// Verdict is the body of a decision.
type Verdict = verdict

// ErrorTypes returns all types of errors that the API answers with.
func ErrorTypes() []string {
	types := []string{
		operator.TypeUnauthorized, operator.TypeForbidden, operator.TypeCrossSite, operator.TypeRateLimited, operator.TypeUnavailable,
		explain(errors.New("unknown")).Type,
	}
	for _, err := range []error{errUnknown, errTooLarge, errWrongType, badRequest(""), &review.NoCorrectionError{}, &review.NoGrantError{}, &approval.GrantFailedError{}} {
		types = append(types, explain(err).Type)
	}
	for _, p := range problems {
		types = append(types, p.as.Type)
	}
	slices.Sort(types)
	return slices.Compact(types)
}
