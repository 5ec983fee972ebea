package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

const threeUpstreams = "version: 1\nupstreams: [{name: a, url: https://a/}, {name: b, url: https://b/}, {name: c, url: https://c/}]\n"

// The first server keeps its names, whatever is added after it.
func TestEndpointDefaults(t *testing.T) {
	cfg := valid(t, threeUpstreams+"endpoints: [{servers: [{upstream: b}, {upstream: a}, {upstream: c, prefix: crm}]}]")
	want := []config.Endpoint{{Path: "/mcp", Servers: []config.EndpointServer{{Upstream: "b"}, {Upstream: "a", Prefix: "a"}, {Upstream: "c", Prefix: "crm"}}}}
	if diff := cmp.Diff(want, cfg.Endpoints); diff != "" {
		t.Error(diff)
	}
	cfg = valid(t, "version: 1\nupstreams: [{url: https://a/}]\nendpoints: [{servers: [{upstream: default}]}]")
	if e := cfg.Endpoints[0]; !e.IsPlain() || e.Path != "/mcp" || cfg.Upstreams[0].Paths[0] != "/mcp/default" {
		t.Errorf("%+v at %v", e, cfg.Upstreams[0].Paths)
	}
}

// Clients of any era can use the servers of an endpoint of several, as far as these have URLs.
func TestEndpointTranslates(t *testing.T) {
	cfg := valid(t, "version: 1\nupstreams: [{name: a, url: https://a/}, {name: b, url: https://b/, translate: false}, {name: c, command: [c]}, {name: d, url: https://d/}]\n"+
		"endpoints: [{path: /mcp, servers: [{upstream: a}, {upstream: b}, {upstream: c}]}, {path: /d, servers: [{upstream: d, prefix: d}]}]")
	for i, want := range []bool{true, false, false, false} {
		if u := cfg.Upstreams[i]; u.Translate != want {
			t.Errorf("upstream %s: %v; want %v", u.Name, u.Translate, want)
		}
	}
}

func TestEndpointProblems(t *testing.T) {
	for _, tt := range []struct{ endpoints, want string }{
		{"[{servers: []}]", "endpoints[0].servers"},
		{"[{servers: [{upstream: d}]}]", `endpoints[0].servers[0].upstream no upstream "d"`},
		{"[{servers: [{upstream: a}, {upstream: a}]}]", "endpoints[0].servers[1].upstream is the same"},
		{"[{servers: [{upstream: a}, {upstream: b, prefix: ''}]}]", "endpoints[0].servers[1].prefix is needed"},
		{"[{servers: [{upstream: a, prefix: x}, {upstream: b, prefix: x}]}]", "endpoints[0].servers[1].prefix is the same"},
		{"[{servers: [{upstream: a, prefix: x_y}]}]", "endpoints[0].servers[0].prefix must be letters"},
		{"[{servers: [{upstream: a, rename: {x: z}}, {upstream: b, rename: {y: z}}]}]", "endpoints[0].servers[1].rename.y is the same name"},
		{"[{servers: [{upstream: a, rename: {x: b__y}}, {upstream: b}]}]", "endpoints[0].servers[0].rename.x begins with the prefix"},
		{"[{search: true, servers: [{upstream: a, rename: {x: call_tool}}]}]", "endpoints[0].servers[0].rename.x is the name of a tool that search offers"},
		{"[{path: /mcp/a, servers: [{upstream: a}]}]", "endpoints[0].path is the path of an upstream"},
		{"[{path: /x, servers: [{upstream: a}]}, {path: /x, servers: [{upstream: b}]}]", "endpoints[1].path is the same"},
		{"[{servers: [{upstream: a}]}, {path: /x, servers: [{upstream: b}]}]", "endpoints[0].path is required"},
	} {
		_, _, err := config.Parse("file", []byte(threeUpstreams+"endpoints: "+tt.endpoints), nil, kinds...)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), ": ", " "), tt.want) {
			t.Errorf("%s: %v\nwant %s", tt.endpoints, err, tt.want)
		}
	}
}
