package operator

import (
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
)

// A Hash is the hash of a token.
type Hash = identity.Hash

// HashOf returns the hash of a token.
func HashOf(token string) Hash { return identity.HashOf(token) }

// NewToken returns a new random token.
func NewToken() string { return identity.NewToken("tgo") }

// tryToken returns the configured token that equals shown. After too many failures it
// compares nothing, and returns how long to wait.
func (a *Auth) tryToken(r *http.Request, shown string) (t Token, ok bool, wait time.Duration) {
	wait = a.failures.attempt(addressOf(r), a.cfg.Now(), func() bool {
		t, ok = a.findToken(shown)
		return ok
	})
	return t, ok, wait
}

// findToken returns the configured token that equals shown. Its running time does not depend
// on the tokens or their lengths.
func (a *Auth) findToken(shown string) (found Token, ok bool) {
	hash := identity.HashOf(shown)
	for _, t := range a.cfg.Tokens {
		//mutate:swap "&& len(shown) >= identity.MinTokenLength " "" TestShortTokensNeverAccepted an operator's short token is accepted
		if hash.Equal(t.Hash) && len(shown) >= identity.MinTokenLength {
			found, ok = t, true
		}
	}
	return found, ok && shown != ""
}
