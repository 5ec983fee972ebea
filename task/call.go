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

// An ID names a task. It is hard to guess, but it does not prove who holds it.
type ID string

// idPrefix distinguishes these tasks from those of an upstream, whose ids a gateway relays.
const idPrefix = "tg_"

const (
	idTime   = 9  // characters of an ID that tell when it was made, in milliseconds: enough until the year 3084
	idRandom = 27 // characters that nobody can guess: 135 bits
	idShown  = 4  // of those, how many people need to see to tell tasks apart
)

// idLetters are the digits of an ID in ascending order, without those that look
// like another. Each stands for five bits.
const idLetters = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID returns an ID with 135 random bits. It begins with the time, so that tasks
// that are created one after the other are neighbours in the index of a database.
// IDs of earlier versions are tg_ and a UUID.
func NewID(at time.Time) ID {
	var random [idRandom]byte
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

// Short returns the beginning of id, by which people find a task.
func (id ID) Short() ID {
	if i := strings.IndexByte(string(id), '-'); i >= 0 {
		return id[:i] // of a UUID, which is random from its beginning
	}
	return id[:min(len(id), len(idPrefix)+idTime+idShown)]
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

	// Also is for gateways: what reaches the upstream besides name and arguments, a
	// JSON object. It is empty if there is nothing, and in tasks of versions that did
	// not show it, which are sent without it.
	Also string `json:"also,omitzero"`
}

// Digest returns the digest of c. It fails if the arguments, or what is sent
// besides, are not strict JSON: no duplicate names, no invalid UTF-8.
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
	if c.Also != "" {
		if b, err = appendCanonical(b, c.Also); err != nil {
			return Digest{}, fmt.Errorf("what is sent besides: %w", err)
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
// if there is anything, what is sent besides, each preceded by its length as
// eight bytes, big endian. The last two are compared as JSON: order of members, white space and the spelling of
// strings do not matter. Numbers count as written, since what reads them may
// tell 1, 1.0 and 1e0 apart.
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

// CallDigest returns the digest of t's call, as the approvers saw it. It differs
// from t.Digest where calls count as identical although something in them differs.
func (t Task) CallDigest() Digest {
	if t.Whole == nil {
		return t.Digest
	}
	return *t.Whole
}
