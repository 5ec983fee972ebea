package inbox_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"image/png"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// TestInstallableApp checks that browsers can install the inbox: the icons have the sizes
// that the manifest gives.
func TestInstallableApp(t *testing.T) {
	o := open(t)
	v := o.newBrowser(t)
	status, text, header := v.do(http.MethodGet, "/manifest.webmanifest", "")
	var manifest struct {
		Display string `json:"display"`
		Start   string `json:"start_url"`
		Icons   []struct {
			Source string `json:"src"`
			Sizes  string `json:"sizes"`
		} `json:"icons"`
	}
	if err := json.Unmarshal([]byte(text), &manifest); status != http.StatusOK || err != nil || header.Get("Content-Type") != "application/manifest+json" {
		t.Fatalf("manifest: status %d, %v, content type %s", status, err, header.Get("Content-Type"))
	}
	if manifest.Display != "standalone" || manifest.Start != "/" || len(manifest.Icons) < 2 {
		t.Errorf("unexpected manifest %+v", manifest)
	}
	for _, icon := range manifest.Icons {
		picture, err := png.DecodeConfig(bytes.NewReader([]byte(v.get(icon.Source))))
		if size, _, _ := strings.Cut(icon.Sizes, "x"); err != nil || size != map[int]string{192: "192", 512: "512"}[picture.Width] || picture.Width != picture.Height {
			t.Errorf("icon %s: %+v, %v", icon.Source, picture, err)
		}
	}
	if _, script, header := v.do(http.MethodGet, "/worker.js", ""); !strings.HasPrefix(header.Get("Content-Type"), "text/javascript") || !strings.Contains(script, "notificationclick") {
		t.Errorf("the worker has the content type %s, or no handler for clicks", header.Get("Content-Type"))
	}
	mustHave(t, v.get("/login"), `rel="manifest"`)
}

// subscription returns the form of a browser that subscribes.
func subscription(t *testing.T, endpoint string) url.Values {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return url.Values{"endpoint": {endpoint}, "key": {encode(key.PublicKey().Bytes())}, "auth": {encode(make([]byte, 16))}}
}

var (
	pushKey = regexp.MustCompile(`data-push="([^"]*)"`)
	device  = regexp.MustCompile(`data-device="([^"]*)"`)
)

// TestOnlyApproversSubscribe checks that signed-in approvers can subscribe. Viewers, clients
// without a session, and other sites cannot. Without a push channel, subscribing fails.
func TestOnlyApproversSubscribe(t *testing.T) {
	o := open(t)
	alice, vera := o.signIn(t, "alice"), o.signIn(t, "vera")
	const endpoint = "https://push.example.com/x"
	if page := alice.get("/"); pushKey.FindStringSubmatch(page)[1] != "" {
		t.Error("a page has a key without a push channel")
	}
	if status, _ := alice.send("/", "/push/subscribe", subscription(t, endpoint)); status != http.StatusNotFound {
		t.Errorf("without a push channel: status %d, want 404", status)
	}
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	o.push.Store(push.New(push.Config{Records: store, Now: time.Now}))
	kept := func() int {
		all, err := store.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "push/", Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	page := alice.get("/")
	if key, err := base64.RawURLEncoding.DecodeString(pushKey.FindStringSubmatch(page)[1]); err != nil || len(key) != 65 || device.FindStringSubmatch(page)[1] == "" {
		t.Errorf("the key: %d bytes, %v", len(key), err)
	}
	if page := vera.get("/"); pushKey.FindStringSubmatch(page)[1] != "" {
		t.Error("the page of a viewer has a key")
	}
	for name, c := range map[string]struct {
		status int
		send   func() (int, string)
	}{
		"a viewer":        {http.StatusForbidden, func() (int, string) { return vera.send("/", "/push/subscribe", subscription(t, endpoint)) }},
		"no session":      {http.StatusUnauthorized, func() (int, string) { return o.newBrowser(t).post("/push/subscribe", subscription(t, endpoint)) }},
		"no form of ours": {http.StatusForbidden, func() (int, string) { return alice.post("/push/subscribe", subscription(t, endpoint)) }},
		"no encryption": {http.StatusBadRequest, func() (int, string) {
			return alice.send("/", "/push/subscribe", subscription(t, "http://push.example.com/x"))
		}},
	} {
		if status, body := c.send(); status != c.status || kept() != 0 {
			t.Errorf("%s: status %d: %s", name, status, body)
		}
	}
	if status, body := alice.send("/", "/push/subscribe", subscription(t, endpoint)); status != http.StatusNoContent || kept() != 1 {
		t.Errorf("subscribe: status %d: %s", status, body)
	}
	if status, body := alice.send("/", "/push/unsubscribe", url.Values{}); status != http.StatusNoContent || kept() != 0 {
		t.Errorf("unsubscribe: status %d: %s", status, body)
	}
}
