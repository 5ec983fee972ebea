package identity

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// Challenge returns the WWW-Authenticate header of the response to an agent that was not
// authenticated at a path.
func (i *Authenticator) Challenge(path string, why *Error) string {
	var b strings.Builder
	b.WriteString(`Bearer realm="thoughtgate"`)
	if why.given {
		b.WriteString(`, error="invalid_token", error_description="` + strings.ReplaceAll(why.Reason, `"`, `'`) + `"`)
	}
	if at := i.metadataURL(path); at != "" {
		b.WriteString(`, resource_metadata="` + at + `"`)
	}
	return b.String()
}

// wellKnown is the path prefix of resource metadata (RFC 9728).
const wellKnown = "/.well-known/oauth-protected-resource"

func (i *Authenticator) metadataURL(path string) string {
	if i.cfg.URL == nil || len(i.issuers) == 0 {
		return ""
	}
	return i.cfg.URL.Scheme + "://" + i.cfg.URL.Host + wellKnown + path
}

// Metadata serves the metadata that agents need to get a token for one of the given paths. All
// other requests go to next, and so do requests with a body, because next limits their time.
func (i *Authenticator) Metadata(paths []string, next http.Handler) http.Handler {
	if i.metadataURL("") == "" {
		return next
	}
	var servers []string
	for _, issuer := range i.cfg.Issuers {
		servers = append(servers, issuer.URL)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, wellKnown)
		if !ok || !slices.Contains(paths, path) || r.Method != http.MethodGet && r.Method != http.MethodHead || r.ContentLength != 0 {
			next.ServeHTTP(w, r)
			return
		}
		text, err := json.Marshal(map[string]any{
			"resource":                 i.cfg.URL.Scheme + "://" + i.cfg.URL.Host + path,
			"authorization_servers":    servers,
			"bearer_methods_supported": []string{"header"},
		}, json.Deterministic(true))
		if err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Access-Control-Allow-Origin", "*") // public
		_, _ = w.Write(text)
	})
}
