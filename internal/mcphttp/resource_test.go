package mcphttp_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
)

// Of a challenge of the upstream, only the place of the metadata changes, and only if the upstream
// names one.
func TestChallengeNamesMetadataOfGate(t *testing.T) {
	for name, tt := range map[string]struct{ from, want []string }{
		"none":              {nil, nil},
		"no metadata":       {[]string{`Bearer realm="x", scope="a b"`}, []string{`Bearer realm="x", scope="a b"`}},
		"first":             {[]string{`Bearer resource_metadata="https://up/m", scope="a"`}, []string{`Bearer OURS, scope="a"`}},
		"last":              {[]string{`Bearer error="invalid_token",resource_metadata="https://up/m"`}, []string{`Bearer error="invalid_token",OURS`}},
		"unquoted":          {[]string{`Bearer resource_metadata=https://up/m, scope="a"`}, []string{`Bearer OURS, scope="a"`}},
		"capitals, spaces":  {[]string{`bearer Resource_Metadata = "https://up/m"`}, []string{`bearer OURS`}},
		"quoted characters": {[]string{`Bearer resource_metadata="https://up/\"m,\\", scope="a"`}, []string{`Bearer OURS, scope="a"`}},
		"in a text":         {[]string{`Bearer error_description="see \"resource_metadata=x\"", scope="resource_metadata=y"`}, []string{`Bearer error_description="see \"resource_metadata=x\"", scope="resource_metadata=y"`}},
		"several":           {[]string{`Basic realm="resource_metadata=z", Bearer resource_metadata="https://up/m"`, `DPoP algs="ES256", resource_metadata="https://up/m"`}, []string{`Basic realm="resource_metadata=z", Bearer OURS`, `DPoP algs="ES256", OURS`}},
		"not finished":      {[]string{`Bearer scope="a, resource_metadata="https://up/m`}, []string{`Bearer scope="a, resource_metadata="https://up/m`}},
		"another name":      {[]string{`Bearer x_resource_metadata="https://up/m"`}, []string{`Bearer x_resource_metadata="https://up/m"`}},
	} {
		t.Run(name, func(t *testing.T) {
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Www-Authenticate"] = tt.from
				w.WriteHeader(http.StatusUnauthorized)
			}))
			defer up.Close()
			g := startGate(t, up.URL, func(s settings) {
				s.handler.Protection = oauth.NewProtection(&oauth.Client{Resource: up.URL, HTTP: up.Client(), Now: time.Now}, slog.New(slog.DiscardHandler))
			})
			var want []string
			for _, text := range tt.want {
				want = append(want, strings.ReplaceAll(text, "OURS", `resource_metadata="`+g.URL+`/.well-known/oauth-protected-resource/mcp"`))
			}
			if diff := cmp.Diff(want, g.post(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`).Header["Www-Authenticate"]); diff != "" {
				t.Errorf("challenge (-want +got):\n%s", diff)
			}
		})
	}
}
