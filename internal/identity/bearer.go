package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
)

// MinTokenLength is the minimum length of a token. A shorter token could be guessed from its hash.
const MinTokenLength = 20

// A Hash is the hash of a token. Tokens are random and long, so a fast hash is sufficient.
type Hash [sha256.Size]byte

const hashPrefix = "sha256:"

// HashOf returns the hash of a token.
func HashOf(token string) Hash { return sha256.Sum256([]byte(token)) }

// ParseHash parses the text form of a hash.
func ParseHash(text string) (h Hash, err error) {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if data, err := hex.DecodeString(digits); ok && err == nil && len(data) == len(h) {
		return Hash(data), nil
	}
	return h, errors.New("identity: a hash must be sha256: and 64 hexadecimal digits")
}

// String returns the text form of h.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// Equal compares in constant time.
//
//mutate:swap "== 1" ">= 0" TestHash tokens are not compared
func (h Hash) Equal(other Hash) bool { return subtle.ConstantTimeCompare(h[:], other[:]) == 1 }

// NewToken returns a new random token with the given prefix, by which people and secret scanners
// recognise its kind.
func NewToken(kind string) string { return kind + "_" + rand.Text() }

// BearerToken returns the token of a request and whether the request has an Authorization header.
// The token is empty unless the header is a single bearer token.
func BearerToken(r *http.Request) (token string, given bool) {
	header := r.Header["Authorization"]
	if len(header) == 0 {
		return "", false
	}
	scheme, token, _ := strings.Cut(header[0], " ")
	//mutate:swap "len(header) > 1 || " "" TestBearerToken the first of two tokens counts
	if len(header) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return "", true
	}
	return token, true
}
