package push

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// keyRecord is the name of the record with the key by which push services know the gate.
// Browsers bind their subscriptions to it, so it is never replaced.
const keyRecord = "key/push"

// A signer says to push services who sends a message, as RFC 8292 (VAPID) says.
type signer struct {
	key     *ecdsa.PrivateKey
	public  string // as browsers want it
	contact string // whom the operators of a push service can ask
}

// encoding is how push services and browsers write bytes.
var encoding = base64.RawURLEncoding

// readKey returns the key that all replicas share. The first one makes it.
func readKey(ctx context.Context, records task.Records) (*ecdsa.PrivateKey, error) {
	for {
		found, err := records.GetRecord(ctx, keyRecord)
		if err == nil {
			return parseKey(found.Value)
		}
		if !errors.Is(err, task.ErrNotFound) {
			return nil, fmt.Errorf("push key: %w", err)
		}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		text, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		err = records.PutRecord(ctx, task.Record{Name: keyRecord, Version: 1, Value: text})
		if err != nil && !errors.Is(err, task.ErrConcurrentModification) { // another replica was faster
			return nil, fmt.Errorf("push key: %w", err)
		}
	}
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(text)
	if err != nil {
		return nil, errors.New("push key: the record cannot be read")
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, errors.New("push key: the record does not hold a key of P-256")
	}
	return private, nil
}

func newSigner(key *ecdsa.PrivateKey, contact string) (*signer, error) {
	public, err := key.PublicKey.ECDH()
	if err != nil {
		return nil, err
	}
	return &signer{key: key, public: encoding.EncodeToString(public.Bytes()), contact: contact}, nil
}

// tokenLife is how long a token is valid, of at most a day.
const tokenLife = 12 * time.Hour

// claims are what a token says.
type claims struct {
	Audience string `json:"aud"`
	Expires  int64  `json:"exp"`
	Subject  string `json:"sub"`
}

// authorization returns the header for a request to a push service.
func (s *signer) authorization(endpoint *url.URL, now time.Time) (string, error) {
	body, err := json.Marshal(&claims{endpoint.Scheme + "://" + endpoint.Host, now.Add(tokenLife).Unix(), s.contact})
	if err != nil {
		return "", err
	}
	text := encoding.EncodeToString([]byte(`{"typ":"JWT","alg":"ES256"}`)) + "." + encoding.EncodeToString(body)
	digest := sha256.Sum256([]byte(text))
	one, two, err := ecdsa.Sign(rand.Reader, s.key, digest[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	one.FillBytes(signature[:32])
	two.FillBytes(signature[32:])
	return "vapid t=" + text + "." + encoding.EncodeToString(signature) + ", k=" + s.public, nil
}
