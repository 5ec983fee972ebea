package oauth_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
)

const wellKnown = "/.well-known/oauth-protected-resource"

// A described server answers with the documents at its paths. SELF in them is its URL.
type described struct {
	*httptest.Server

	protection *oauth.Protection
	clock      time.Time
	asked      atomic.Int64
	mu         sync.Mutex // guards the documents
}

func describe(t *testing.T, documents map[string]string) *described {
	t.Helper()
	d := &described{clock: time.Now()}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.asked.Add(1)
		d.mu.Lock()
		text, ok := documents[r.URL.Path]
		d.mu.Unlock()
		text = strings.ReplaceAll(text, "SELF", d.URL)
		switch {
		case !ok:
			http.NotFound(w, r)
		case strings.HasPrefix(text, "http"):
			http.Redirect(w, r, text, http.StatusFound)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
		}
	}))
	t.Cleanup(d.Close)
	now := func() time.Time { return d.clock }
	client := &oauth.Client{Resource: d.URL + "/mcp", HTTP: oauth.HTTPClient(nil, d.URL), Now: now}
	d.protection = oauth.NewProtection(client, slog.New(slog.DiscardHandler))
	return d
}

func TestProtection(t *testing.T) {
	const document = `{"resource":"SELF/mcp","authorization_servers":["https://a.example","https://b.example/x"],"scopes_supported":["read"]}`
	want := oauth.Metadata{Issuers: []string{"https://a.example", "https://b.example/x"}, Scopes: []string{"read"}}
	for name, tt := range map[string]struct {
		documents map[string]string
		challenge string
		want      oauth.Metadata
	}{
		"at the path":          {map[string]string{wellKnown + "/mcp": document}, "", want},
		"at the root":          {map[string]string{wellKnown: document}, "", want},
		"at the challenge":     {map[string]string{"/elsewhere": document}, `Basic realm="x", Bearer error="invalid_token", resource_metadata="SELF/elsewhere"`, want},
		"not at the challenge": {map[string]string{wellKnown + "/mcp": document}, `Bearer resource_metadata="SELF/elsewhere"`, want},
		"about the origin":     {map[string]string{wellKnown: strings.Replace(document, "SELF/mcp", "SELF/", 1)}, "", want},
		"of 2025-03-26": {
			map[string]string{"/.well-known/oauth-authorization-server": `{"issuer":"SELF","authorization_endpoint":"SELF/a","token_endpoint":"SELF/t","response_types_supported":["code"],"code_challenge_methods_supported":["S256"]}`},
			"",
			oauth.Metadata{Issuers: []string{"SELF"}},
		},
		"of 2025-03-26, with fixed endpoints": {nil, `Bearer realm="x"`, oauth.Metadata{Issuers: []string{"SELF"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := describe(t, tt.documents)
			if tt.challenge != "" {
				d.protection.Challenged([]string{strings.ReplaceAll(tt.challenge, "SELF", d.URL)})
			}
			got, err := d.protection.Metadata(t.Context())
			for i := range tt.want.Issuers {
				tt.want.Issuers[i] = strings.ReplaceAll(tt.want.Issuers[i], "SELF", d.URL)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestProtectionRefuses(t *testing.T) {
	about := func(resource, server string) map[string]string {
		return map[string]string{wellKnown + "/mcp": `{"resource":"` + resource + `","authorization_servers":["` + server + `"]}`}
	}
	const good = "https://a.example"
	for name, tt := range map[string]struct {
		documents map[string]string
		want      string
	}{
		"no metadata":        {nil, oauth.ErrNoOAuth.Error()},
		"no server":          {map[string]string{wellKnown: `{"resource":"SELF/mcp"}`}, oauth.ErrNoOAuth.Error()},
		"another resource":   {about("https://other.example/mcp", good), "about another server"},
		"a neighbour":        {about("SELF/mc", good), "about another server"},
		"a script":           {about("SELF/mcp", "javascript:alert(1)"), "no https URL"},
		"http elsewhere":     {about("SELF/mcp", "http://a.example"), "no https URL"},
		"not JSON":           {map[string]string{wellKnown + "/mcp": "<html>"}, "not valid"},
		"huge":               {map[string]string{wellKnown + "/mcp": `{"resource":"` + strings.Repeat("x", 2<<20) + `"}`}, "not valid"},
		"a redirect":         {map[string]string{wellKnown + "/mcp": "http://127.0.0.1:1/"}, "another place"},
		"a redirect forever": {map[string]string{wellKnown + "/mcp": "SELF" + wellKnown + "/mcp"}, "another place"},
	} {
		t.Run(name, func(t *testing.T) {
			d := describe(t, tt.documents)
			if got, err := d.protection.Metadata(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) || got.Issuers != nil {
				t.Errorf("got %v, %v; want %q", got, err, tt.want)
			}
		})
	}
	t.Run("a private address", func(t *testing.T) {
		d := describe(t, nil)
		d.protection.Challenged([]string{`Bearer resource_metadata="https://10.0.0.1/metadata"`})
		if _, err := d.protection.Metadata(t.Context()); err == nil || !strings.Contains(err.Error(), "private address") {
			t.Error(err)
		}
	})
}

// An upstream that refuses an agent may have another authorization server since.
func TestProtectionIsReadAfterChallenge(t *testing.T) {
	documents := make(map[string]string)
	d := describe(t, documents)
	for _, issuer := range []string{"https://a.example", "https://b.example"} {
		d.mu.Lock()
		documents[wellKnown+"/mcp"] = `{"resource":"SELF/mcp","authorization_servers":["` + issuer + `"]}`
		d.mu.Unlock()
		d.protection.Challenged([]string{"Bearer"})
		if got, err := d.protection.Metadata(t.Context()); err != nil || !slices.Equal(got.Issuers, []string{issuer}) {
			t.Errorf("got %v, %v; want %s", got, err, issuer)
		}
	}
}

// Many agents at once, and soon after each other, cost the server one request.
func TestProtectionIsReadOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		documents map[string]string
		again     time.Duration
	}{
		"metadata":    {map[string]string{wellKnown + "/mcp": `{"resource":"SELF/mcp","authorization_servers":["https://a.example"]}`}, 5 * time.Minute},
		"no metadata": {map[string]string{wellKnown + "/mcp": "<html>"}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			d := describe(t, tt.documents)
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() { _, _ = d.protection.Metadata(t.Context()) })
			}
			all.Wait()
			d.clock = d.clock.Add(tt.again - time.Second)
			_, first := d.protection.Metadata(t.Context())
			if n := d.asked.Load(); n != 1 {
				t.Errorf("%d requests", n)
			}
			d.clock = d.clock.Add(2 * time.Second)
			_, second := d.protection.Metadata(t.Context())
			if n := d.asked.Load(); n != 2 || (first == nil) != (second == nil) || errors.Is(first, oauth.ErrNoOAuth) {
				t.Errorf("%d requests; %v, %v", n, first, second)
			}
		})
	}
}
