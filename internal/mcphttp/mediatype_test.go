package mcphttp_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// mediaTypes has Content-Types, and whether the gate accepts them.
var mediaTypes = []struct {
	given    string
	accepted bool
}{
	{"application/json", true},
	{"Application/JSON", true},
	{"application/json;", true},
	{"application/json; charset=utf-8", true},
	{"application/json;charset=UTF-8", true},
	{"application/json ; Charset = utf-8 ;", true},
	{"application/json;\tcharset=\"utf-8\"", true},
	{"application/json; charset=utf-7", false},
	{"application/json; charset=utf8", false},
	{"application/json; charset=", false},
	{"application/json; charset", false},
	{"application/json; charset=utf-7; charset*=utf-8''utf-8", false},
	{"application/json; charset*=utf-8''utf-8; charset=utf-7", false},
	{"application/json; charset=utf-7; charset*0=utf-8", false},
	{"application/json; charset*=latin1''utf-7", false},
	{"application/json; charset*=utf-8''utf-8", false},
	{"application/json; charset=utf-8; charset=utf-7", false},
	{"application/json; charset=utf-8; charset=utf-8", false},
	{"application/json; charset=\"utf-8\\\"; charset=utf-7\"", false},
	{"application/json; charset=utf-8, text/plain", false},
	{"application/json; boundary=x", false},
	{"application/json, text/plain", false},
	{"application/jsonp", false},
	{"text/plain; application/json", false},
	{"", false},
}

// The upstream must not decode a body differently. Ambiguous types are refused, and all others
// are normalized. In UTF-7, the message of the test calls delete_x.
func TestMediaTypeOfRequests(t *testing.T) {
	const message = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_x","_":"+ACIALAAi-name+ACIAOgAi-delete_x"}}`
	var mu sync.Mutex
	var seen []string
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, strings.Join(r.Header["Content-Type"], "|"))
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	g := startGate(t, up, nil)
	for _, tt := range mediaTypes {
		seen = nil
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/mcp", strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", tt.given)
		resp, err := g.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		mu.Lock()
		switch {
		case tt.accepted && (len(seen) != 1 || seen[0] != "application/json"):
			t.Errorf("%s: status %d; the upstream got %q; want application/json", tt.given, resp.StatusCode, seen)
		case !tt.accepted && (len(seen) > 0 || resp.StatusCode != http.StatusUnsupportedMediaType):
			t.Errorf("%s: status %d; the upstream got %q; want a refusal", tt.given, resp.StatusCode, seen)
		}
		mu.Unlock()
	}
}
