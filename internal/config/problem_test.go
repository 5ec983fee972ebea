package config_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// All invalid lines are reported, in the order of the file.
func TestEveryProblemAtOnce(t *testing.T) {
	got := problems(t, `version: "1"
listen: 8080
ruels: []
store: memory:x
upstreams:
  - url: ftp://files/
    name: Files
    pth: /x
    headers:
      X-One: 1
      X-Two: ${NOT_SET} and ${ALSO_NOT}
      Host: x
      x-two: y
      "a b": z
    tls: true
  - name: b
  - [c]
limits: { max_depth: 129, max_batch: "5", max_request_body: 2GiB, keepalive: 60, max_header: }
limits: {}
telemetry:
  log: { level: INFO, format: xml }
  traces: { sample: 1.5, endpoint: collector:4318 }
storage: { keys: "a:aaaa", connections: -1, timeout: 1ms }
`)
	want := []string{
		`f.yaml:1:10: version: must be 1, not text`,
		`f.yaml:2:9: listen: must be host:port, such as 127.0.0.1:8080, or unix:/PATH, not a number`,
		`f.yaml:3:1: ruels: unknown key; did you mean rules?`,
		`f.yaml:4:8: store: must be memory:, desk:, sqlite:FILE, or a postgres:// or redis:// URL`,
		`f.yaml:6:10: upstreams[0].url: must be an http or https URL with a host, and without user, password or fragment`,
		`f.yaml:7:11: upstreams[0].name: must be at most 63 lower-case letters, digits and hyphens`,
		`f.yaml:8:5: upstreams[0].pth: unknown key; did you mean path?`,
		`f.yaml:10:14: upstreams[0].headers.X-One: must be a valid HTTP header value on one line, not a number`,
		`f.yaml:11:14: upstreams[0].headers.X-Two: environment variable NOT_SET is not set`,
		`f.yaml:11:14: upstreams[0].headers.X-Two: environment variable ALSO_NOT is not set`,
		`f.yaml:12:7: upstreams[0].headers.Host: cannot be set: the gate uses this header itself`,
		`f.yaml:13:7: upstreams[0].headers.x-two: is given twice: header names are case-insensitive, see X-Two`,
		`f.yaml:14:7: upstreams[0].headers."a b": is not an HTTP header name`,
		`f.yaml:15:10: upstreams[0].tls: must be a group of settings, not true or false`,
		`f.yaml:16:5: upstreams[1].url: is required, unless command gives a program to start as the server`,
		`f.yaml:17:5: upstreams[2]: must be a group of settings, not a list`,
		`f.yaml:17:5: upstreams[2].url: is required, unless command gives a program to start as the server`,
		`f.yaml:17:5: upstreams[2].name: is required when there are several upstreams`,
		`f.yaml:18:22: limits.max_depth: must be a whole number from 1 to 128`,
		`f.yaml:18:38: limits.max_batch: must be a whole number from 1 to 100000, not text`,
		`f.yaml:18:61: limits.max_request_body: must be a size from 1 to 1073741824 bytes, such as 65536, 64KiB or 1MiB`,
		`f.yaml:18:78: limits.keepalive: must be a duration with a unit, such as 30s or 1m30s, of at least 1ms, not a number`,
		`f.yaml:18:93: limits.max_header: has no value; give one or remove the key`,
		`f.yaml:19:1: limits: is given twice`,
		`f.yaml:21:17: telemetry.log.level: must be debug, info, warn or error`,
		`f.yaml:21:31: telemetry.log.format: must be json or text`,
		`f.yaml:22:21: telemetry.traces.sample: must be a number from 0 to 1`,
		`f.yaml:22:36: telemetry.traces.endpoint: must be an http or https URL with a host, and without user, password or fragment, or empty`,
		`f.yaml:23:18: storage.keys: must be NAME:BASE64 with 32 bytes, several separated by commas, or empty`,
		`f.yaml:23:41: storage.connections: must be a whole number from 0 to 10000`,
		`f.yaml:23:54: storage.timeout: must be a duration with a unit, such as 30s or 1m30s, of at least 10ms`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// A secret of the gate goes to no authorization server that only the upstream names. The URL of metadata is not secret.
func TestClientNeedsIssuer(t *testing.T) {
	const needed = "upstreams[0].auth.oauth: needs issuer, because client_id is given: otherwise the server chooses who gets client_secret"
	for oauth, want := range map[string]bool{
		"grant: shared": false,
		"grant: shared, client_id: 'https://gate.example/client.json'":                   false,
		"grant: shared, client_id: gate, issuer: 'https://idp.example'":                  false,
		"grant: shared, client_id: gate":                                                 true,
		"grant: shared, client_id: gate, client_secret: s":                               true,
		"grant: shared, client_secret: s":                                                true,
		"grant: shared, client_id: 'https://gate.example/client.json', client_secret: s": true,
		"grant: client_credentials, client_id: gate, client_secret: s":                   true,
		"grant: token_exchange, client_id: gate, client_secret: s":                       true,
	} {
		_, err := parse(t, "version: 1\nupstreams: [{url: https://a/, auth: {oauth: {"+oauth+"}}}]\n")
		if got := err != nil && strings.Contains(err.Error(), needed); got != want {
			t.Errorf("%s: %v", oauth, err)
		}
	}
}

func TestProblems(t *testing.T) {
	const good = "version: 1\nupstreams: [{url: http://a/}]\n"
	const none = "no upstream configured: add `upstreams:`, set THOUGHTGATE_UPSTREAM, or start serve with `--upstream URL`"
	const open = "other machines can reach this address, and agents are not authenticated; use a loopback address, " +
		"configure identity, or accept it with identity.anonymous: true or --anonymous"
	const token = "{name: a, hash: '" + someHash + "'}"
	const dollar = "has a dollar sign that does not begin ${NAME} or ${NAME:-default}; write $$ for a literal dollar sign"
	tests := []struct {
		name, src string
		want      []string
	}{
		{"nothing", "", []string{"1:1: the file is empty"}},
		{"only a comment", "# nothing\n", []string{"1:1: the file is empty"}},
		{"not a mapping", "- a\n", []string{
			"1:1: must be a group of settings, not a list",
			"1:1: upstreams: " + none,
		}},
		{"null version", "version:\nupstreams: [{url: http://a/}]\n", []string{"1:9: version: has no value; give one or remove the key"}},
		{"later version", "version: 2\nupstreams: [{url: http://a/}]\n", []string{"1:10: version: must be 1"}},
		{"no upstream", "version: 1\n", []string{"1:1: upstreams: " + none}},
		{"empty list of upstreams", "version: 1\nupstreams: []\n", []string{"2:12: upstreams: " + none}},
		{"upstreams not a list", "version: 1\nupstreams: {url: http://a/}\n", []string{"2:12: upstreams: must be a list, not a group of settings"}},
		{"syntax", "version: 1\nlisten: [a\n", []string{"2:9: not YAML: sequence end token ']' not found"}},
		{"tab", "version: 1\nlisten:\n\ta: b\n", []string{`3:1: not YAML: found character '\t' that cannot start any token`}},
		{"syntax errors do not quote the file", "version: 1\nlisten: |s3cret\n", []string{"2:9: not YAML: invalid header option"}},
		{"not UTF-8", "version: \xff\n", []string{"1:1: the file is not UTF-8"}},
		{"two documents", good + "---\n" + good, []string{"3:1: a file must contain one YAML document"}},
		{"two documents, one empty", good + "---\n", []string{"3:1: a file must contain one YAML document"}},
		{"same key twice", good + "listen: 127.0.0.1:1\n\"listen\": 127.0.0.1:2\n", []string{"4:1: listen: is given twice"}},
		{"other case", good + "Listen: 127.0.0.1:1\n", []string{"3:1: Listen: unknown key; did you mean listen?"}},
		{"merge key", good + "<<: {listen: \"127.0.0.1:1\"}\n", []string{"3:1: has a key that is not plain text, such as << or a number"}},
		{"number as key", good + "limits: {1: 2}\n", []string{"3:10: limits: has a key that is not plain text, such as << or a number"}},
		{"explicit key", good + "? listen\n: 127.0.0.1:1\n", []string{"3:1: has a key that is not plain text, such as << or a number"}},
		{"a removed key", good + "batch: {approval: item}\n", []string{"3:1: batch: was removed: a batch in which something needs approval is always held as a whole"}},
		{"unprintable key", good + "\"a\\e[31m\": 1\n", []string{`3:1: "a\x1b[31m": unknown key`}},
		{"tag", good + "listen: !!str 127.0.0.1:1\n", []string{"3:9: listen: has a YAML tag, which is not supported"}},
		{"alias of nothing", good + "listen: *x\n", []string{"3:9: listen: refers to an unknown YAML anchor; a value that begins with * needs quotes, as in match: \"*\""}},
		{"alias of itself", good + "limits: &x {max_batch: *x}\n", []string{"3:12: limits.max_batch: must be a whole number from 1 to 100000, not a group of settings"}},
		{"alias is its own anchor", good + "listen: &x *x\n", []string{"3:12: not YAML: unexpected scalar value type"}},
		{"two upstreams without names", "version: 1\nupstreams:\n  - url: http://a/\n  - url: http://b/\n", []string{
			"3:5: upstreams[0].name: is required when there are several upstreams",
			"4:5: upstreams[1].name: is required when there are several upstreams",
		}},
		{"two upstreams with one name", "version: 1\nupstreams:\n  - {url: http://a/, name: x}\n  - {url: http://b/, name: x}\n", []string{
			"4:28: upstreams[1].name: is the same as that of upstreams[0]",
		}},
		{"two upstreams at one path", "version: 1\nupstreams:\n  - {url: http://a/, name: x}\n  - {url: http://b/, name: y, path: /mcp/x}\n", []string{
			"4:37: upstreams[1].path: is the same as that of upstreams[0]",
		}},
		{"tls without https", "version: 1\nupstreams: [{url: http://a/, tls: {server_name: b}}]\n", []string{
			"2:35: upstreams[0].tls: needs an upstream with an https URL",
		}},
		{"command and url", "version: 1\nupstreams: [{url: http://a/, headers: {A: b}, command: [npx]}]\n", []string{
			"2:19: upstreams[0].url: cannot be set with command",
			"2:39: upstreams[0].headers: cannot be set with command",
		}},
		{"env and url", "version: 1\nupstreams: [{url: http://a/, env: {A: b}, shared: true}]\n", []string{
			"2:35: upstreams[0].env: needs command: this upstream has a URL",
			"2:51: upstreams[0].shared: needs command: this upstream has a URL",
		}},
		{"no program", "version: 1\nupstreams: [{command: []}]\n", []string{
			"2:13: upstreams[0].url: is required, unless command gives a program to start as the server",
		}},
		{"empty program", "version: 1\nupstreams: [{command: ['', a]}]\n", []string{
			"2:23: upstreams[0].command: must begin with a program",
		}},
		{"variables of the gate", "version: 1\nupstreams: [{command: [a], env: {THOUGHTGATE_STORE: b, 'A=': c}}]\n", []string{
			"2:34: upstreams[0].env.THOUGHTGATE_STORE: cannot be set: THOUGHTGATE_ variables are for the gate, not for servers",
			"2:56: upstreams[0].env.\"A=\": is not the name of an environment variable",
		}},
		{"settings that were removed", "version: 1\nupstreams: [{command: [a], max_processes_per_client: 2}]\nlimits: {read_timeout: 1s}\nchannels: {x: {webhook: {timeout: 1s}}}\n", []string{
			"2:28: upstreams[0].max_processes_per_client: was removed: one client may have a quarter of max_processes",
			"3:10: limits.read_timeout: was removed: clients have as long as upstreams: limits.request_timeout",
			"4:25: channels.x.webhook.url: is required",
			"4:25: channels.x.webhook.secret: is required",
			"4:26: channels.x.webhook.timeout: was removed: the other system has 10 seconds to answer",
		}},
		{"one address for both listeners", good + "listen: 127.0.0.1:8081\n", []string{"1:1: operators.listen: must differ from listen: both include the same address and port"}},
		{"agents from everywhere", good + "listen: 0.0.0.0:8080\n", []string{"3:9: listen: " + open}},
		{"agents from everywhere, by silence", good + "listen: :8080\n", []string{"3:9: listen: " + open}},
		{"agents from everywhere, by name", good + "listen: gate.example:8080\n", []string{"3:9: listen: " + open}},
		{"a token without a name", good + "identity: {tokens: [{hash: '" + someHash + "'}]}\n", []string{"3:21: identity.tokens[0].name: is required"}},
		{"a token without a hash", good + "operators: {tokens: [{name: a}]}\n", []string{"3:22: operators.tokens[0].hash: is required"}},
		{"a token twice", good + "operators: {tokens: [" + token + "," + token + "]}\n", []string{"3:129: operators.tokens[1].hash: is the same as that of operators.tokens[0]"}},
		{"a role of an agent's", good + "identity: {tokens: [{name: a, role: admin, hash: '" + someHash + "'}]}\n", []string{"3:31: identity.tokens[0].role: unknown key"}},
		{"an issuer without audiences", good + "identity: {jwt: [{issuer: https://a/}]}\n", []string{
			"3:18: identity.jwt[0].audiences: is required without identity.url: the gate would not know which tokens are issued for it",
		}},
		{"an issuer with an empty audience", good + "identity: {jwt: [{issuer: https://a/, audiences: ['']}]}\n", []string{"3:51: identity.jwt[0].audiences[0]: must be text"}},
		{"scopes without JWTs", "version: 1\nupstreams: [{url: https://a/, scopes: [read]}]\n", []string{"2:39: upstreams[0].scopes: needs identity.jwt: only JWTs have scopes"}},
		{"scopes on one line", "version: 1\nupstreams: [{url: https://a/, scopes: [read write]}]\nidentity: {jwt: [{issuer: https://a/, audiences: [x]}]}\n", []string{"2:40: upstreams[0].scopes[0]: must be the name of a scope"}},
		{"an issuer twice", good + "identity: {jwt: [{issuer: https://a/, audiences: [x]}, {issuer: https://a/, audiences: [x], prefix: b}]}\n", []string{
			"3:65: identity.jwt[1].issuer: is given twice",
		}},
		{"two issuers with similar names", good + "identity: {jwt: [{issuer: https://a/, audiences: [x]}, {issuer: https://b/, audiences: [x]}]}\n", []string{
			"3:56: identity.jwt[1].prefix: must differ between issuers: otherwise their names could be confused",
		}},
		{"a proxy from anywhere", good + "identity: {proxy: {header: X-User}}\n", []string{"3:19: identity.proxy.from: is required: otherwise anyone could send the header"}},
		{"a proxy without a header", good + "identity: {proxy: {from: [10.0.0.1]}}\n", []string{"3:19: identity.proxy.header: is required"}},
		{"certificates without authorities", good + "identity: {mtls: {name: dns}}\n", []string{"3:18: identity.mtls.ca_file: is required"}},
		{"half a certificate", good + "listen_tls: {key_file: k}\n", []string{"3:13: listen_tls: needs both cert_file and key_file"}},
		{"a login for all accounts of an issuer", good + "operators: {url: https://g, oidc: {issuer: https://a/, client_id: c}}\n", []string{
			"3:35: operators.oidc: admits everyone who has an account with the issuer; set allowed_domains or roles",
		}},
		{"a login without operators.url", good + "operators: {oidc: {issuer: https://a/, client_id: c, allowed_domains: [x]}}\n", []string{
			"3:19: operators.url: is required with operators.oidc: the identity provider redirects browsers back to it",
		}},
		{"bare dollar sign", good + "listen: $LISTEN\n", []string{"3:9: listen: " + dollar}},
		{"open brace", good + "listen: ${LISTEN\n", []string{"3:9: listen: " + dollar}},
		{"reference in a default", good + "listen: \"${LISTEN:-${OTHER}}\"\n", []string{"3:9: listen: " + dollar}},
		{"name of a variable that is none", good + "listen: ${1}\n", []string{"3:9: listen: " + dollar}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := strings.Split("f.yaml:"+strings.Join(tt.want, "\nf.yaml:"), "\n")
			if diff := cmp.Diff(want, problems(t, tt.src)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValues(t *testing.T) {
	tests := []struct {
		setting   string
		good, bad []string
	}{
		{
			"listen",
			[]string{"127.0.0.1:0", "127.8.0.1:65535", "'[::1]:80'", "localhost:80", "LOCALHOST:80", "'[::ffff:127.0.0.1]:80'"},
			[]string{"127.0.0.1", "127.0.0.1:65536", "127.0.0.1:http", "127.0.0.1:-1", "':'", "'::1:80'", "'a b:80'", "http://127.0.0.1:80", "''", "'\u212Aocalhost:80'"},
		},
		{
			"limits.max_request_body",
			[]string{"1", "1B", "10kB", "10MB", "'16MiB'", "1GiB", "1073741824"},
			[]string{"0", "-1", "1 MiB", "1mib", "1.5MiB", "1e3", "MiB", "'1073741825'", "2GiB", "9223372036854775807GiB", "-9223372036854775808KiB", "true", "[1]", "0x10"},
		},
		{"limits.max_result", []string{"65536", "1024GiB"}, []string{"65535", "1025GiB", "0"}},
		{"storage.max_size", []string{"0", "10GiB", "1048576GiB"}, []string{"-1", "1048577GiB", "full"}},
		{"limits.max_header", []string{"1024", "16MiB"}, []string{"1023", "17MiB"}},
		{"limits.max_depth", []string{"1", "128"}, []string{"0", "129", "1.5", "'5'", "99999999999999999999"}},
		{"limits.request_timeout", []string{"1ms", "24h", "1m30s"}, []string{"0s", "-1s", "999us", "5", "5 s", "1d", "''"}},
		{"shutdown.drain", []string{"0s", "1h"}, []string{"-1ns", "0"}},
		{"identity.anonymous", []string{"true", "false"}, []string{"yes", "'true'", "1", "on"}},
		{"operators.token", []string{"''", "abcdefghijklmnopqrst", "'a:b/c==a:b/c==a:b/c=='"}, []string{"abcdefghijklmnopqrs", "hunter2", "a b", "'a\tb'", "ä", "1"}},
		{"operators.url", []string{"''", "https://a", "http://a:1/"}, []string{"https://a/b", "a", "ftp://a", "https://u@a"}},
		{"operators.session", []string{"1m", "24h"}, []string{"59s", "0s", "12"}},
		{"identity.proxy", []string{"{header: x-user, from: [10.0.0.0/8]}"}, []string{"{header: Authorization, from: [10.0.0.1]}", "{header: X, from: [10.0.0.1/8]}", "{header: 'a b', from: ['::1']}", "{header: X, from: [host]}"}},
		{"identity.jwt", []string{"[{issuer: 'http://[::1]:9/', audiences: [a]}]"}, []string{"[{issuer: 'http://a/', audiences: [a]}]", "[{issuer: https://a, audiences: ['']}]"}},
		{"operators.tokens", []string{"[{name: a, hash: '" + someHash + "', role: viewer}]"}, []string{"[{name: a, hash: secret}]", "[{name: a, hash: '" + someHash + "', role: root}]", "[{name: '', hash: '" + someHash + "'}]"}},
		{"mode", []string{"enforce", "observe"}, []string{"Observe", "off", "''"}},
		{"visibility", []string{"hide", "show"}, []string{"hidden", "true"}},
		{"waiting.mode", []string{"any", "tasks-only"}, []string{"tasks", "[any]"}},
		{"waiting.hold", []string{"0s", "1h"}, []string{"-1s", "50"}},
		{"waiting.longest", []string{"0s", "1h"}, []string{"-1s", "50"}},
		{"waiting.hosts", []string{"[{name: a, limit: none}]", "[{name: 'a*', limit: 1s}]"}, []string{"[{name: a, limit: 999ms}]", "[{name: a, limit: never}]", "[{name: a, limit: 60}]", "[{name: \"a\\tb\"}]"}},
		{"waiting.outcomes", []string{"results", "errors"}, []string{"both", "''"}},
		{"waiting.keepalive", []string{"100ms", "1h"}, []string{"0s", "99ms", "15"}},
		{"execution.start", []string{"contact", "result"}, []string{"now", "''"}},
		{"execution.poll_timeout", []string{"1ms", "1m"}, []string{"0s", "10"}},
		{"execution.cancel_timeout", []string{"1ms", "1m"}, []string{"0s", "5"}},
		{"execution.lease", []string{"1s", "5m"}, []string{"0s", "999ms", "30"}},
		{"tasks.default_ttl", []string{"1s", "24h"}, []string{"0s", "999ms", "600"}},
		{"audit.retention", []string{"0s", "24h", "8760h"}, []string{"-1s", "23h", "30d", "0"}},
		{"tasks.max_pending", []string{"1", "10000000"}, []string{"0", "10000001"}},
		{"tasks.pending_status", []string{"working", "input_required"}, []string{"input-required"}},
		{"tasks.force_required", []string{"[]", "[a, b]"}, []string{"a", "['']", "[\"a\\nb\"]"}},
		{"cedar.timezone", []string{"UTC", "Europe/Berlin"}, []string{"Local", "''", "Mars/Olympus", "../../etc/passwd"}},
		{"telemetry.traces.sample", []string{"0", "1", "0.5", "1.0e-3"}, []string{"-0.1", "1.1", ".nan", ".inf", "'0.5'"}},
		{"telemetry.log.level", []string{"debug", "info", "warn", "error"}, []string{"Info", "warning", "info+1", "''"}},
		{
			"telemetry.traces.endpoint",
			[]string{"''", "http://c:4318/v1/traces", "https://c"},
			[]string{"c:4318", "grpc://c:4317", "http://", "http://u:p@c/", "http://c/#", "http://c:/", "http://c:99999/", "http://a_b c/", "'http://[::1/'"},
		},
		{
			"allowed_hosts",
			[]string{"[]", "[a.example]", "['a.example:80', '[::1]']"},
			[]string{"['*']", "['*.example']", "[http://a]", "[a/b]", "['a:b']", "['a:']", "['']", "[null]", "a", "['u@a']"},
		},
		{
			"allowed_origins",
			[]string{"[]", "['http://a:80']", "[app://x]"},
			[]string{"['*']", "['null']", "[a.example]", "['http://a/']", "['http://a?b']", "['http://u@a']", "['//a']", "[file:///x]"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.setting, func(t *testing.T) {
			outer, inner, nested := strings.Cut(tt.setting, ".")
			file := func(value string) string {
				if nested {
					path := strings.ReplaceAll(inner, ".", ": {")
					value = "{" + path + ": " + value + strings.Repeat("}", strings.Count(tt.setting, "."))
				}
				return fmt.Sprintf("version: 1\nupstreams: [{url: http://a/}]\n%s: %s\n", outer, value)
			}
			for _, v := range tt.good {
				valid(t, file(v))
			}
			for _, v := range tt.bad {
				if got := problems(t, file(v)); len(got) != 1 || !strings.HasPrefix(got[0], "f.yaml:3:") {
					t.Errorf("%s: got %q", v, got)
				}
			}
		})
	}
}

func TestPathsAndNames(t *testing.T) {
	for _, v := range []string{"mcp", "/", "''", "/mcp/", "//mcp", "/a/../b", "/a/./b", "/{x}", "/a?b", "/a%20b", "/a b", "/\u212A", "/a*"} {
		if got := problems(t, "version: 1\nupstreams:\n  - url: http://a/\n    path: \""+v+"\"\n"); len(got) != 1 || !strings.HasPrefix(got[0], "f.yaml:4:11: upstreams[0].path: ") {
			t.Errorf("path %s: got %q", v, got)
		}
	}
	for _, v := range []string{"''", "A", "a_b", "a b", "a.b", "'*'", strings.Repeat("a", 64)} {
		if got := problems(t, "version: 1\nupstreams:\n  - url: http://a/\n    name: "+v+"\n"); len(got) != 1 || !strings.HasPrefix(got[0], "f.yaml:4:11: upstreams[0].name: ") {
			t.Errorf("name %s: got %q", v, got)
		}
	}
}

func TestReservedHeaders(t *testing.T) {
	for _, v := range []string{"host", "MCP-Protocol-Version", "Mcp-Session-Id", "mcp-method", "Content-length", "TE", "Last-Event-ID"} {
		got := problems(t, "version: 1\nupstreams:\n  - url: http://a/\n    headers: {"+v+": x}\n")
		want := []string{"f.yaml:4:15: upstreams[0].headers." + v + ": cannot be set: the gate uses this header itself"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	}
}

func TestFilesBeyondBoundsAreRefused(t *testing.T) {
	const good = "version: 1\nupstreams: [{url: http://a/}]\n"
	tests := []struct{ name, src, want string }{
		{"bytes", good + strings.Repeat("#", config.MaxFile), "the file has more than 1048576 bytes"},
		{"tokens", good + strings.Repeat("a: b\n", config.MaxTokens/3), "the file has more than 50000 YAML tokens"},
		{"brackets", good + "a: " + strings.Repeat("[", config.MaxNesting+1), "values are nested more than 64 deep"},
		{"braces", good + "a: " + strings.Repeat("{a: ", config.MaxNesting+1), "values are nested more than 64 deep"},
		{"dashes", good + "a:\n  " + strings.Repeat("- ", config.MaxNesting+1), "values are nested more than 64 deep"},
		{
			"aliases of many values",
			"version: 1\nupstreams:\n- &x {url: http://a/, headers: {" + strings.Repeat("a: b, ", 1000) + "}}\n" + strings.Repeat("- *x\n", 1000),
			"the file has more than 100000 values, aliases included",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := problems(t, tt.src)
			if all := strings.Join(got, "\n"); !strings.Contains(all, tt.want) {
				t.Errorf("want %q among:\n%.2000s", tt.want, all)
			}
			if len(got) > 1 {
				t.Errorf("the loader went on and found %d problems", len(got))
			}
		})
	}
}

func TestLargeFileIsAccepted(t *testing.T) {
	var b strings.Builder
	b.WriteString("version: 1\nupstreams:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "- {url: 'http://a/%d', name: u%d, headers: {A: b, C: d}, connect_timeout: 1s}\n", i, i)
	}
	if got := len(valid(t, b.String()).Upstreams); got != 1000 {
		t.Errorf("%d upstreams", got)
	}
}

// Agents at a Unix socket are users of this machine, so nothing else can name them.
func TestSocket(t *testing.T) {
	const file = "version: 1\nlisten: unix:/run/gate/agents.sock\nupstreams: [{url: http://a/}]\noperators: {os_users: [ann]}\n"
	cfg, err := parse(t, file)
	if runtime.GOOS != "linux" {
		if err == nil || !strings.Contains(err.Error(), "only on Linux") {
			t.Error(err)
		}
		return
	}
	if err != nil || cfg.Listen != "unix:/run/gate/agents.sock" {
		t.Errorf("%s, %v", cfg.Listen, err)
	}
	for more, setting := range map[string]string{"identity: {anonymous: true}\n": "identity", "listen_tls: {cert_file: a, key_file: b}\n": "listen_tls"} {
		want := setting + ": cannot be set if `listen` is a Unix socket: its agents are users of this machine"
		if got := strings.Join(problems(t, file+more), "\n"); !strings.Contains(got, want) {
			t.Errorf("%q: %q; want %q", more, got, want)
		}
	}
	for _, path := range []string{"unix:agents.sock", "unix:", "unix:/" + strings.Repeat("x", 103)} {
		problems(t, strings.Replace(file, "unix:/run/gate/agents.sock", path, 1))
	}
}
