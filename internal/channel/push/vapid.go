package push

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// keyRecord is the name of the record with the key that identifies the gate to push
// services. Subscriptions are bound to the key, so it is never replaced.
const keyRecord = "key/push"

// A signer identifies the gate to push services (VAPID, RFC 8292).
type signer struct {
	jwt     jose.Signer
	public  string // the public key, encoded for browsers
	contact string // see Config.Contact
}

// encoding is the encoding of bytes in the Push API.
var encoding = base64.RawURLEncoding

// readKey returns the key that all replicas share. The first replica creates it.
func readKey(ctx context.Context, records gatestore.Records) (*ecdsa.PrivateKey, error) {
	for {
		found, err := records.GetRecord(ctx, keyRecord)
		if err == nil {
			return parseKey(found.Value)
		}
		if !errors.Is(err, task.ErrNotFound) {
			return nil, fmt.Errorf("read push key: %w", err)
		}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		text, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		err = records.PutRecord(ctx, gatestore.Record{Name: keyRecord, Version: 1, Value: text})
		if err != nil && !errors.Is(err, task.ErrConcurrentModification) { // another replica may have created it
			return nil, fmt.Errorf("store push key: %w", err)
		}
	}
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("push key: the record %s cannot be read", keyRecord)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("push key: the record %s has no P-256 key", keyRecord)
	}
	return private, nil
}

func newSigner(key *ecdsa.PrivateKey, contact string) (*signer, error) {
	public, err := key.PublicKey.ECDH()
	if err != nil {
		return nil, err
	}
	jwt, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, new(jose.SignerOptions).WithType("JWT"))
	return &signer{jwt: jwt, public: encoding.EncodeToString(public.Bytes()), contact: contact}, err
}

// tokenLife is the validity of a token. RFC 8292 allows a day at most.
const tokenLife = 12 * time.Hour

// claims are the claims of a token.
type claims struct {
	Audience string `json:"aud"`
	Expires  int64  `json:"exp"`
	Subject  string `json:"sub"`
}

// authorization returns the Authorization header for a request to a push service.
func (s *signer) authorization(endpoint *url.URL, now time.Time) (string, error) {
	body, err := json.Marshal(&claims{endpoint.Scheme + "://" + endpoint.Host, now.Add(tokenLife).Unix(), s.contact})
	if err != nil {
		return "", err
	}
	signed, err := s.jwt.Sign(body)
	if err != nil {
		return "", err
	}
	token, err := signed.CompactSerialize()
	return "vapid t=" + token + ", k=" + s.public, err
}
