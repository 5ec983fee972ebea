package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// FuzzParse looks for a file that crashes the loader, that makes an error contain the value of
// a variable, or that is accepted without the required settings.
func FuzzParse(f *testing.F) {
	f.Add([]byte("version: 1\nupstreams:\n  - {url: http://a/, name: x, headers: {X-Api-Key: \"${SECRET}\"}}\n"))
	f.Add([]byte("version: 1\nlisten: ${SECRET}\nupstreams: [{url: 'http://${SECRET}@a/', tls: {ca_file: x}}, *a]\n"))
	f.Add([]byte("limits: &a {max_batch: \"${SECRET}\", keepalive: 1s, max_header: 1KiB}\nshutdown: *a\n"))
	f.Add([]byte("rules: [{match: a, action: approve, principals: ['${SECRET}']}]\ndefault: deny\nworkflows: {w: {quorum: 2, approvers: [a]}}\n"))
	f.Add([]byte("default: policy\ncedar: {policies: ['${SECRET}/*'], timezone: '${SECRET}'}\noperators: {token: '${SECRET}'}\n"))
	f.Add([]byte("a: |+2\n  b\n--- !t\n? [x]\n: {y: z}\n...\n"))
	f.Add([]byte("\"a\\x41\": 'b''c'\n<<: [*d]\ne: >-\n f\n"))
	const secret = "eiGh7ieph4Ae"
	f.Fuzz(func(t *testing.T, src []byte) {
		if strings.Contains(string(src), secret) {
			return
		}
		cfg, warnings, err := config.Parse("f.yaml", src, []string{"SECRET=" + secret}, kinds...)
		for _, w := range warnings {
			if strings.Contains(w.String(), secret) {
				t.Errorf("secret in warning %s", w)
			}
		}
		if err != nil {
			checkError(t, err, secret)
			return
		}
		if len(cfg.Upstreams) == 0 || cfg.Listen == cfg.Operators.Listen && !strings.HasSuffix(cfg.Listen, ":0") {
			t.Errorf("accepted: %+v", cfg)
		}
		if len(cfg.Workflows) == 0 || len(cfg.Rules) > 0 && cfg.Default.Action == "" {
			t.Errorf("accepted: %+v", cfg)
		}
		for i, r := range cfg.Rules {
			_, limited := cfg.Origins[fmt.Sprintf("rules[%d].principals", i)]
			if r.Match == "" || r.Action == "" || limited && len(r.Principals) == 0 {
				t.Errorf("accepted rule %+v", r)
			}
		}
		for _, u := range cfg.Upstreams {
			if u.URL == nil || u.Name == "" || len(u.Paths) == 0 {
				t.Errorf("accepted upstream %+v", u)
			}
		}
	})
}

func checkError(t *testing.T, err error, secret string) {
	t.Helper()
	e := new(config.Error)
	if !errors.As(err, &e) || len(e.Problems) == 0 {
		t.Fatalf("error without problems: %v", err)
	}
	for i, p := range e.Problems {
		line := p.String()
		if strings.Contains(line, secret) || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("unprintable problem: %q", line)
		}
		if p.At.Source != "f.yaml" || p.At.Line < 1 || p.At.Column < 1 {
			t.Errorf("no position: %+v", p)
		}
		if i > 0 && p.At.Line < e.Problems[i-1].At.Line {
			t.Errorf("out of order: %s", line)
		}
	}
}
