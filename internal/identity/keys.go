package identity

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits for fetching keys.
const (
	keysFresh    = 15 * time.Minute // then fetch the keys again
	fetchPause   = 10 * time.Second // minimum pause between fetches
	fetchTimeout = 5 * time.Second
	maxDocument  = 1 << 20
	maxKeys      = 100
	minRSABits   = 2048
)

// keys are the public keys of an issuer, which are fetched on demand. go-oidc's key set is not
// used: it asks the issuer for every token with an unknown key, without a pause, and reads answers
// of any size.
type keys struct {
	issuer Issuer
	client *http.Client
	now    func() time.Time
	known  atomic.Pointer[keySet] // nil until the keys were fetched

	fetching sync.Mutex // held during a fetch; guards the fields below
	tried    time.Time  // when the last fetch began
	failed   error      // its error
}

// A keySet is the result of a fetch.
type keySet struct {
	keys    []jose.JSONWebKey
	fetched time.Time
}

// find returns the keys that may have signed a token. If none matches, the issuer may have new
// keys, so find fetches them again, at most once in fetchPause.
func (k *keys) find(ctx context.Context, id, algorithm string) ([]jose.JSONWebKey, *Error) {
	known := k.known.Load()
	found := known.match(id, algorithm)
	switch {
	case len(found) == 0:
		k.fetching.Lock() // wait for a current fetch
	case k.now().Sub(known.fetched) < keysFresh || !k.fetching.TryLock():
		return found, nil
	}
	defer k.fetching.Unlock()
	if now := k.now(); now.Sub(k.tried) >= fetchPause {
		k.tried = now
		k.fetch(ctx)
	}
	known = k.known.Load()
	switch found := known.match(id, algorithm); {
	case len(found) > 0:
		return found, nil
	case known == nil:
		return nil, &Error{Reason: "tokens cannot be verified at the moment", Unavailable: true, Cause: k.failed}
	default:
		return nil, invalidToken("its key is not one of the issuer's", nil)
	}
}

// match returns the keys for a key id and algorithm. Without an id, all keys of the algorithm
// match.
func (s *keySet) match(id, algorithm string) []jose.JSONWebKey {
	if s == nil {
		return nil
	}
	var found []jose.JSONWebKey
	for _, key := range s.keys {
		if (id == "" || key.KeyID == id) && (key.Algorithm == "" || key.Algorithm == algorithm) {
			found = append(found, key)
		}
	}
	return found
}

// fetch fetches the keys. It continues if ctx is done, because other requests may wait for it.
func (k *keys) fetch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	var found []jose.JSONWebKey
	if found, k.failed = k.get(ctx); k.failed == nil {
		k.known.Store(&keySet{found, k.now()})
	}
}

func (k *keys) get(ctx context.Context) ([]jose.JSONWebKey, error) {
	at := k.issuer.KeysURL
	if at == "" {
		var err error
		if at, err = k.discover(ctx); err != nil {
			return nil, err
		}
	}
	var document struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := k.read(ctx, at, &document); err != nil {
		return nil, err
	}
	known := make([]jose.JSONWebKey, 0, len(document.Keys))
	for _, text := range document.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(text, &key) == nil && isSignatureKey(key) && len(known) < maxKeys {
			known = append(known, key)
		}
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("no signature key at %s", at)
	}
	return known, nil
}

// isSignatureKey reports whether a key is a strong public key for signatures.
func isSignatureKey(key jose.JSONWebKey) bool {
	if !key.Valid() || !key.IsPublic() || key.Use != "" && key.Use != "sig" {
		return false
	}
	public, isRSA := key.Key.(*rsa.PublicKey)
	return !isRSA || public.N.BitLen() >= minRSABits
}

// discover returns the URL of the issuer's key set.
func (k *keys) discover(ctx context.Context) (string, error) {
	u, err := url.Parse(k.issuer.URL)
	if err != nil {
		return "", err
	}
	path := strings.TrimSuffix(u.Path, "/")
	root := u.Scheme + "://" + u.Host
	var failed error
	for _, at := range []string{
		root + path + "/.well-known/openid-configuration",
		root + "/.well-known/oauth-authorization-server" + path,
	} {
		var document struct {
			Issuer string `json:"issuer"`
			Keys   string `json:"jwks_uri"`
		}
		if err := k.read(ctx, at, &document); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if document.Issuer != k.issuer.URL {
			return "", fmt.Errorf("%s belongs to another issuer", at)
		}
		if !strings.HasPrefix(document.Keys, "https://") && !strings.HasPrefix(k.issuer.URL, "http://") {
			return "", fmt.Errorf("%s has no safe jwks_uri", at)
		}
		return document.Keys, nil
	}
	return "", failed
}

func (k *keys) read(ctx context.Context, at string, to any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := k.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered with status %d", at, resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return err
	}
	if len(text) > maxDocument {
		return fmt.Errorf("%s is too large", at)
	}
	return json.Unmarshal(text, to)
}
