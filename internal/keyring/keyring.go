// Package keyring keeps the root keys of a gate, and seals with keys that are
// derived from them: one for each purpose, so that nothing that was made for one
// purpose opens for another.
//
// Root keys are random. They are a record of the store, which the first replica
// creates and all others read, so that what one seals all can open. The holder of
// a root key can make sessions of operators: it is an administrator's
// credential, and so is the database with its backups unless the store is
// encrypted.
//
// The first key seals. [Ring.Rotate] puts a new one before it; the others open
// what they have sealed for as long as that can live.
package keyring

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Purpose is what something is sealed for.
type Purpose string

// The purposes.
const (
	Agents   Purpose = "texts that agents hand back"
	Sessions Purpose = "sessions of operators"
	Logins   Purpose = "logins of operators under way"
)

// ErrForeign says that a text was not sealed for this purpose by this gate, or
// that its key has been given up.
var ErrForeign = errors.New("keyring: not sealed for this purpose with a key of this gate")

// RecordName is the name of the record that holds the root keys.
const RecordName = "key/root"

// fresh is how long keys are used before the store is asked for them again:
// keys that were given up on one replica are given up on all within that time.
const fresh = time.Second

// refresh is how often, at most, the store is asked because of a text that no
// key opens: another replica may have just made a new one.
const refresh = 50 * time.Millisecond

// A Ring has the root keys of a gate. It is safe for concurrent use.
type Ring struct {
	records task.Records // nil if the keys are in memory alone
	now     func() time.Time

	mu     sync.Mutex
	bunch  bunch // empty until it has been read
	readAt time.Time
	asked  *reading // nil while nobody asks the store
}

// A bunch is what the record holds.
type bunch struct {
	Label string `json:"label"` // says which gate it is; no secret, and never changed
	Keys  []key  `json:"keys"`  // the first one seals
}

// A key is a root key.
type key struct {
	Secret []byte `json:"secret"`
	Until  int64  `json:"until,omitzero"` // when it opens no more, in seconds since 1970; zero for the first
}

const (
	secretSize = 32
	idSize     = 4
)

// New returns the ring whose keys are in a store. They are created, unless they
// are there, when they are first needed.
func New(records task.Records, now func() time.Time) *Ring {
	return &Ring{records: records, now: now}
}

// Ephemeral returns a ring with a random key that is kept nowhere.
func Ephemeral() *Ring { return &Ring{bunch: newBunch()} }

func newBunch() bunch { return bunch{Label: rand.Text()[:8], Keys: []key{newKey()}} }

func newKey() key {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails; the program ends if there is no randomness
	return key{Secret: secret}
}

// live returns the keys that may be used now, as they were no longer than age
// ago. If the store cannot be asked, those that were read last are used.
func (r *Ring) live(ctx context.Context, age time.Duration) (bunch, error) {
	if r.records == nil {
		return r.bunch, nil
	}
	b, err := r.latest(ctx, age)
	if err != nil {
		return bunch{}, err
	}
	now := r.now().Unix()
	b.Keys = slices.DeleteFunc(slices.Clone(b.Keys), func(k key) bool { return k.Until != 0 && k.Until <= now })
	return b, nil
}

// Label returns a text that is the same on all replicas, and another one for
// every other gate.
func (r *Ring) Label(ctx context.Context) (string, error) {
	b, err := r.live(ctx, fresh)
	return b.Label, err
}

// read returns the keys in the store and the version of their record, and
// creates them if there are none.
func (r *Ring) read(ctx context.Context) (bunch, int64, error) {
	for {
		found, err := r.records.GetRecord(ctx, RecordName)
		switch {
		case err == nil:
			b, err := decode(found.Value)
			return b, found.Version, err
		case !errors.Is(err, task.ErrNotFound):
			return bunch{}, 0, fmt.Errorf("root keys: %w", err)
		}
		err = r.write(ctx, newBunch(), 1)
		if err != nil && !errors.Is(err, task.ErrConcurrentModification) { // another replica was faster
			return bunch{}, 0, fmt.Errorf("root keys: %w", err)
		}
	}
}

func (r *Ring) write(ctx context.Context, b bunch, version int64) error {
	text, err := json.Marshal(&b)
	if err != nil {
		return err
	}
	return r.records.PutRecord(ctx, task.Record{Name: RecordName, Version: version, Value: text})
}

func decode(text []byte) (b bunch, err error) {
	if json.Unmarshal(text, &b) != nil {
		return bunch{}, errors.New("root keys: the record cannot be read") // the error may quote it
	}
	if len(b.Keys) == 0 || b.Keys[0].Until != 0 || slices.ContainsFunc(b.Keys, func(k key) bool { return len(k.Secret) != secretSize }) {
		return bunch{}, errors.New("root keys: the record does not hold keys")
	}
	return b, nil
}

// Rotate makes a new key, with which all replicas seal from now on. The others
// open what they have sealed for some time yet, which should be as long as that
// can live.
func (r *Ring) Rotate(ctx context.Context, openFor time.Duration) error {
	for {
		old, version, err := r.read(ctx)
		if err != nil {
			return err
		}
		now := r.now()
		next := bunch{Label: old.Label, Keys: []key{newKey()}}
		for i, k := range old.Keys {
			if i == 0 {
				k.Until = now.Add(openFor).Unix()
			}
			if k.Until > now.Unix() {
				next.Keys = append(next.Keys, k)
			}
		}
		if err = r.write(ctx, next, version+1); !errors.Is(err, task.ErrConcurrentModification) {
			return err
		}
	}
}

// Sealer returns what seals for a purpose.
func (r *Ring) Sealer(p Purpose) Sealer { return Sealer{ring: r, purpose: p} }

// A Sealer makes texts that only the gate can read or make.
type Sealer struct {
	ring    *Ring
	purpose Purpose
}

// Seal returns a text from which only Open, on any replica, gets what was
// sealed, and only if it is bound to the same values.
func (s Sealer) Seal(ctx context.Context, text string, bound ...string) (string, error) {
	b, err := s.ring.live(ctx, fresh)
	if err != nil {
		return "", err
	}
	id, aead, err := s.derive(b.Keys[0])
	if err != nil {
		return "", err
	}
	sealed := aead.Seal(id, nil, []byte(text), joined(bound)) //nolint:gosec // this AEAD makes its own nonce
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

// Open returns what was sealed, or [ErrForeign].
func (s Sealer) Open(ctx context.Context, sealed string, bound ...string) (string, error) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || len(data) < idSize || strings.ContainsAny(sealed, "\r\n") { // which decoding skips
		return "", ErrForeign
	}
	for _, age := range []time.Duration{fresh, refresh} {
		b, err := s.ring.live(ctx, age)
		if err != nil {
			return "", err
		}
		text, err := s.open(b.Keys, data, joined(bound))
		if !errors.Is(err, errUnknownKey) {
			return text, err
		}
	}
	return "", ErrForeign
}

var errUnknownKey = errors.New("keyring: sealed with another key")

// open returns what one of the keys has sealed.
func (s Sealer) open(keys []key, data, bound []byte) (string, error) {
	for _, k := range keys {
		id, aead, err := s.derive(k)
		if err != nil {
			return "", err
		}
		if !bytes.Equal(id, data[:idSize]) {
			continue
		}
		text, err := aead.Open(nil, nil, data[idSize:], bound)
		if err != nil {
			return "", ErrForeign
		}
		return string(text), nil
	}
	return "", errUnknownKey
}

// derive returns the key for the purpose, and what texts that it seals begin
// with.
func (s Sealer) derive(k key) (id []byte, aead cipher.AEAD, err error) {
	derived, err := hkdf.Key(sha256.New, k.Secret, nil, "thoughtgate key 1: "+string(s.purpose), idSize+secretSize)
	if err != nil {
		return nil, nil, err
	}
	block, err := aes.NewCipher(derived[idSize:])
	if err != nil {
		return nil, nil, err
	}
	aead, err = cipher.NewGCMWithRandomNonce(block)
	return derived[:idSize:idSize], aead, err
}

// joined joins values in a way in which no others do.
func joined(bound []string) []byte {
	var b []byte
	for _, text := range bound {
		b = binary.BigEndian.AppendUint64(b, uint64(len(text)))
		b = append(b, text...)
	}
	return b
}
