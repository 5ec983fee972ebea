package mcphttp

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"strings"
)

// sealedPrefix marks what the gate sealed, so that it is never taken for
// something of an upstream's, nor the other way round.
const sealedPrefix = "tg1."

// A sealer makes texts that clients hand back and can neither read, nor change,
// nor use in the place of somebody else.
type sealer struct{ aead cipher.AEAD }

// newSealer returns a sealer with the given key.
func newSealer(key [32]byte) sealer {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the size of the key is right
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // the block size of AES is right
	}
	return sealer{aead}
}

// seal returns text for one purpose and one owner.
func (s sealer) seal(purpose, owner, text string) string {
	//nolint:gosec // the nonce is nil because this AEAD makes its own
	return sealedPrefix + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, []byte(text), bound(purpose, owner)))
}

// open returns the text that was sealed for the same purpose and owner.
func (s sealer) open(purpose, owner, sealed string) (string, bool) {
	encoded, ok := strings.CutPrefix(sealed, sealedPrefix)
	if !ok || strings.ContainsAny(encoded, "\r\n") { // which decoding would pass over
		return "", false
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return "", false
	}
	text, err := s.aead.Open(nil, nil, data, bound(purpose, owner))
	return string(text), err == nil
}

func bound(purpose, owner string) []byte { return []byte(purpose + "\x00" + owner) }

// isSealed reports whether text claims to be sealed by the gate.
func isSealed(text string) bool { return strings.HasPrefix(text, sealedPrefix) }
