package push

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

const (
	recordSize  = 4096 // of the only record of a message, as its header says
	saltSize    = 16
	publicSize  = 65 // of a P-256 key
	secretSize  = 16 // of the secret of a subscription
	delimiter   = 2  // after the text of the last record
	messageSize = 1024
)

// The available modules for Web Push predate crypto/ecdh and crypto/hkdf. They would bring
// libraries for JWTs and key derivation to replace the few calls below.

// encrypt returns a message that only the browser of a subscription can read (RFC 8291).
// Texts shorter than messageSize become messages of the same size, so that their size
// tells nothing about the text.
func encrypt(text []byte, receiver *ecdh.PublicKey, secret []byte) ([]byte, error) {
	if len(text) >= messageSize {
		return nil, errors.New("push: message too long")
	}
	ephemeral, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	padded := make([]byte, messageSize)
	copy(padded, text)
	padded[len(text)] = delimiter
	return seal(padded, receiver, secret, ephemeral, salt)
}

// seal encrypts a text and its delimiter with a given key and salt.
func seal(padded []byte, receiver *ecdh.PublicKey, secret []byte, ephemeral *ecdh.PrivateKey, salt []byte) ([]byte, error) {
	shared, err := ephemeral.ECDH(receiver)
	if err != nil {
		return nil, err
	}
	public := ephemeral.PublicKey().Bytes()
	keyInfo := "WebPush: info\x00" + string(receiver.Bytes()) + string(public)
	material, err := hkdf.Key(sha256.New, shared, secret, keyInfo, sha256.Size)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, material, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, material, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	header := append([]byte{}, salt...)
	header = binary.BigEndian.AppendUint32(header, recordSize)
	header = append(append(header, publicSize), public...)
	return aead.Seal(header, nonce, padded, nil), nil
}
