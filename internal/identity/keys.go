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
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// How the keys of an issuer are kept up to date.
const (
	keysFresh    = 15 * time.Minute // after which they are fetched again
	fetchPause   = 10 * time.Second // between fetches, however many unknown keys tokens name
	fetchTimeout = 5 * time.Second
	maxDocument  = 1 << 20
	maxKeys      = 100
	shortestRSA  = 2048
)

// keys are the public keys of an issuer, fetched when they are needed.
type keys struct {
	issuer Issuer
	client *http.Client
	now    func() time.Time

	mu       sync.Mutex
	known    []jose.JSONWebKey
	fetched  time.Time     // when known was
	tried    time.Time     // when it was last attempted
	failed   error         // what came of that
	fetching chan struct{} // closed when the fetch that is under way ends; nil if there is none
}

func newKeys(i Issuer, c *Config) *keys {
	return &keys{issuer: i, client: c.Client, now: c.Now}
}

// find returns the keys with which a token may have been signed. If there are
// none the issuer may have changed its keys, so they are fetched again, but not
// too often.
func (k *keys) find(ctx context.Context, id, algorithm string) ([]jose.JSONWebKey, *Error) {
	k.mu.Lock()
	now := k.now()
	found := k.match(id, algorithm)
	stale := now.Sub(k.fetched) >= keysFresh
	due := k.fetching == nil && now.Sub(k.tried) >= fetchPause
	if len(found) > 0 && (!stale || !due) {
		k.mu.Unlock()
		return found, nil
	}
	wait := k.fetching
	if due {
		k.tried = now
		k.fetching = make(chan struct{})
	}
	k.mu.Unlock()
	switch {
	case due:
		k.fetch(ctx)
	case wait != nil:
		select {
		case <-wait:
		case <-ctx.Done():
		}
	}
	return k.result(id, algorithm)
}

func (k *keys) result(id, algorithm string) ([]jose.JSONWebKey, *Error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch found := k.match(id, algorithm); {
	case len(found) > 0:
		return found, nil
	case k.known == nil:
		return nil, &Error{Reason: "tokens cannot be verified at the moment", Unavailable: true, Cause: k.failed}
	default:
		return nil, badToken("its key is not one of the issuer's", nil)
	}
}

// match returns the known keys that a token may have been signed with. One that
// does not say which may be any.
func (k *keys) match(id, algorithm string) []jose.JSONWebKey {
	var found []jose.JSONWebKey
	for _, key := range k.known {
		if (id == "" || key.KeyID == id) && (key.Algorithm == "" || key.Algorithm == algorithm) {
			found = append(found, key)
		}
	}
	return found
}

// fetch gets the keys. Others wait for them as well, so it goes on if the one
// that began leaves.
func (k *keys) fetch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	known, err := k.get(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed = err; err == nil {
		k.known, k.fetched = known, k.now()
	}
	close(k.fetching)
	k.fetching = nil
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
		if json.Unmarshal(text, &key) == nil && usable(key) && len(known) < maxKeys {
			known = append(known, key)
		}
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("no signature key at %s", at)
	}
	return known, nil
}

// usable reports whether a key is one that verifies signatures, and nothing more.
func usable(key jose.JSONWebKey) bool {
	if !key.Valid() || !key.IsPublic() || key.Use != "" && key.Use != "sig" {
		return false
	}
	public, isRSA := key.Key.(*rsa.PublicKey)
	return !isRSA || public.N.BitLen() >= shortestRSA
}

// discover returns where the issuer says that its keys are.
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
