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

// Keys seal tasks with the first key, and open them with each key. The zero Keys do not seal,
// and only open tasks that are not sealed.
type Keys struct{ all []key }

// A key has a name, which is stored with each text that it has sealed.
type key struct {
	name   string
	secret [secretSize]byte
}

const (
	secretSize = 32
	maxName    = 32
)

// ErrKey is the cause of the error for a sealed text whose key is missing, or which was sealed
// with another key.
var ErrKey = errors.New("cannot be decrypted")

// ParseKeys parses a list of NAME:BASE64, separated by commas. BASE64 encodes 32 random bytes.
// An empty text means no keys. Errors only quote the names of keys.
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
			return Keys{}, fmt.Errorf("duplicate key name %s", name)
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

// First returns the name of the key that seals, or an empty text.
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

// needed returns the key of the given name, or an error that names it.
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

// aead returns the cipher for the task or record called what. Each has a derived key.
// So few messages are sealed with each key that random nonces do not collide, and a text of one
// task cannot be opened as a text of another.
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

// A binding is the position of a sealed text, without which it cannot be opened.
type binding struct {
	keyName string // names the derived key: the task or record
	data    []byte // the additional data: the part and its version
}

// seal appends text, sealed with the first key, to prefix.
func (k Keys) seal(prefix string, p binding, text []byte) ([]byte, error) {
	aead, err := k.all[0].aead(p.keyName)
	if err != nil {
		return nil, err
	}
	return aead.Seal([]byte(prefix), nil, text, p.data), nil
}

// open returns the text that the key of the given name has sealed.
func (k Keys) open(name string, p binding, sealed []byte) ([]byte, error) {
	known, err := k.needed(name)
	if err != nil {
		return nil, err
	}
	aead, err := known.aead(p.keyName)
	if err != nil {
		return nil, err
	}
	text, err := aead.Open(nil, nil, sealed, p.data)
	if err != nil {
		return nil, fmt.Errorf("%w: wrong key %s, or it was changed", ErrKey, name)
	}
	return text, nil
}

// prefix returns the prefix of texts that are sealed with the first key: the mark, the
// name of the key, and the last byte of the mark.
func (k Keys) prefix(mark string) string { return mark + k.First() + mark[len(mark)-1:] }

// splitSealed returns the name of the key in a text that begins with mark, and the sealed
// rest. Without the mark, the name is empty and the rest is the whole text.
func splitSealed[T string | []byte](mark string, text T) (name string, sealed T) {
	head, marked := strings.CutPrefix(string(text[:min(len(text), len(mark)+maxName+1)]), mark)
	if !marked {
		return "", text
	}
	name, _, _ = strings.Cut(head, mark[len(mark)-1:])
	return name, text[min(len(text), len(mark)+len(name)+1):]
}
