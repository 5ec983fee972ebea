// Package bearer is what there is to know of bearer tokens: how they are made,
// what is kept of them, and where they are in a request.
package bearer

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
)

// Shortest is how many characters a token must have. A shorter one could be guessed
// from its hash.
const Shortest = 20

// A Hash is what is kept of a token. Tokens are random and long, so that a fast
// hash is enough: there is nothing to guess.
type Hash [sha256.Size]byte

const prefix = "sha256:"

// HashOf returns the hash of a token.
func HashOf(token string) Hash { return sha256.Sum256([]byte(token)) }

// ParseHash reads the text form of a hash.
func ParseHash(text string) (h Hash, err error) {
	digits, ok := strings.CutPrefix(text, prefix)
	if data, err := hex.DecodeString(digits); ok && err == nil && len(data) == len(h) {
		return Hash(data), nil
	}
	return h, errors.New("bearer: a hash is sha256: and 64 hexadecimal digits")
}

// String returns the text form of h.
func (h Hash) String() string { return prefix + hex.EncodeToString(h[:]) }

// Equal compares in constant time.
func (h Hash) Equal(other Hash) bool { return subtle.ConstantTimeCompare(h[:], other[:]) == 1 }

// New returns a new random token that begins with the given letters, by which
// people and scanners know what it is.
func New(kind string) string { return kind + "_" + rand.Text() }

// In returns the token of a request, which is empty if there is anything but one
// bearer token in its Authorization header, and whether it has that header.
func In(r *http.Request) (token string, given bool) {
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
