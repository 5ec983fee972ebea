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

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
)

// Messages are signed as in Standard Webhooks (standardwebhooks.com). These headers have
// the id, the time in seconds, and one or more signatures over both and the body.
const (
	idHeader        = "Webhook-Id"
	timeHeader      = "Webhook-Timestamp"
	signatureHeader = "Webhook-Signature"
	signatureV1     = "v1,"
	secretPrefix    = "whsec_"
)

// tolerance is the largest accepted difference between the time of a signed message and
// the clock.
const tolerance = 5 * time.Minute

// A Key signs messages.
type Key []byte

const wantKey = "whsec_ followed by 24 to 64 random bytes in base64"

// ParseKey reads a secret of the form whsec_ and 24 to 64 bytes in base64.
func ParseKey(secret string) (Key, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("must be " + wantKey)
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

var (
	errSignature = fmt.Errorf("%w: the signature is missing or wrong", channel.ErrUnsigned)
	errStale     = fmt.Errorf("%w: the timestamp is missing, or more than five minutes from now", channel.ErrUnsigned)
)

// Verify returns nil if the body was signed with the key within the tolerance. Otherwise
// the error is a [channel.ErrUnsigned].
func (k Key) Verify(h http.Header, body []byte, now time.Time) error {
	id, at := h.Get(idHeader), h.Get(timeHeader)
	want := []byte(k.sign(id, at, body))
	valid := false
	for text := range strings.FieldsSeq(h.Get(signatureHeader)) {
		valid = hmac.Equal([]byte(text), want) || valid
	}
	//mutate:swap "!valid ||" "!valid &&" TestVerifyRefusesChangedMessages an unsigned answer decides
	//mutate:swap "len(k) == 0 || " "" TestSystemWithoutKeyCannotDecide an answer for a channel without a system decides
	if len(k) == 0 || !valid || id == "" {
		return errSignature
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	//mutate:swap "tolerance" "1000*tolerance" TestVerifyRefusesChangedMessages an old answer decides
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return errStale
	}
	return nil
}
