package task

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// An ID names a task. It is hard to guess, but it does not authenticate its sender.
type ID string

// idPrefix distinguishes these tasks from those of an upstream, whose ids a gateway relays.
const idPrefix = "tg_"

const (
	idTime   = 9  // characters for the time of creation in milliseconds: enough until the year 3084
	idRandom = 27 // random characters: 135 bits
	idShown  = 4  // random characters that [ID.Short] keeps
)

// idLetters are the digits of an ID in ascending order, without letters that look alike.
// Each stands for five bits.
const idLetters = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID returns an ID with 135 random bits. It begins with the time, so that tasks
// that are created one after the other are neighbours in the index of a database.
// IDs of earlier versions are tg_ and a UUID.
func NewID(at time.Time) ID {
	var random [idRandom]byte
	//mutate:drop TestIDsAreUnguessable an id can be guessed
	_, _ = rand.Read(random[:]) // never fails; the program ends if there is no randomness
	text := make([]byte, 0, len(idPrefix)+idTime+idRandom)
	text = append(text, idPrefix...)
	ms := uint64(max(0, at.UnixMilli()))
	for i := idTime - 1; i >= 0; i-- {
		text = append(text, idLetters[ms>>(5*i)%32])
	}
	for _, b := range random {
		text = append(text, idLetters[b%32])
	}
	return ID(text)
}

// Short returns the beginning of id, which people use to find a task.
func (id ID) Short() ID {
	if i := strings.IndexByte(string(id), '-'); i >= 0 {
		return id[:i] // of a UUID, which is random from its beginning
	}
	return id[:min(len(id), len(idPrefix)+idTime+idShown)]
}

// Time returns when an ID of [NewID], or its beginning, was made. It returns false if id does not
// have the time.
func (id ID) Time() (time.Time, bool) {
	digits, own := strings.CutPrefix(string(id), idPrefix)
	if !own || len(digits) < idTime {
		return time.Time{}, false
	}
	var ms int64
	for i := range idTime {
		digit := strings.IndexByte(idLetters, digits[i])
		if digit < 0 {
			return time.Time{}, false
		}
		ms = ms<<5 + int64(digit)
	}
	return time.UnixMilli(ms), true
}

// Own reports whether id begins like the IDs of [NewID]. A gateway must not relay such
// an id to an upstream, even if it names no task.
func (id ID) Own() bool { return strings.HasPrefix(string(id), idPrefix) }

// A Call is a request as it was received. Its bytes are kept as strings: they
// cannot be changed by accident, and copies are free.
type Call struct {
	Upstream  string `json:"upstream"` // the name of the server behind a gateway
	Method    string `json:"method"`
	Name      string `json:"name"`               // of the tool or prompt, or the URI of the resource
	Arguments string `json:"arguments,omitzero"` // JSON, empty when there are none
	Message   string `json:"message"`            // the whole request

	// Also is for gateways: the other members of the request that reach the upstream, as a
	// JSON object. It is empty if there are none, and in tasks of earlier versions,
	// which are sent without such members.
	Also string `json:"also,omitzero"`
}

// Digest returns the digest of c. It fails if Arguments or Also are not strict JSON: no duplicate names, no invalid UTF-8.
func (c Call) Digest() (Digest, error) {
	b := make([]byte, 0, 5*lengthSize+len(c.Upstream)+len(c.Method)+len(c.Name)+len(c.Arguments)+len(c.Also))
	for _, part := range [...]string{c.Upstream, c.Method, c.Name} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	b, err := appendCanonical(b, c.Arguments)
	if err != nil {
		return Digest{}, fmt.Errorf("arguments: %w", err)
	}
	//mutate:false internal/approval.TestDigestCoversOtherMembers Also is not part of the digest
	if c.Also != "" {
		if b, err = appendCanonical(b, c.Also); err != nil {
			return Digest{}, fmt.Errorf("also: %w", err)
		}
	}
	return sha256.Sum256(b), nil
}

// appendCanonical appends the canonical form of a JSON value, if there is one,
// after its length.
func appendCanonical(b []byte, value string) ([]byte, error) {
	at := len(b)
	b = binary.BigEndian.AppendUint64(b, 0) // until the length is known
	if value != "" {
		var err error
		if b, err = jsontext.AppendFormat(b, value, jsontext.ReorderRawObjects(true)); err != nil {
			return nil, err
		}
	}
	binary.BigEndian.PutUint64(b[at:], uint64(len(b[at+lengthSize:])))
	return b, nil
}

// lengthSize is how many bytes the length of each part of a digest takes.
const lengthSize = 8

// A Digest identifies a call: SHA-256 over upstream, method, name, arguments and,
// if it is not empty, Also, each preceded by its length as eight bytes, big endian. The
// last two are compared as JSON: the order of members, white space and escapes in
// strings do not matter. Numbers count as written, because some readers distinguish
// 1, 1.0 and 1e0.
type Digest [sha256.Size]byte

// String returns d in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("digest has %d characters, not %d", len(text), hex.EncodedLen(len(d)))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// CallDigest returns the digest of t's whole call, as the approvers saw it. It differs
// from t.Digest if calls count as identical although members of them differ.
func (t Task) CallDigest() Digest {
	if t.FullDigest == nil {
		return t.Digest
	}
	return *t.FullDigest
}
