package several

import (
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
)

func TestPatterns(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"*", "", true},
		{"a*", "ab", true},
		{"*b", "ab", true},
		{"a*a", "a", false},
		{"a*b*c", "axxbyyc", true},
		{"a*b*c", "axxcyyb", false},
		{"*x*", "axb", true},
		{"a*b*b", "ab", false},
	} {
		if got := matches(tt.pattern, tt.name); got != tt.want {
			t.Errorf("matches(%q, %q) = %t", tt.pattern, tt.name, got)
		}
	}
}

func TestTemplates(t *testing.T) {
	for _, tt := range []struct {
		template, uri string
		want          bool
	}{
		{"a://x", "a://x", false},
		{"a://{x}", "a://b", true},
		{"a://{x}/c", "a://b/c", true},
		{"a://{x}/c", "a://b/d", false},
		{"a://{x}/{y}", "a://b/d", true},
		{"a://{x}/{y}", "a://b", false},
		{"b://{x}", "a://b", false},
		{"a://{x", "a://b", false},
	} {
		if got := fits(tt.template, tt.uri); got != tt.want {
			t.Errorf("fits(%q, %q) = %t", tt.template, tt.uri, got)
		}
	}
}

// Every name that clients see means its own tool, and no tool has two names.
func TestNames(t *testing.T) {
	e := New("/mcp", []ServerConfig{
		{Client: newClient("a"), Rename: map[string]string{"x": "y"}},
		{Client: newClient("b"), Prefix: "b", Include: []string{"get_*", "z"}, Exclude: []string{"get_secret"}, Rename: map[string]string{"z": "zed"}},
	}, nil, time.Second, slog.New(slog.DiscardHandler))
	defer e.Close()
	for public, want := range map[string]string{
		"y": "a x", "x": "", "v": "a v", "c__v": "a c__v", "b__get_x": "b get_x", "b__get_secret": "", "b__put": "", "b__z": "", "zed": "b z", "b__": "", "": "", "b__b__get": "",
	} {
		got := ""
		if s, own, ok := e.Tool(public); ok {
			got = s.Name() + " " + own
		}
		if got != want {
			t.Errorf("%q means %q; want %q", public, got, want)
		}
	}
}

func newClient(name string) *httpclient.Client {
	return httpclient.New(httpclient.Config{Name: name, URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}})
}
