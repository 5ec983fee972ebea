package identity

import (
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// JudgeClaims checks the claims of a token with a valid signature.
func JudgeClaims(payload []byte, now time.Time) (policy.Principal, error) {
	var c Claims
	if err := c.UnmarshalJSON(payload); err != nil {
		return policy.Principal{}, err
	}
	i := issuer{Issuer: Issuer{Audiences: []string{"x"}, ID: "sub", Groups: "groups"}}
	v, bad := i.checkClaims(c, now)
	if bad != nil {
		return policy.Principal{}, bad
	}
	return v.principal, nil
}
