package identity

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// Challenge returns the WWW-Authenticate header for an agent that was not recognised
// at a path: it says how to be recognised.
func (i *Recogniser) Challenge(path string, why *Error) string {
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

// wellKnown is where RFC 9728 has the metadata of a resource, before its path.
const wellKnown = "/.well-known/oauth-protected-resource"

func (i *Recogniser) metadataURL(path string) string {
	if i.cfg.URL == nil || len(i.issuers) == 0 {
		return ""
	}
	return i.cfg.URL.Scheme + "://" + i.cfg.URL.Host + wellKnown + path
}

// Metadata serves what agents need to know to get a token for one of the given
// paths, and leaves all else to next, requests with a body too: next bounds how
// long they may take.
func (i *Recogniser) Metadata(paths []string, next http.Handler) http.Handler {
	if i.metadataURL("") == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, wellKnown)
		if !ok || !slices.Contains(paths, path) || r.Method != http.MethodGet && r.Method != http.MethodHead || r.ContentLength != 0 {
			next.ServeHTTP(w, r)
			return
		}
		text, err := json.Marshal(map[string]any{
			"resource":                 i.cfg.URL.Scheme + "://" + i.cfg.URL.Host + path,
			"authorization_servers":    i.servers(),
			"bearer_methods_supported": []string{"header"},
		}, json.Deterministic(true))
		if err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Access-Control-Allow-Origin", "*") // it is for everybody to know
		_, _ = w.Write(text)
	})
}

func (i *Recogniser) servers() []string {
	var all []string
	for _, issuer := range i.cfg.Issuers {
		all = append(all, issuer.URL)
	}
	return all
}
