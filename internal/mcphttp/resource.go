package mcphttp

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
)

// Each endpoint is a protected resource of OAuth (RFC 9728): its metadata tells agents where to get
// a token for it.

// wellKnown is the prefix of the paths of metadata.
const wellKnown = "/.well-known/oauth-protected-resource"

// resource returns the endpoint at a path, as tokens for the gate name it.
func (h *Handler) resource(s *identityEpoch, path string) identity.Resource {
	to := identity.Resource{Scopes: h.cfg.Routes[path].Scopes}
	if s.URL != nil {
		to.URL = s.origin(nil) + path
	}
	return to
}

// origin returns the gate's URL for agents: the configured one, or else that of the request.
func (s *identityEpoch) origin(r *http.Request) string {
	switch {
	//mutate:false internal/app.TestResourceMetadata the Host header of a request changes the metadata
	case s.URL != nil:
		return s.URL.Scheme + "://" + s.URL.Host
	case r.TLS != nil:
		return "https://" + r.Host
	default:
		return "http://" + r.Host
	}
}

// trusts reports whether agents can get tokens for the gate.
func (s *identityEpoch) trusts() bool { return s.URL != nil && len(s.Identity.IssuerURLs()) > 0 }

// forwards reports whether agents get tokens for the upstream of an endpoint.
func (s *identityEpoch) forwards(e Endpoint) bool {
	return e.Protection != nil && !s.Identity.ReadsAuthorization()
}

// challenge returns the WWW-Authenticate header for an agent that was not authenticated.
func (c *client) challenge(why *identity.Error) string {
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
	add("scope", strings.Join(c.h.cfg.Routes[c.path].Scopes, " "))
	if c.epoch.trusts() {
		add("resource_metadata", c.epoch.origin(c.r)+wellKnown+c.path)
	}
	return b.String()
}

// metadataParameter matches the parameter of a challenge that names the metadata, and quoted texts,
// in which it has no meaning.
var metadataParameter = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|(?i:\bresource_metadata)\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s,"]*)`)

// challenged returns the WWW-Authenticate headers of the upstream for the agent: the metadata is
// that of the gate, because agents refuse metadata about another resource.
func (c *client) challenged(by []string) []string {
	endpoint := c.h.cfg.Routes[c.path]
	if len(by) == 0 || !c.epoch.forwards(endpoint) {
		return by
	}
	endpoint.Protection.Challenged(by)
	ours := `resource_metadata="` + c.epoch.origin(c.r) + wellKnown + c.path + `"`
	to := make([]string, len(by))
	for i, text := range by {
		to[i] = metadataParameter.ReplaceAllStringFunc(text, func(found string) string {
			if found[0] == '"' {
				return found
			}
			return ours
		})
	}
	return to
}

// metadata is the metadata of an endpoint.
type metadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Methods  []string `json:"bearer_methods_supported"`
}

// metadata returns the metadata of the endpoint at a path. The error is [oauth.ErrNoOAuth] if it
// has none.
func (h *Handler) metadata(r *http.Request, s *identityEpoch, path string) (metadata, error) {
	endpoint := h.cfg.Routes[path]
	m := metadata{Resource: s.origin(r) + path, Servers: s.Identity.IssuerURLs(), Scopes: endpoint.Scopes, Methods: []string{"header"}}
	switch {
	case s.forwards(endpoint):
		of, err := endpoint.Protection.Metadata(r.Context())
		m.Servers, m.Scopes = of.Issuers, of.Scopes
		return m, err
	case s.trusts():
		return m, nil
	default:
		return m, oauth.ErrNoOAuth
	}
}

// servesMetadata answers a request for metadata. An exchange answers all others, refuses those that
// the guard does not allow, and limits the time of those with a body.
func (h *Handler) servesMetadata(w http.ResponseWriter, r *http.Request) bool {
	path, ok := strings.CutPrefix(r.URL.Path, wellKnown)
	if !ok || r.ContentLength != 0 || r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions {
		return false
	}
	s := h.current.Load()
	if _, ok := h.cfg.Routes[path]; !ok || s.Guard.check(r) != nil {
		return false
	}
	m, err := h.metadata(r, s, path)
	if errors.Is(err, oauth.ErrNoOAuth) {
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", "*") // public
	switch {
	case r.Method == http.MethodOptions:
		w.Header().Set("Access-Control-Allow-Methods", "GET")
		w.Header().Set("Access-Control-Allow-Headers", "*")
		w.WriteHeader(http.StatusNoContent)
	case err != nil:
		http.Error(w, "the metadata of the upstream cannot be read at the moment", http.StatusBadGateway)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, m) // the agent may have left
	}
	return true
}
