package signin

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
)

// A Store is the directory with the grants of one user: a file for each server. The system's
// keyring has the key that seals them. It does not have the grants themselves, because some
// keyrings limit the length of an entry to less than that of usual tokens.
type Store struct {
	dir  string
	keys Keyring

	mu     sync.Mutex
	key    []byte // of the keyring; nil before it was read
	broken error  // the keyring cannot be used, and is not asked again
}

// A Keyring keeps one text for the user.
type Keyring interface {
	Get() (string, error) // the error is [ErrNoKey] if there is no text yet
	Set(text string) error
}

// ErrNoKey means that a keyring has no key yet.
var ErrNoKey = errors.New("the keyring has no key")

// NewStore returns the store in a state directory. Without a keyring, which may be nil, only the
// permissions of their files protect the grants.
func NewStore(state string, keys Keyring) *Store {
	return &Store{dir: filepath.Join(state, "sign-ins"), keys: keys}
}

// A record is the file of one server.
type record struct {
	URL    string       `json:"url"`
	Names  []string     `json:"names"` // of the wraps that have used it
	Grant  *oauth.Grant `json:"grant,omitzero"`
	Sealed []byte       `json:"sealed,omitzero"` // the grant, if a keyring has the key
}

// file returns the name of a file of a server. Kind is its extension.
func (s *Store) file(server, kind string) string {
	sum := sha256.Sum256([]byte(server))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:12])+"."+kind)
}

// read returns the grant of a server, or nil if there is none that can be read.
func (s *Store) read(server string) (*oauth.Grant, error) {
	if err := localuser.CheckPrivate(s.dir); err != nil {
		return nil, unlessAbsent(err)
	}
	r, err := readRecord(s.file(server, "json"))
	if r == nil || err != nil {
		return nil, err
	}
	return s.unseal(r), nil
}

func readRecord(name string) (*record, error) {
	//mutate:swap "localuser.CheckPrivate(name)" "error(nil)" TestFilesOfOthersAreRefused tokens come from a file of another user
	if err := localuser.CheckPrivate(name); err != nil {
		return nil, unlessAbsent(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, unlessAbsent(err)
	}
	r := new(record)
	if json.Unmarshal(text, r) != nil { // its error quotes the file
		return nil, fmt.Errorf("%s is damaged: remove it", name)
	}
	return r, nil
}

// unlessAbsent returns err unless it means that a file does not exist.
func unlessAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unseal returns the grant of a record. It is nil if the keyring cannot be used any more or has
// another key: then the person must sign in again.
func (s *Store) unseal(r *record) *oauth.Grant {
	if r.Sealed == nil {
		return r.Grant
	}
	with, err := s.cipher(s.existingKey)
	if err != nil {
		return nil
	}
	g := new(oauth.Grant)
	text, err := with.Open(nil, nil, r.Sealed, []byte(r.URL))
	if err != nil || json.Unmarshal(text, g) != nil {
		return nil
	}
	return g
}

// write replaces the grant of a server, and adds the name of a wrap to its record. It seals the
// grant if it can, but not one that is not sealed yet: there are gates that cannot use the keyring.
func (s *Store) write(server, name string, g *oauth.Grant) error {
	r := record{URL: server, Grant: g}
	old, err := readRecord(s.file(server, "json"))
	if err != nil {
		return err
	}
	if old != nil {
		r.Names = old.Names
	}
	r.add(name)
	if old == nil || old.Grant == nil {
		r.Grant, r.Sealed = s.seal(server, g)
	}
	return s.put(&r)
}

// add adds the name of a wrap. It reports whether the record did not have it.
func (r *record) add(name string) bool {
	if slices.Contains(r.Names, name) {
		return false
	}
	r.Names = append(r.Names, name)
	return true
}

// addName adds the name of a wrap to the record of a server, if there is one.
func (s *Store) addName(server, name string) error {
	r, err := readRecord(s.file(server, "json"))
	if err != nil || r == nil || !r.add(name) {
		return err
	}
	return s.put(r)
}

// put writes a record.
func (s *Store) put(r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.replace(s.file(r.URL, "json"), text)
}

// seal returns the grant, or its sealed form if there is a keyring.
func (s *Store) seal(server string, g *oauth.Grant) (*oauth.Grant, []byte) {
	with, err := s.cipher(s.existingOrNewKey)
	if err != nil {
		return g, nil // the permissions of its file protect it
	}
	text, err := json.Marshal(g)
	if err != nil {
		return g, nil
	}
	return nil, with.Seal(nil, nil, text, []byte(server))
}

// replace replaces a file.
func (s *Store) replace(name string, text []byte) error {
	file, err := os.CreateTemp(s.dir, "new-*") // has mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}

// remove removes the record of a server.
func (s *Store) remove(server string) error {
	return unlessAbsent(os.Remove(s.file(server, "json")))
}

// all returns all records that can be read. The error says why others cannot.
func (s *Store) all() ([]*record, error) {
	names, err := filepath.Glob(filepath.Join(s.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []*record
	var damaged error
	for _, name := range names {
		r, err := readRecord(name)
		damaged = errors.Join(damaged, err)
		if r != nil {
			all = append(all, r)
		}
	}
	return all, damaged
}

// errNoKeyring means that there is no keyring.
var errNoKeyring = errors.New("there is no keyring")

// cipher returns the cipher with the key of the keyring.
func (s *Store) cipher(find func() ([]byte, error)) (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.keys == nil:
		return nil, errNoKeyring
	case s.broken != nil:
		return nil, s.broken
	case s.key == nil:
		key, err := find()
		if errors.Is(err, ErrNoKey) {
			return nil, err
		}
		if err != nil {
			s.broken = err // it may have taken long
			return nil, err
		}
		s.key = key
	}
	block, err := aes.NewCipher(s.key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// keySize is the length of a key in bytes.
const keySize = 32

// existingKey returns the key of the keyring.
func (s *Store) existingKey() ([]byte, error) {
	text, err := s.keys.Get()
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != keySize {
		return nil, errors.New("the key in the keyring is damaged: remove the entry thoughtgate")
	}
	return key, nil
}

// existingOrNewKey returns the key of the keyring, which gets one if it has none. Two processes do
// not create two keys.
func (s *Store) existingOrNewKey() ([]byte, error) {
	unlock, err := lockedfile.MutexAt(filepath.Join(s.dir, "key.lock")).Lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	key, err := s.existingKey()
	if !errors.Is(err, ErrNoKey) {
		return key, err
	}
	key = make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return key, s.keys.Set(base64.StdEncoding.EncodeToString(key))
}

// lockInterval is how often a lock is tried.
const lockInterval = 100 * time.Millisecond

// lock locks a file, which is unlocked by closing it. It calls busy, which may be nil, whenever
// another process has the lock.
func (s *Store) lock(ctx context.Context, name string, busy func()) (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	for {
		file, err := localdesk.Lock(name)
		if !errors.Is(err, localdesk.ErrLocked) {
			return file, err
		}
		if busy != nil {
			busy()
		}
		if !pause.For(ctx, lockInterval) {
			return nil, context.Cause(ctx)
		}
	}
}
