package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Messages are signed as Standard Webhooks (standardwebhooks.com) says: these
// headers carry the id, the time in seconds, and one or more signatures of both
// and the body.
const (
	idHeader        = "Webhook-Id"
	timeHeader      = "Webhook-Timestamp"
	signatureHeader = "Webhook-Signature"
	signatureV1     = "v1,"
	secretPrefix    = "whsec_"
)

// tolerance is how far the time of a signed message may be from the gate's.
const tolerance = 5 * time.Minute

// A Key signs messages.
type Key []byte

// ParseKey reads a secret: whsec_ and 24 to 64 bytes in base64.
func ParseKey(secret string) (Key, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("must be whsec_ followed by 24 to 64 random bytes in base64")
	}
	return key, nil
}

// sign returns the signature of a message.
func (k Key) sign(id, at string, body []byte) string {
	mac := hmac.New(sha256.New, k)
	for _, part := range []string{id, ".", at, "."} {
		mac.Write([]byte(part))
	}
	mac.Write(body)
	return signatureV1 + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Sign adds the headers of a message.
func (k Key) Sign(h http.Header, id string, at time.Time, body []byte) {
	seconds := strconv.FormatInt(at.Unix(), 10)
	h.Set(idHeader, id)
	h.Set(timeHeader, seconds)
	h.Set(signatureHeader, k.sign(id, seconds, body))
}

// The reasons for which a message is not taken.
var (
	errSignature = fmt.Errorf("%w: the signature is missing or wrong", ErrUnsigned)
	errStale     = fmt.Errorf("%w: the timestamp is missing, or more than five minutes from now", ErrUnsigned)
)

// Verify returns nil if the body was signed with the key, not long ago.
func (k Key) Verify(h http.Header, body []byte, now time.Time) error {
	id, at := h.Get(idHeader), h.Get(timeHeader)
	want := []byte(k.sign(id, at, body))
	valid := false
	for text := range strings.FieldsSeq(h.Get(signatureHeader)) {
		valid = hmac.Equal([]byte(text), want) || valid
	}
	if !valid || id == "" {
		return errSignature
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return errStale
	}
	return nil
}

// ErrUnsigned reports a message that was not signed with the key, or long ago.
var ErrUnsigned = errors.New("webhook: not signed")
