// Package keyring keeps the root keys of a gate, and seals texts with keys derived from
// them. Each purpose has its own derived key, so a text sealed for one purpose does not
// open for another.
//
//	sealer := ring.Sealer(keyring.Agents)
//	sealed, err := sealer.Seal(ctx, text, owner)
//	text, err := sealer.Open(ctx, sealed, owner) // on any replica; ErrForeign for another owner
//
// The root keys are random. They are a record of the store, which the first replica
// creates and all others read, so that every replica opens the texts of the others. A
// root key is a credential of an administrator: with it, sessions of operators can be
// forged. The same is true of the database and its backups unless the store is encrypted.
//
// The first key seals. [Ring.Rotate] puts a new key before it; older keys only open, until
// they expire.
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
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/singleflight"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Purpose is the use of a sealed text. Keys are derived from its value.
type Purpose string

// The purposes.
const (
	Agents      Purpose = "texts that agents hand back"
	Sessions    Purpose = "sessions of operators"
	Logins      Purpose = "logins of operators under way"
	Connections Purpose = "tokens for servers"
	Arguments   Purpose = "digests of arguments"
)

// ErrForeign reports a text that was not sealed for this purpose by this gate, or
// whose key has expired.
var ErrForeign = errors.New("keyring: not sealed for this purpose with a key of this gate")

// RecordName is the name of the record that holds the root keys.
const RecordName = "key/root"

const (
	// maxAge is how long keys are used before they are read again. A key that was
	// removed on one replica is removed on all replicas within that time.
	maxAge = time.Second
	// maxAgeUnknown is the same for a text that no key opens: another replica may have
	// made a new key just now.
	maxAgeUnknown = 50 * time.Millisecond
	// fetchTimeout is how long one read of the keys may take.
	fetchTimeout = 30 * time.Second
)

// A Ring has the root keys of a gate. It is safe for concurrent use.
type Ring struct {
	records gatestore.Records // nil if the keys are only in memory
	now     func() time.Time

	last  atomic.Pointer[fetched] // the last read; nil before the first
	reads singleflight.Group
}

// A keySet is the content of the record.
type keySet struct {
	Label string `json:"label"` // identifies the gate; not secret, and never changed
	Keys  []key  `json:"keys"`  // the first one seals
}

// A key is a root key.
type key struct {
	Secret []byte `json:"secret"`
	Until  int64  `json:"until,omitzero"` // Unix time at which the key expires; zero for the first key
}

// A fetched has the keys of one read, which all callers share that need them at the time.
type fetched struct {
	keys  keySet
	began time.Time // when the read began
}

const (
	secretSize = 32
	idSize     = 4
)

// New returns the ring whose keys are in a store. The ring creates the keys at their
// first use, unless the store has them.
func New(records gatestore.Records, now func() time.Time) *Ring {
	return &Ring{records: records, now: now}
}

// Ephemeral returns a ring with a random key that is only in memory.
func Ephemeral() *Ring {
	r := new(Ring)
	r.last.Store(&fetched{keys: newKeySet()})
	return r
}

func newKeySet() keySet { return keySet{Label: rand.Text()[:8], Keys: []key{newKey()}} }

func newKey() key {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails: without randomness it ends the program
	return key{Secret: secret}
}

// current returns the keys that have not expired, read at most age ago. If the store is
// not available, it returns the keys of the last read.
func (r *Ring) current(ctx context.Context, age time.Duration) (keySet, error) {
	if r.records == nil {
		return r.last.Load().keys, nil
	}
	set, err := r.latest(ctx, age)
	if err != nil {
		return keySet{}, err
	}
	now := r.now().Unix()
	//mutate:swap "(k key) bool { return k.Until != 0 && k.Until <= now }" "(key) bool { return now < 0 }" TestRotatedKeyOpensUntilItExpires an expired key opens texts
	set.Keys = slices.DeleteFunc(slices.Clone(set.Keys), func(k key) bool { return k.Until != 0 && k.Until <= now })
	return set, nil
}

// latest returns the keys, read at most age ago. If the store fails, it returns the keys of the
// last read, unless there are none or the record is damaged.
func (r *Ring) latest(ctx context.Context, age time.Duration) (keySet, error) {
	for arrived := r.now(); ; {
		last := r.last.Load()
		if last != nil && r.now().Sub(last.began).Abs() < age {
			return last.keys, nil
		}
		var read singleflight.Result
		select {
		case read = <-r.reads.DoChan("", func() (any, error) { return r.fetch(context.WithoutCancel(ctx)) }):
		case <-ctx.Done():
			read.Err = ctx.Err()
		}
		now, _ := read.Val.(*fetched)
		switch {
		case read.Err != nil && last != nil && !errors.Is(read.Err, task.ErrUnreadable):
			return last.keys, nil
		case read.Err != nil:
			return keySet{}, read.Err
		case arrived.Sub(now.began) < age: // otherwise the read began for an earlier caller
			return now.keys, nil
		}
	}
}

// fetch reads the keys.
func (r *Ring) fetch(ctx context.Context) (*fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	now := &fetched{began: r.now()}
	var err error
	if now.keys, _, err = r.read(ctx); err != nil {
		return nil, err
	}
	r.last.Store(now)
	return now, nil
}

// Label returns a text that is the same on all replicas of a gate, and different for
// every other gate.
func (r *Ring) Label(ctx context.Context) (string, error) {
	set, err := r.current(ctx, maxAge)
	return set.Label, err
}

// read returns the keys in the store and the version of their record. It creates them
// if the store has none.
func (r *Ring) read(ctx context.Context) (keySet, int64, error) {
	for {
		found, err := r.records.GetRecord(ctx, RecordName)
		switch {
		case err == nil:
			set, err := decode(found.Value)
			return set, found.Version, err
		case !errors.Is(err, task.ErrNotFound):
			return keySet{}, 0, fmt.Errorf("read root keys: %w", err)
		}
		err = r.write(ctx, newKeySet(), 1)
		if err != nil && !errors.Is(err, task.ErrConcurrentModification) { // another replica has created them
			return keySet{}, 0, fmt.Errorf("create root keys: %w", err)
		}
	}
}

func (r *Ring) write(ctx context.Context, set keySet, version int64) error {
	text, err := json.Marshal(&set)
	if err != nil {
		return err
	}
	return r.records.PutRecord(ctx, gatestore.Record{Name: RecordName, Version: version, Value: text})
}

func decode(text []byte) (set keySet, err error) {
	if json.Unmarshal(text, &set) != nil { // its error may quote the record
		return keySet{}, errors.New("read root keys: the record is not valid JSON")
	}
	if len(set.Keys) == 0 || set.Keys[0].Until != 0 || slices.ContainsFunc(set.Keys, func(k key) bool { return len(k.Secret) != secretSize }) {
		return keySet{}, errors.New("read root keys: the record has no valid keys")
	}
	return set, nil
}

// Rotate makes a new key, with which all replicas seal from now on. The previous keys
// open texts for the given time, which should be as long as such texts are valid.
func (r *Ring) Rotate(ctx context.Context, openFor time.Duration) error {
	for {
		old, version, err := r.read(ctx)
		if err != nil {
			return err
		}
		now := r.now()
		next := keySet{Label: old.Label, Keys: []key{newKey()}}
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

// Key returns a key for a purpose other than sealing, on all replicas the same.
func (r *Ring) Key(ctx context.Context, p Purpose) ([]byte, error) {
	set, err := r.current(ctx, maxAge)
	if err != nil {
		return nil, err
	}
	return hkdf.Key(sha256.New, set.Keys[0].Secret, nil, "thoughtgate plain key 1: "+string(p), secretSize)
}

// Sealer returns the sealer for a purpose.
func (r *Ring) Sealer(p Purpose) Sealer { return Sealer{ring: r, purpose: p} }

// A Sealer encrypts and authenticates texts for one purpose.
type Sealer struct {
	ring    *Ring
	purpose Purpose
}

// Seal returns the sealed text. Open returns the text on any replica if it is called with
// the same bound values.
func (s Sealer) Seal(ctx context.Context, text string, bound ...string) (string, error) {
	set, err := s.ring.current(ctx, maxAge)
	if err != nil {
		return "", err
	}
	id, aead, err := s.derive(set.Keys[0])
	if err != nil {
		return "", err
	}
	sealed := aead.Seal(id, nil, []byte(text), encode(bound))
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

// Open returns the text that Seal was given, or [ErrForeign].
func (s Sealer) Open(ctx context.Context, sealed string, bound ...string) (string, error) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || len(data) < idSize || strings.ContainsAny(sealed, "\r\n") { // decoding ignores line breaks
		return "", ErrForeign
	}
	for _, age := range []time.Duration{maxAge, maxAgeUnknown} {
		set, err := s.ring.current(ctx, age)
		if err != nil {
			return "", err
		}
		for _, k := range set.Keys {
			id, aead, err := s.derive(k)
			if err != nil {
				return "", err
			}
			if !bytes.Equal(id, data[:idSize]) {
				continue
			}
			text, err := aead.Open(nil, nil, data[idSize:], encode(bound))
			if err != nil {
				return "", ErrForeign
			}
			return string(text), nil
		}
	}
	return "", ErrForeign
}

// derive returns the key for the purpose, and the id with which texts sealed by it begin.
func (s Sealer) derive(k key) (id []byte, aead cipher.AEAD, err error) {
	//mutate:swap "+string(s.purpose)" "" TestReplicasOpenOnlyWithSamePurposeAndValues all purposes have one key
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

// encode returns an unambiguous encoding of the bound values.
func encode(bound []string) []byte {
	var b []byte
	//mutate:swap "bound" "bound[:min(1, len(bound))]" TestReplicasOpenOnlyWithSamePurposeAndValues a sealed text is valid for every owner
	//mutate:swap "bound" "bound[:min(1, len(bound))]" internal/mcphttp.TestSealedTextsWorkOnlyForTheirClient a sealed text is valid for every principal
	//mutate:swap "bound" "bound[min(1, len(bound)):]" internal/mcphttp.TestSealedTextsWorkOnlyForTheirClient a sealed text is valid for every use
	for _, text := range bound {
		//mutate:swap "b = binary.BigEndian.AppendUint64(b, uint64(len(text)))" "_ = binary.BigEndian.AppendUint64(nil, uint64(len(text)))" TestReplicasOpenOnlyWithSamePurposeAndValues values can be split elsewhere
		b = binary.BigEndian.AppendUint64(b, uint64(len(text)))
		b = append(b, text...)
	}
	return b
}
