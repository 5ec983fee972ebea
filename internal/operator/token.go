package operator

import "github.com/thoughtgate/thoughtgate-go/internal/bearer"

// A Hash is what is kept of a token.
type Hash = bearer.Hash

// HashOf returns the hash of a token.
func HashOf(token string) Hash { return bearer.HashOf(token) }

// NewToken returns a new random token.
func NewToken() string { return bearer.New("tgo") }

// find returns the token that was shown. How long it takes tells nothing of the
// tokens, not even their lengths.
func (a *Auth) find(shown string) (found Token, ok bool) {
	hash := bearer.HashOf(shown)
	for _, t := range a.cfg.Tokens {
		if hash.Equal(t.Hash) && (!t.Random || len(shown) >= bearer.Shortest) {
			found, ok = t, true
		}
	}
	return found, ok && shown != ""
}
