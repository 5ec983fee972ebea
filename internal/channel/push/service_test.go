package push_test

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

	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
)

// A service is a push service together with the browsers that it serves: it checks who
// sends a message, and decrypts it.
type service struct {
	t      *testing.T
	server *httptest.Server

	mu       sync.Mutex
	browsers map[string]*device // by the path of their endpoint
	status   map[string]int     // what the service answers, if not 201
	got      []shown
	key      string // of the gate
}

// A device is a browser.
type device struct {
	key    *ecdh.PrivateKey
	secret []byte
}

// A shown is a message that a browser decrypted.
type shown struct {
	device              string
	ID, Title, Body     string
	Silent              bool
	ttl, urgency, topic string
	size                int
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, browsers: map[string]*device{}, status: map[string]int{}}
	s.server = httptest.NewTLSServer(s)
	t.Cleanup(s.server.Close)
	return s
}

// browser returns the subscription of a new browser.
func (s *service) browser(name string) push.Subscription {
	s.t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	d := &device{key: key, secret: []byte(rand.Text()[:16])}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.browsers["/"+name] = d
	return push.Subscription{Endpoint: s.server.URL + "/" + name, Key: b64.EncodeToString(key.PublicKey().Bytes()), Auth: b64.EncodeToString(d.secret)}
}

var b64 = base64.RawURLEncoding

// ServeHTTP takes a message as RFC 8030 and RFC 8292 say.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status := s.status[r.URL.Path]; status != 0 {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if err := s.authorized(r); err != nil || r.Header.Get("Content-Encoding") != "aes128gcm" || len(r.Header.Get("Topic")) > 32 {
		s.t.Errorf("a message that no service takes: %v, %v", err, r.Header)
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if ttl, err := strconv.Atoi(r.Header.Get("TTL")); err != nil || ttl <= 0 {
		s.t.Errorf("TTL %q", r.Header.Get("TTL"))
	}
	d := s.browsers[r.URL.Path]
	text, err := d.open(body)
	one := shown{device: r.URL.Path[1:], ttl: r.Header.Get("TTL"), urgency: r.Header.Get("Urgency"), topic: r.Header.Get("Topic"), size: len(body)}
	if err != nil || json.Unmarshal(text, &one, json.MatchCaseInsensitiveNames(true)) != nil {
		s.t.Errorf("a message that no browser reads: %v %s", err, text)
	}
	s.got = append(s.got, one)
	w.WriteHeader(http.StatusCreated)
}

// authorized checks the signature of the gate.
func (s *service) authorized(r *http.Request) error {
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
	if claims.Subject != "mailto:ops@example.com" || claims.Expiry.Time().After(time.Now().Add(24*time.Hour)) {
		return fmt.Errorf("the claims %+v", claims)
	}
	return claims.Validate(jwt.Expected{AnyAudience: jwt.Audience{"https://" + r.Host}, Time: time.Now()})
}

// open decrypts a message as RFC 8291 says of browsers.
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
	extracted, _ := hkdf.Extract(sha256.New, shared, d.secret)
	material, _ := hkdf.Expand(sha256.New, extracted, "WebPush: info\x00"+string(d.key.PublicKey().Bytes())+string(sender.Bytes()), 32)
	extracted, _ = hkdf.Extract(sha256.New, material, salt)
	key, _ := hkdf.Expand(sha256.New, extracted, "Content-Encoding: aes128gcm\x00", 16)
	nonce, _ := hkdf.Expand(sha256.New, extracted, "Content-Encoding: nonce\x00", 12)
	block, _ := aes.NewCipher(key)
	aead, _ := cipher.NewGCM(block)
	text, err := aead.Open(nil, nonce, body[21+int(body[20]):], nil)
	if err != nil {
		return nil, err
	}
	padded := strings.TrimRight(string(text), "\x00")
	if !strings.HasSuffix(padded, "\x02") {
		return nil, fmt.Errorf("no delimiter in %q", padded)
	}
	return []byte(strings.TrimSuffix(padded, "\x02")), nil
}

// answers has the service answer a browser's messages with a status from now on.
func (s *service) answers(device string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status["/"+device] = status
}

// all returns what was shown since the last call, by device.
func (s *service) all() map[string][]shown {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := map[string][]shown{}
	for _, one := range s.got {
		by[one.device] = append(by[one.device], one)
	}
	s.got = nil
	return by
}
