// Package pushtest is a fake push service with browsers for tests. It checks the sender of
// each message, and decrypts it.
package pushtest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"
)

// A Service is a push service.
type Service struct {
	*httptest.Server

	t   *testing.T
	now func() time.Time

	mu       sync.Mutex
	browsers map[string]*device // by the path of their endpoint
	status   map[string]int     // the status of the answer, by browser; 201 by default
	got      []Shown
	key      string // the key of the gate
}

// secretSize is the size of the secret of a subscription.
const secretSize = 16

// A device is a browser.
type device struct {
	key    *ecdh.PrivateKey
	secret []byte
}

// A Shown is a message that a browser decrypted.
type Shown struct {
	Device              string `json:"-"`
	Text                string `json:"-"`
	TTL, Urgency, Topic string `json:"-"`
	Size                int    `json:"-"` // the size of the encrypted message

	ID     string `json:"id"`
	Title  string `json:"title"`
	Body   string `json:"body"`
	Silent bool   `json:"silent"`
}

// New returns a service at a local address, over https.
func New(t *testing.T, now func() time.Time) *Service {
	t.Helper()
	s := &Service{t: t, now: now, browsers: map[string]*device{}, status: map[string]int{}}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	return s
}

// A Subscription is the address and the keys of a browser.
type Subscription struct{ Endpoint, Key, Auth string }

// Browser returns the subscription of a new browser.
func (s *Service) Browser(name string) Subscription {
	s.t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	d := &device{key: key, secret: []byte(rand.Text()[:secretSize])}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.browsers["/"+name] = d
	return Subscription{Endpoint: s.URL + "/" + name, Key: b64.EncodeToString(key.PublicKey().Bytes()), Auth: b64.EncodeToString(d.secret)}
}

var b64 = base64.RawURLEncoding

// ServeHTTP accepts a message as in RFC 8030 and RFC 8292.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status := s.status[r.URL.Path]; status != 0 {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		return
	}
	if err := s.check(r); err != nil {
		s.t.Errorf("a message that no service takes: %v, %v", err, r.Header)
		w.WriteHeader(http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	text, err := s.browsers[r.URL.Path].open(body)
	one := Shown{
		Device: r.URL.Path[1:], Text: string(text), TTL: r.Header.Get("TTL"), Urgency: r.Header.Get("Urgency"), Topic: r.Header.Get("Topic"), Size: len(body),
	}
	if err != nil || json.Unmarshal(text, &one, json.RejectUnknownMembers(true)) != nil {
		s.t.Errorf("a message that no browser reads: %v %s", err, text)
	}
	s.got = append(s.got, one)
	w.WriteHeader(http.StatusCreated)
}

// check returns an error if the service must refuse a message.
func (s *Service) check(r *http.Request) error {
	ttl, err := strconv.Atoi(r.Header.Get("Ttl"))
	switch {
	case err != nil || ttl <= 0:
		return fmt.Errorf("TTL %q", r.Header.Get("Ttl"))
	case r.Header.Get("Content-Encoding") != "aes128gcm", len(r.Header.Get("Topic")) > 32:
		return errors.New("other headers")
	default:
		return s.authorized(r)
	}
}

// authorized checks the signature of the gate.
func (s *Service) authorized(r *http.Request) error {
	token, key, ok := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "vapid t="), ", k=")
	point, err := b64.DecodeString(key)
	if !ok || err != nil || len(point) != 65 || s.key != "" && s.key != key {
		return fmt.Errorf("the key %q: %w", key, err)
	}
	s.key = key
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return err
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return err
	}
	var claims jwt.Claims
	if err := parsed.Claims(public, &claims); err != nil {
		return err
	}
	if claims.Subject != "mailto:ops@example.com" || claims.Expiry.Time().After(s.now().Add(24*time.Hour)) {
		return fmt.Errorf("the claims %+v", claims)
	}
	return claims.Validate(jwt.Expected{AnyAudience: jwt.Audience{"https://" + r.Host}, Time: s.now()})
}

// open decrypts a message as browsers do (RFC 8291).
func (d *device) open(body []byte) ([]byte, error) {
	salt, size := body[:16], binary.BigEndian.Uint32(body[16:])
	sender, err := ecdh.P256().NewPublicKey(body[21 : 21+int(body[20])])
	if err != nil || size < 18 {
		return nil, fmt.Errorf("record size %d: %w", size, err)
	}
	shared, err := d.key.ECDH(sender)
	if err != nil {
		return nil, err
	}
	material := derived(shared, d.secret, "WebPush: info\x00"+string(d.key.PublicKey().Bytes())+string(sender.Bytes()), 32)
	block, err := aes.NewCipher(derived(material, salt, "Content-Encoding: aes128gcm\x00", 16))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	text, err := aead.Open(nil, derived(material, salt, "Content-Encoding: nonce\x00", 12), body[21+int(body[20]):], nil)
	if err != nil {
		return nil, err
	}
	padded := strings.TrimRight(string(text), "\x00")
	if !strings.HasSuffix(padded, "\x02") {
		return nil, fmt.Errorf("no delimiter in %q", padded)
	}
	return []byte(strings.TrimSuffix(padded, "\x02")), nil
}

// derived returns a key of a size that crypto/hkdf supports.
func derived(secret, salt []byte, info string, size int) []byte {
	extracted, _ := hkdf.Extract(sha256.New, secret, salt)
	key, _ := hkdf.Expand(sha256.New, extracted, info, size)
	return key
}

// Answers sets the status of the answers to further messages for a browser.
func (s *Service) Answers(device string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status["/"+device] = status
}

// Key returns the key of the gate that the service has seen.
func (s *Service) Key() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key
}

// All returns the messages since the last call, by device.
func (s *Service) All() map[string][]Shown {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := map[string][]Shown{}
	for _, one := range s.got {
		by[one.Device] = append(by[one.Device], one)
	}
	s.got = nil
	return by
}
