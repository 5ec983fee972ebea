package operator

import (
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
)

// A Hash is what is kept of a token.
type Hash = bearer.Hash

// HashOf returns the hash of a token.
func HashOf(token string) Hash { return bearer.HashOf(token) }

// NewToken returns a new random token.
func NewToken() string { return bearer.New("tgo") }

// try returns the token that was shown, unless there were too many failures
// before: then nothing is compared, and it returns how long to wait.
func (a *Auth) try(r *http.Request, shown string) (t Token, ok bool, wait time.Duration) {
	wait = a.guesses.attempt(addressOf(r), a.cfg.Now(), func() bool {
		t, ok = a.find(shown)
		return ok
	})
	return t, ok, wait
}

// find returns the token that was shown. The time that it takes shows nothing of the
// tokens, not even their lengths.
func (a *Auth) find(shown string) (found Token, ok bool) {
	hash := bearer.HashOf(shown)
	for _, t := range a.cfg.Tokens {
		if hash.Equal(t.Hash) && len(shown) >= bearer.Shortest {
			found, ok = t, true
		}
	}
	return found, ok && shown != ""
}
