package operator

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
)

// A Hash is what is kept of a token. Tokens are random and long, so that a fast
// hash is enough: there is nothing to guess.
type Hash [sha256.Size]byte

const hashPrefix = "sha256:"

// HashOf returns the hash of a token.
func HashOf(token string) Hash { return sha256.Sum256([]byte(token)) }

// ParseHash reads the text form of a hash.
func ParseHash(text string) (h Hash, err error) {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if data, err := hex.DecodeString(digits); ok && err == nil && len(data) == len(h) {
		return Hash(data), nil
	}
	return h, errors.New("operator: a hash is sha256: and 64 hexadecimal digits")
}

// String returns the text form of h.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// NewToken returns a new random token.
func NewToken() string { return "tgo_" + rand.Text() }

// find returns the token that was shown. How long it takes tells nothing of the
// tokens, not even their lengths.
func (a *Auth) find(shown string) (found Token, ok bool) {
	hash := HashOf(shown)
	for _, t := range a.cfg.Tokens {
		if subtle.ConstantTimeCompare(hash[:], t.Hash[:]) == 1 {
			found, ok = t, true
		}
	}
	return found, ok && shown != ""
}

// bearer returns the token of a request, and whether it has anything by which
// to authenticate in its header at all.
func bearer(r *http.Request) (token string, given bool) {
	header := r.Header["Authorization"]
	if len(header) == 0 {
		return "", false
	}
	scheme, token, _ := strings.Cut(header[0], " ")
	if len(header) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return "", true
	}
	return token, true
}
