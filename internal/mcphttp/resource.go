package mcphttp

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
)

// Each endpoint is a protected resource of OAuth (RFC 9728): its metadata tells agents where to get
// a token for it.

// wellKnown is the prefix of the paths of metadata.
const wellKnown = "/.well-known/oauth-protected-resource"

// resource returns the endpoint at a path, as tokens of agents name it.
func (h *Handler) resource(s *identityEpoch, path string) identity.Resource {
	to := identity.Resource{Scopes: h.cfg.Routes[path].Scopes}
	if s.URL != nil {
		to.URL = s.URL.Scheme + "://" + s.URL.Host + path
	}
	return to
}

// hasMetadata reports whether agents can get a token of an issuer that the gate trusts.
func (s *identityEpoch) hasMetadata() bool { return s.URL != nil && len(s.Identity.IssuerURLs()) > 0 }

// challenge returns the WWW-Authenticate header for an agent that was not authenticated at the
// endpoint at a path.
func (h *Handler) challenge(s *identityEpoch, path string, why *identity.Error) string {
	var b strings.Builder
	b.WriteString(`Bearer realm="thoughtgate"`)
	add := func(name, value string) {
		if value != "" {
			b.WriteString(", " + name + `="` + strings.ReplaceAll(value, `"`, `'`) + `"`)
		}
	}
	if code := why.Code(); code != "" {
		add("error", code)
		add("error_description", why.Reason)
	}
	add("scope", strings.Join(h.cfg.Routes[path].Scopes, " "))
	if s.hasMetadata() {
		add("resource_metadata", s.URL.Scheme+"://"+s.URL.Host+wellKnown+path)
	}
	return b.String()
}

// metadata is the metadata of an endpoint.
type metadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Methods  []string `json:"bearer_methods_supported"`
}

// servesMetadata answers a request for metadata. An exchange answers all others, refuses those that
// the guard does not allow, and limits the time of those with a body.
func (h *Handler) servesMetadata(w http.ResponseWriter, r *http.Request) bool {
	path, ok := strings.CutPrefix(r.URL.Path, wellKnown)
	if !ok || r.ContentLength != 0 {
		return false
	}
	s := h.current.Load()
	endpoint, ok := h.cfg.Routes[path]
	if !ok || !s.hasMetadata() || s.Guard.check(r) != nil {
		return false
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", "*") // public
	switch r.Method {
	case http.MethodOptions:
		header.Set("Access-Control-Allow-Methods", "GET")
		header.Set("Access-Control-Allow-Headers", "*")
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet, http.MethodHead:
		h.writeMetadata(w, metadata{Resource: h.resource(s, path).URL, Servers: s.Identity.IssuerURLs(), Scopes: endpoint.Scopes, Methods: []string{"header"}})
	default:
		return false
	}
	return true
}

func (h *Handler) writeMetadata(w http.ResponseWriter, m metadata) {
	text, err := json.Marshal(m)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}
