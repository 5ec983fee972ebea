package httpclient

import (
	"net/url"
	"testing"
)

// Names of servers are converted as in [http.Transport].
func TestAddressOf(t *testing.T) {
	for target, want := range map[string]serverAddress{
		"http://example.com/mcp":      {"example.com:80", "example.com", "example.com"},
		"https://example.com:8443":    {"example.com:8443", "example.com", "example.com:8443"},
		"https://bücher.example":      {"xn--bcher-kva.example:443", "xn--bcher-kva.example", "xn--bcher-kva.example"},
		"http://[::1]:80":             {"[::1]:80", "::1", "[::1]:80"},
		"http://[fe80::1%25eth0]:808": {"[fe80::1%eth0]:808", "fe80::1", "[fe80::1]:808"},
	} {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if got := addressOf(u); got != want {
			t.Errorf("%s: %+v; want %+v", target, got, want)
		}
	}
}
