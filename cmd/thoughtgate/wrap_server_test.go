package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The flags describe a server over HTTP. They take no secrets, because other users can read
// the command line.
func TestRemoteFlags(t *testing.T) {
	t.Setenv("CRM_KEY", "k-1")
	t.Setenv("CRM_URL", "https://crm.example.com/mcp?key=k-2")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("two words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		at      remote
		command []string
		wrong   string // part of the error; empty if the flags are valid
	}{
		{"nothing", remote{}, nil, "give the COMMAND"},
		{"both", remote{url: "https://a/"}, []string{"npx"}, "either --url or a COMMAND"},
		{"header without a URL", remote{headers: []string{"A: b"}}, []string{"npx"}, "need --url"},
		{"client without a URL", remote{client: signInClient{id: "x"}}, []string{"npx"}, "need --url"},
		{"client secret", remote{url: "https://a/", client: signInClient{id: "x", secret: "hush"}}, nil, "as env:VARIABLE"},
		{"client secret without an id", remote{url: "https://a/", client: signInClient{secret: "env:X"}}, nil, "needs --client-id"},
		{"client secret for anybody", remote{url: "https://a/", client: signInClient{id: "x", secret: "env:CRM_KEY"}}, nil, "needs --issuer"},
		{"empty client secret", remote{url: "https://a/", client: signInClient{id: "x", secret: "env:NO_SUCH_VARIABLE"}}, nil, "is empty"},
		{"issuer without a URL", remote{client: signInClient{issuer: "https://a/"}}, []string{"npx"}, "need --url"},
		{"not an HTTP URL", remote{url: "ftp://a/"}, nil, "http or https URL"},
		{"password in the URL", remote{url: "https://me:hush@a/"}, nil, "without user"},
		{"https", remote{url: "https://crm.example.com/mcp", headers: []string{"X-Key: ${CRM_KEY}"}, tokenFile: file}, nil, ""},
		{"from the environment", remote{url: "env:CRM_URL", headers: []string{"X-Key: env:CRM_KEY"}}, nil, ""},
		{"unknown variable of the URL", remote{url: "env:NO_SUCH_VARIABLE"}, nil, "http or https URL"},
		{"unknown variable of a header", remote{url: "https://a/", headers: []string{"A: env:NO_SUCH_VARIABLE"}}, nil, "is not set"},
		{"this machine", remote{url: "http://localhost:3000/mcp", tokenFile: file}, nil, ""},
		{"this machine by address", remote{url: "http://[::1]/mcp", tokenFile: file}, nil, ""},
		{"token over plain HTTP", remote{url: "http://crm.example.com/mcp", tokenFile: file}, nil, "need an https URL"},
		{"header over plain HTTP", remote{url: "http://localhost.example.com/mcp", headers: []string{"A: b"}}, nil, "need an https URL"},
		{"plain HTTP without secrets", remote{url: "http://crm.example.com/mcp"}, nil, ""},
		{"header without a value", remote{url: "https://a/", headers: []string{"A"}}, nil, "NAME: VALUE"},
		{"header of the gate", remote{url: "https://a/", headers: []string{"Mcp-Session-Id: 1"}}, nil, "the gate uses this header itself"},
		{"two lines", remote{url: "https://a/", headers: []string{"A: b\r\nC: d"}}, nil, "on one line"},
		{"unknown variable", remote{url: "https://a/", headers: []string{"A: ${NO_SUCH_VARIABLE}"}}, nil, "is not set"},
		{"no token", remote{url: "https://a/", tokenFile: empty}, nil, "has no token"},
		{"missing file", remote{url: "https://a/", tokenFile: file + "-none"}, nil, "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.at.check(tt.command)
			var w wrapping
			if err == nil {
				err = tt.at.read()
			}
			if err == nil {
				err = w.setServer(tt.at, tt.command)
			}
			switch {
			case tt.wrong == "" && err != nil:
				t.Fatal(err)
			case tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)):
				t.Fatalf("the error is %v; want one with %q", err, tt.wrong)
			case err != nil && (strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "two words")):
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
	var w wrapping
	at := remote{url: "env:CRM_URL", headers: []string{"X-Key: env:CRM_KEY"}, tokenFile: file}
	if err := at.read(); err != nil {
		t.Fatal(err)
	}
	if err := w.setServer(at, nil); err != nil {
		t.Fatal(err)
	}
	if token, err := w.token(); token != "secret-token" || err != nil || w.server.Headers["X-Key"].Reveal() != "k-1" || w.server.URL.RawQuery != "key=k-2" || !strings.HasPrefix(w.name, "crm-example-com-") {
		t.Errorf("token %q (%v), server %+v", token, err, w.server)
	}
}
