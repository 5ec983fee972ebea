// Package softkey is a passkey in software, for tests. It answers as a browser does.
package softkey

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"slices"
	"testing"

	"github.com/go-webauthn/webauthn/protocol/webauthncbor"
)

// A Key is one passkey. Its fields can be changed to make wrong answers.
type Key struct {
	ID     []byte
	Origin string // of the page that uses the key
	Site   string // the relying party
	Flags  byte

	private *ecdsa.PrivateKey
}

// The flags of an answer.
const (
	Present  = 1
	Verified = 4

	attested = 0x40 // the answer has a new key
)

// New returns a key for the pages of an origin.
func New(t testing.TB, origin, site string) *Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &Key{ID: []byte(rand.Text()), Origin: origin, Site: site, Flags: Present | Verified, private: private}
}

// challengeOf returns the challenge in the options of the gate, which are JSON.
func challengeOf(t testing.TB, options []byte) string {
	t.Helper()
	var o struct{ Challenge string }
	if err := json.Unmarshal(options, &o); err != nil || o.Challenge == "" {
		t.Fatalf("no challenge in %s: %v", options, err)
	}
	return o.Challenge
}

// Create answers options for a new passkey.
func (k *Key) Create(t testing.TB, options []byte) string {
	t.Helper()
	point, err := k.private.PublicKey.Bytes() // 4, and two coordinates
	if err != nil {
		t.Fatal(err)
	}
	cose, err := webauthncbor.Marshal(map[int]any{1: 2, 3: -7, -1: 1, -2: point[1:33], -3: point[33:]})
	if err != nil {
		t.Fatal(err)
	}
	data := k.data(attested)
	data = append(data, make([]byte, 16)...) // the model
	data = binary.BigEndian.AppendUint16(data, uint16(len(k.ID)))
	data = slices.Concat(data, k.ID, cose)
	object, err := webauthncbor.Marshal(map[string]any{"fmt": "none", "attStmt": map[string]any{}, "authData": data})
	if err != nil {
		t.Fatal(err)
	}
	return k.answer(t, map[string][]byte{"clientDataJSON": k.client(t, "webauthn.create", options), "attestationObject": object})
}

// Sign answers options for a signature.
func (k *Key) Sign(t testing.TB, options []byte) string {
	t.Helper()
	client, data := k.client(t, "webauthn.get", options), k.data(0)
	hash := sha256.Sum256(client)
	sum := sha256.Sum256(slices.Concat(data, hash[:]))
	signature, err := ecdsa.SignASN1(rand.Reader, k.private, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return k.answer(t, map[string][]byte{"clientDataJSON": client, "authenticatorData": data, "signature": signature})
}

func (k *Key) data(flags byte) []byte {
	site := sha256.Sum256([]byte(k.Site))
	return append(site[:], k.Flags|flags, 0, 0, 0, 1)
}

func (k *Key) client(t testing.TB, kind string, options []byte) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"type": kind, "challenge": challengeOf(t, options), "origin": k.Origin, "crossOrigin": false})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (k *Key) answer(t testing.TB, response map[string][]byte) string {
	t.Helper()
	id, inside := base64.RawURLEncoding.EncodeToString(k.ID), map[string]string{}
	for name, value := range response {
		inside[name] = base64.RawURLEncoding.EncodeToString(value)
	}
	text, err := json.Marshal(map[string]any{"id": id, "rawId": id, "type": "public-key", "response": inside})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
