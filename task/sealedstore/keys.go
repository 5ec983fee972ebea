package sealedstore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Keys are what tasks are sealed with: the first seals, and all of them open.
// The zero Keys seal nothing, and open nothing that is sealed.
type Keys struct{ all []key }

// A key has a name, which is stored with what it seals.
type key struct {
	name   string
	secret [secretSize]byte
}

const (
	secretSize = 32
	maxName    = 32
)

// ErrKey is the reason for which something sealed cannot be opened: its key is
// not at hand, or it is not what that key has sealed.
var ErrKey = errors.New("cannot be decrypted")

// ParseKeys reads keys as a list of NAME:BASE64, separated by commas, where
// BASE64 stands for 32 random bytes. No text means no keys. Errors do not
// quote any of it but names.
func ParseKeys(text string) (Keys, error) {
	var keys Keys
	if strings.TrimSpace(text) == "" {
		return keys, nil
	}
	for i, part := range strings.Split(text, ",") {
		name, secret, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok || !isName(name) {
			return Keys{}, fmt.Errorf("key %d is not NAME:BASE64 with a name of at most %d letters, digits and .-_", i+1, maxName)
		}
		if _, twice := keys.find(name); twice {
			return Keys{}, fmt.Errorf("there are two keys %s", name)
		}
		decoded, err := base64.StdEncoding.DecodeString(secret)
		if err != nil || len(decoded) != secretSize {
			return Keys{}, fmt.Errorf("key %s is not %d bytes in base64", name, secretSize)
		}
		keys.all = append(keys.all, key{name: name, secret: [secretSize]byte(decoded)})
	}
	return keys, nil
}

func isName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return name != "" && len(name) <= maxName && strings.Trim(name, letters) == ""
}

// Empty reports whether there are no keys.
func (k Keys) Empty() bool { return len(k.all) == 0 }

// First returns the name of the key that seals, or nothing.
func (k Keys) First() string {
	if k.Empty() {
		return ""
	}
	return k.all[0].name
}

func (k Keys) find(name string) (key, bool) {
	for _, known := range k.all {
		if known.name == name {
			return known, true
		}
	}
	return key{}, false
}

// needed returns the key of the given name, or says that it is needed.
func (k Keys) needed(name string) (key, error) {
	known, ok := k.find(name)
	switch {
	case ok:
		return known, nil
	case k.Empty():
		return key{}, fmt.Errorf("%w: encrypted with key %s, but no keys are given", ErrKey, name)
	default:
		return key{}, fmt.Errorf("%w: encrypted with key %s, which is not among those given", ErrKey, name)
	}
}

// aead returns the cipher for one task or record, which what names. Each has a
// key of its own: so few messages are sealed with it that random nonces cannot
// collide, and nothing that belongs to one opens as another's.
func (k key) aead(what string) (cipher.AEAD, error) {
	derived, err := hkdf.Expand(sha256.New, k.secret[:], "thoughtgate sealed "+what, secretSize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
