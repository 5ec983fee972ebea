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
	recordSize  = 4096 // of the one record of a message, as its header says
	saltSize    = 16
	publicSize  = 65 // of a key of P-256
	secretSize  = 16 // of the secret that a browser shares
	delimiter   = 2  // ends the text of the last record
	messageSize = 1024
)

// encrypt returns a message that only the browser of a subscription can read, as RFC
// 8291 says. All texts up to messageSize become messages of the same size, so that
// nobody between can distinguish them.
func encrypt(text []byte, receiver *ecdh.PublicKey, secret []byte) ([]byte, error) {
	if len(text) >= messageSize {
		return nil, errors.New("push: the message is too long")
	}
	own, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	padded := make([]byte, messageSize)
	copy(padded, text)
	padded[len(text)] = delimiter
	return seal(padded, receiver, secret, own, salt)
}

// seal encrypts a text, which has its delimiter, with a given key and salt.
func seal(padded []byte, receiver *ecdh.PublicKey, secret []byte, own *ecdh.PrivateKey, salt []byte) ([]byte, error) {
	shared, err := own.ECDH(receiver)
	if err != nil {
		return nil, err
	}
	public := own.PublicKey().Bytes()
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
