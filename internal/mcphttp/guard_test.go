package mcphttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
)

// A page with a no-referrer policy sends no origin, but the browser marks its requests.
func TestGuardAcceptsOwnPages(t *testing.T) {
	tests := map[string]struct {
		pages  bool
		origin string
		site   string // the Sec-Fetch-Site header
		status int
	}{
		"own page":                       {true, "null", "same-origin", http.StatusOK},
		"own page by its public name":    {true, "https://gate.example.com", "same-origin", http.StatusOK},
		"another site":                   {true, "https://evil.example.com", "cross-site", http.StatusForbidden},
		"another site without a name":    {true, "null", "cross-site", http.StatusForbidden},
		"a sibling":                      {true, "https://other.example.com", "same-site", http.StatusForbidden},
		"no word of the browser":         {true, "null", "", http.StatusForbidden},
		"no browser":                     {true, "", "", http.StatusOK},
		"a listener that has no pages":   {false, "null", "same-origin", http.StatusForbidden},
		"a listener without, other site": {false, "https://evil.example.com", "cross-site", http.StatusForbidden},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := mcphttp.Guard{Pages: tt.pages}.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://gate.example.com/approvals/x/approve", http.NoBody)
			if tt.origin != "" {
				r.Header.Set("Origin", tt.origin)
			}
			if tt.site != "" {
				r.Header.Set("Sec-Fetch-Site", tt.site)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.status {
				t.Errorf("status %d; want %d", w.Code, tt.status)
			}
		})
	}
}
