package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// A wrap has one agent at a pipe, and its own server. So settings of agents over HTTP and of
// upstreams have no effect, even invalid ones.
func TestWrapIgnoresWhatItDoesNotUse(t *testing.T) {
	program := config.DefaultUpstream()
	program.Name, program.Command = "files", []string{"server"}
	remote, err := config.RemoteServer("https://crm.example.com/mcp", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	remote.Name = "crm"
	for _, server := range []config.Upstream{program, remote} {
		for name, text := range map[string]string{
			"a URL":               "upstreams: [{url: 'https://a/', headers: {X: '${NOT_SET}'}}]",
			"a command":           "upstreams: [{command: [x], env: {A: b}, shared: true}]",
			"several":             "upstreams: [{name: a, url: 'https://a/'}, {name: a, url: 'https://b/'}]",
			"a misspelled key":    "upstreams: [{ulr: 'https://a/'}]",
			"any address":         "listen: 0.0.0.0:8080",
			"no address":          "listen: nowhere",
			"missing files":       "listen_tls: {cert_file: none.pem, key_file: none.pem}",
			"half a pair":         "listen_tls: {cert_file: none.pem}",
			"an identity":         "identity: {mtls: {ca_file: none.pem}, tokens: [{name: ann}]}",
			"the inbox at 8080":   "operators: {listen: '127.0.0.1:8080'}",
			"start at approval":   "execution: {start: approval}\nupstreams: [{url: 'https://a/'}]",
			"a URL in a variable": "",
		} {
			file := write(t, "f.yaml", "version: 1\n"+text+"\n")
			cfg, warnings, err := config.Load(config.Sources{Channels: kinds, File: file, Server: &server, Environ: []string{"HOME=/home/me", "THOUGHTGATE_UPSTREAM=https://b/"}})
			if err != nil || len(warnings) > 0 {
				t.Errorf("%s before %s: %v, %q", name, server.Name, err, lines(warnings))
				continue
			}
			if len(cfg.Upstreams) != 1 || cfg.Upstreams[0].Name != server.Name || cfg.Identity.Recognises() || cfg.ListenTLS.CertFile != "" {
				t.Errorf("%s before %s: got %+v", name, server.Name, cfg)
			}
		}
	}
}

// All other settings are checked as for any gate.
func TestWrapChecksOtherSettings(t *testing.T) {
	server := config.DefaultUpstream()
	server.Name, server.Command = "files", []string{"server"}
	file := write(t, "f.yaml", "version: 1\nlisten-tls: {}\nlisteners: x\noperators: {listen: x}\ndefault: perhaps\n")
	_, _, err := config.Load(config.Sources{Channels: kinds, File: file, Server: &server})
	if err == nil {
		t.Fatal("an invalid file is accepted")
	}
	for _, want := range []string{"listen-tls: unknown key", "listeners: unknown key", "operators.listen: must be", "default: must be"} {
		if !slices.ContainsFunc(strings.Split(err.Error(), "\n"), func(line string) bool { return strings.Contains(line, " "+want) }) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

// The server of a wrap gets the gate's environment without the gate's secrets. A variable that
// the file gives to other servers is not removed, because it may be meant for this one.
func TestServerGetsNoSecretsOfTheGate(t *testing.T) {
	program := config.DefaultUpstream()
	program.Name, program.Command = "crm", []string{"server"}
	file := write(t, "f.yaml", "version: 1\noperators: {token: '${GATE_TOKEN}-01234567890123456789'}\nstate_dir: ${HOME}/gate\n"+
		"upstreams: [{name: crm, url: 'https://a/', headers: {X: '${CRM_TOKEN}'}}]\n")
	environ := []string{"HOME=/home/me", "GATE_TOKEN=a", "CRM_TOKEN=b", "THOUGHTGATE_OPERATORS_URL=http://c", "OTHER=d"}
	cfg, _, err := config.Load(config.Sources{Channels: kinds, File: file, Server: &program, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cfg.WrappedEnviron(environ), []string{"HOME=/home/me", "CRM_TOKEN=b", "OTHER=d"}; !slices.Equal(got, want) {
		t.Errorf("the environment of the server is %q; want %q", got, want)
	}
}
