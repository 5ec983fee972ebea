package identity

import (
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// JudgeClaims judges the claims of a token whose signature is right.
func JudgeClaims(payload []byte, now time.Time) (policy.Principal, error) {
	c, err := readClaims(payload)
	if err != nil {
		return policy.Principal{}, err
	}
	i := issuer{Issuer: Issuer{Audiences: []string{"x"}, ID: "sub", Groups: "groups"}}
	v, bad := i.judge(c, now)
	if bad != nil {
		return policy.Principal{}, bad
	}
	return v.principal, nil
}
