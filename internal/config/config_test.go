package config_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// revealed compares secrets by their text, and ignores the positions of settings. kinds are
// the kinds of channels that the gate has.
var kinds = app.ChannelKinds()

var revealed = cmp.Options{
	cmp.Comparer(func(a, b config.Secret) bool { return a.Reveal() == b.Reveal() }),
	cmpopts.IgnoreFields(config.Config{}, "Origins", "Fingerprint"),
	cmpopts.EquateComparable(netip.Prefix{}),
}

func parse(t *testing.T, src string, environ ...string) (config.Config, error) {
	t.Helper()
	cfg, _, err := config.Parse("f.yaml", []byte(src), environ, kinds...)
	return cfg, err
}

// valid returns the configuration in src, which must be valid.
func valid(t *testing.T, src string, environ ...string) config.Config {
	t.Helper()
	cfg, err := parse(t, src, environ...)
	if err != nil {
		t.Fatalf("unexpected error:\n%v\nin:\n%s", err, src)
	}
	return cfg
}

// problems returns the lines of the error, which src must cause.
func problems(t *testing.T, src string, environ ...string) []string {
	t.Helper()
	cfg, err := parse(t, src, environ...)
	if e := new(config.Error); !errors.As(err, &e) || len(e.Problems) == 0 {
		t.Fatalf("got %v, want an Error", err)
	}
	if diff := cmp.Diff(config.Config{}, cfg, revealed); diff != "" {
		t.Errorf("an invalid configuration is returned:\n%s", diff)
	}
	return strings.Split(err.Error(), "\n")
}

func mustURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestSmallestFileGetsAllDefaults(t *testing.T) {
	got := valid(t, "version: 1\nupstreams: [{url: http://127.0.0.1:9000/mcp}]\n")
	want := config.Default()
	u := config.DefaultUpstream()
	u.Name, u.URL, u.Paths = "default", mustURL(t, "http://127.0.0.1:9000/mcp"), []string{"/mcp", "/mcp/v1"}
	want.Upstreams = []config.Upstream{u}
	w := config.DefaultWorkflow()
	w.Name, w.Channels = "default", []string{"inbox"}
	w.Grants = policy.Grants{} // without grants.longest, standing approvals are disabled
	want.Workflows = []policy.Workflow{w}
	if diff := cmp.Diff(want, got, revealed); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

// The defaults that users and the requirements rely on (REQ-CORE-003 5.3, REQ-GOV-001 5.2 and
// F-002, REQ-CORE-007 5.2).
func TestDefaults(t *testing.T) {
	want := config.Config{
		Listen: "127.0.0.1:8080",
		Operators: config.Operators{
			Listen: "127.0.0.1:8081", Session: 12 * time.Hour,
			OIDC: config.OIDC{NameClaim: "email", GroupsClaim: "groups"},
		},
		Identity:  config.Identity{MTLS: config.MTLS{Name: "cn"}},
		Policy:    config.Policy{HideDenied: true, Cedar: config.Cedar{Timezone: "UTC"}, Pins: config.Pins{Unpinned: "hold"}},
		Waiting:   config.Waiting{Hold: 50 * time.Second, Longest: 270 * time.Second, Keepalive: 15 * time.Second},
		Execution: config.Execution{Start: "contact", Lease: 30 * time.Second, PollTimeout: 10 * time.Second, CancelTimeout: 5 * time.Second},
		Tasks: config.Tasks{
			DefaultTTL: 600 * time.Second, MaxTTL: 86400 * time.Second, MaxPendingPerOwner: 10, MaxPending: 1000, PendingStatus: "working",
			MinPollInterval: 2 * time.Second, MaxPollInterval: 30 * time.Second, CleanupInterval: 60 * time.Second,
			MaxVariables: 65536,
		},
		Notifications: config.Notifications{IdleTimeout: 5 * time.Minute, Forward: true, ReconnectDelay: 5 * time.Second, ReconnectAttempts: 3},
		Limits: config.Limits{
			MaxConcurrentRequests: 10000, MaxStreams: 10000, MaxConnections: 25000, MaxRequestBody: 1048576, MaxResult: 1073741824, MaxHeader: 65536, MaxBatch: 50, MaxDepth: 128,
			RequestTimeout: 30 * time.Second, CallTimeout: time.Minute, ToolsFetchTimeout: 30 * time.Second, ToolsMaxPages: 100, Keepalive: time.Minute,
		},
		Store:     config.NewSecret("sqlite:thoughtgate.db"),
		Storage:   config.Storage{Timeout: 5 * time.Second, Retention: time.Hour},
		Record:    config.Record{Arguments: "digests", Retention: 720 * time.Hour, MaxSize: 256 << 20, WhenFull: "drop"},
		Shutdown:  config.Shutdown{Delay: 0, Drain: 25 * time.Second},
		Telemetry: config.Telemetry{Log: config.Log{Level: slog.LevelInfo, Format: "json"}, Traces: config.Traces{Sample: 1}},
	}
	if diff := cmp.Diff(want, config.Default(), revealed); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	wantUpstream := config.Upstream{
		ForwardAuthorization: true, ConnectTimeout: 5 * time.Second, MaxProcesses: 64,
	}
	if diff := cmp.Diff(wantUpstream, config.DefaultUpstream(), revealed); diff != "" {
		t.Errorf("upstream defaults (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(policy.Workflow{Quorum: 1, Timeout: 10 * time.Minute, QuietHours: policy.QuietHours{Timezone: "UTC"}, Grants: policy.Grants{Uses: 10, Reach: "tool"}}, config.DefaultWorkflow()); diff != "" {
		t.Errorf("workflow defaults (-want +got):\n%s", diff)
	}
}

func TestEverySettingIsRead(t *testing.T) {
	got := valid(t, `
version: 1
listen: "[::1]:0"
listen_tls: { cert_file: ca.pem, key_file: key.pem }
operators:
  listen: localhost:1
  token: "${KEY}"
  url: https://ops.example/
  tls: { cert_file: ca.pem, key_file: /key.pem }
  session: 3h
  tokens: [{ name: alice, hash: "sha256:00000000000000000000000000000000000000000000000000000000000000AB", groups: [oncall], role: admin }]
  oidc:
    issuer: https://idp.example/x
    client_id: gate
    client_secret: "${KEY}"
    scopes: [groups]
    name_claim: upn
    groups_claim: realm.groups
    allowed_domains: [example.com]
    roles: { viewer: ["group:v"], rejecter: [bot], approver: [bob], admin: [carol] }
upstreams:
  - name: files-2
    url: https://Files.example:8443/mcp?tenant=a%20b
    path: /a/B_~.c-
    headers: { x-api-key: "${KEY}", Authorization: 'Bearer $$5' }
    forward_authorization: false
    forward_credential: true
    credential_headers: [authorization, X-Tenant-Key]
    forward_query: [tenant, "a b"]
    scopes: [files:read, files.write]
    tls: { ca_file: ca.pem, server_name: files, insecure_skip_verify: true }
    connect_timeout: 1s
    max_task_ttl: 2h
  - name: tracker
    url: https://tracker.example/mcp
    auth: { oauth: { grant: shared, client_id: gate, client_secret: "${KEY}", issuer: https://idp.example/, scopes: [read] } }
  - name: files-3
    command: [npx, -y, "@x/server", 3]
    env: { KEY: "${KEY}", COUNT: 3 }
    dir: work
    shared: false
    max_processes: 5
rules:
  - { match: "a*", action: approve, workflow: ops, reason: r 1, upstream: "f*", kind: tool, principals: [bob, "group:g*"], mode: observe }
  - { match: b, action: policy, mode: enforce, kind: "" }
default: deny
mode: observe
visibility: show
workflows:
  ops: { approvers: [alice, "group:oncall"], quorum: 2, self_approval: true, timeout: 15m, validity: 5m, redact: [arguments.password, arguments.a.b, arguments.*.c], channels: [inbox, hook], ask_host: true, remind: [50%, 90%], escalate: { after: 75%, workflow: finance-2 }, quiet_hours: { from: '22:00', to: '07:30', timezone: Europe/Vienna }, grants: { longest: 4h, uses: 7, reach: read_only } }
  finance-2: { approvers: [mona] }
channels: { hook: { webhook: { url: https://h/, secret: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz } } }
cedar: { policies: [p/*.cedar, /q.cedar], timezone: Europe/Berlin }
pins: { file: thoughtgate.lock, unpinned: deny }
waiting: { mode: tasks-only, hold: 0s, longest: 3m, hosts: [{ name: "mine*", limit: 90s }, { name: patient, limit: none }], outcomes: errors, keepalive: 16s }
execution: { start: approval, lease: 2s, poll_timeout: 3s, cancel_timeout: 4s }
tasks:
  default_ttl: 2m
  max_ttl: 3h
  max_pending_per_owner: 4
  max_pending: 5
  pending_status: input_required
  force_required: [delete_user, "transfer funds"]
  min_poll_interval: 6s
  max_poll_interval: 7s
  cleanup_interval: 8s
  variables: { max_total: 1KiB }
audit: { retention: 4h }
record: { arguments: redacted, retention: 168h, max_size: 64MiB, when_full: wait }
notifications: { idle_timeout: 1m, forward: false, reconnect_delay: 4s, reconnect_attempts: 0 }
identity:
  anonymous: true
  url: https://gate.example
  tokens: [{ name: ci, hash: "sha256:00000000000000000000000000000000000000000000000000000000000000cd", groups: [bots], owner: alice }]
  jwt:
    - issuer: https://idp.example/
      jwks_uri: http://127.0.0.1:9/keys
      audiences: [a, b]
      id_claim: email
      groups_claim: roles
      prefix: "corp:"
  mtls: { ca_file: ca.pem, name: uri }
  proxy: { from: [10.0.0.7, "fd00::/8"], header: x-forwarded-user, groups_header: X-Groups }
allowed_hosts: [Gate.example, "gate.example:8080", "[::1]:3"]
allowed_origins: [https://App.example, vscode-webview://x1]
limits:
  max_concurrent_requests: 3
  max_streams: 13
  max_connections: 14
  max_request_body: 4
  max_result: 2GiB
  max_header: 5kB
  max_batch: 6
  max_depth: 7
  request_timeout: 8s
  call_timeout: 12s
  tools_fetch_timeout: 13s
  tools_max_pages: 14
  keepalive: 11s
store: 'memory:'
storage: { timeout: 1s, connections: 9, max_size: 3GiB, retention: 48h, keys: 'a:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=' }
state_dir: /var/lib/gate
shutdown: { delay: 12s, drain: 0s }
telemetry:
  log: { level: error, format: text }
  traces: { endpoint: "http://c:4318/v1/traces", sample: 0.25, headers: { X-Scope: s } }
`, "KEY=k=1-and-more-characters")
	want := config.Config{
		Listen:    "[::1]:0",
		ListenTLS: config.Certificate{CertFile: "ca.pem", KeyFile: "key.pem"},
		Operators: config.Operators{
			Listen: "localhost:1", Token: config.NewSecret("k=1-and-more-characters"), URL: mustURL(t, "https://ops.example/"),
			TLS: config.Certificate{CertFile: "ca.pem", KeyFile: "/key.pem"}, Session: 3 * time.Hour,
			Tokens: []config.Token{{Name: "alice", Hash: "sha256:" + strings.Repeat("0", 62) + "ab", Groups: []string{"oncall"}, Role: "admin"}},
			OIDC: config.OIDC{
				Issuer: "https://idp.example/x", ClientID: "gate", ClientSecret: config.NewSecret("k=1-and-more-characters"), Scopes: []string{"groups"},
				NameClaim: "upn", GroupsClaim: "realm.groups", AllowedDomains: []string{"example.com"},
				Roles: config.Roles{Viewer: []string{"group:v"}, Rejecter: []string{"bot"}, Approver: []string{"bob"}, Admin: []string{"carol"}},
			},
		},
		Policy: config.Policy{
			Rules: []policy.Rule{
				{Match: "a*", Action: "approve", Workflow: "ops", Reason: "r 1", Upstream: "f*", Kind: "tool", Principals: []string{"bob", "group:g*"}, Mode: policy.Observe},
				{Match: "b", Action: "policy", Mode: policy.Enforce},
			},
			Default: policy.Rule{Action: "deny"},
			Observe: true,
			Workflows: []policy.Workflow{
				{
					Name: "ops", Approvers: []string{"alice", "group:oncall"}, Quorum: 2, SelfApproval: true, Timeout: 15 * time.Minute, Validity: 5 * time.Minute,
					Redact: []string{"arguments.password", "arguments.a.b", "arguments.*.c"}, Channels: []string{"inbox", "hook"}, AskHost: true,
					Remind: []float64{0.5, 0.9}, Escalate: policy.Escalation{After: 0.75, Workflow: "finance-2", Approvers: []string{"mona"}, Channels: []string{"inbox"}},
					QuietHours: policy.QuietHours{From: 22 * time.Hour, To: 7*time.Hour + 30*time.Minute, Timezone: "Europe/Vienna"},
					Grants:     policy.Grants{Longest: 4 * time.Hour, Uses: 7, Reach: "read_only"},
				},
				{Name: "finance-2", Approvers: []string{"mona"}, Quorum: 1, Timeout: 10 * time.Minute, Channels: []string{"inbox"}, QuietHours: policy.QuietHours{Timezone: "UTC"}},
			},
			Cedar: config.Cedar{Policies: []string{"p/*.cedar", "/q.cedar"}, Timezone: "Europe/Berlin"},
			Pins:  config.Pins{File: "thoughtgate.lock", Unpinned: "deny"},
		},
		Channels: []config.Channel{{Name: "hook", Kind: "webhook", Settings: &webhook.Settings{
			URL: &url.URL{Scheme: "https", Host: "h", Path: "/"}, Secret: config.NewSecret("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"),
		}}},
		Waiting: config.Waiting{
			TasksOnly: true, Longest: 3 * time.Minute, Keepalive: 16 * time.Second, Errors: true,
			Hosts: []config.Host{{Name: "mine*", Limit: 90 * time.Second}, {Name: "patient"}},
		},
		Execution: config.Execution{Start: "approval", Lease: 2 * time.Second, PollTimeout: 3 * time.Second, CancelTimeout: 4 * time.Second},
		Tasks: config.Tasks{
			DefaultTTL: 2 * time.Minute, MaxTTL: 3 * time.Hour, MaxPendingPerOwner: 4, MaxPending: 5, PendingStatus: "input_required",
			ForceRequired: []string{"delete_user", "transfer funds"}, MinPollInterval: 6 * time.Second, MaxPollInterval: 7 * time.Second, CleanupInterval: 8 * time.Second,
			MaxVariables: 1024,
		},
		Audit:  config.Audit{Retention: 4 * time.Hour},
		Record: config.Record{Arguments: "redacted", Retention: 168 * time.Hour, MaxSize: 64 << 20, WhenFull: "wait"},
		Upstreams: []config.Upstream{{
			Name:              "files-2",
			URL:               mustURL(t, "https://Files.example:8443/mcp?tenant=a%20b"),
			Paths:             []string{"/a/B_~.c-"},
			Headers:           map[string]config.Secret{"X-Api-Key": config.NewSecret("k=1-and-more-characters"), "Authorization": config.NewSecret("Bearer $5")},
			ForwardCredential: true,
			CredentialHeaders: []string{"Authorization", "X-Tenant-Key"},
			ForwardQuery:      []string{"tenant", "a b"},
			Scopes:            []string{"files:read", "files.write"},
			TLS:               config.TLS{CAFile: "ca.pem", ServerName: "files", InsecureSkipVerify: true},
			ConnectTimeout:    time.Second,
			MaxTaskTTL:        2 * time.Hour,
			MaxProcesses:      64,
		}, {
			Name:           "tracker",
			URL:            mustURL(t, "https://tracker.example/mcp"),
			OAuth:          config.OAuth{Grant: "shared", ClientID: "gate", ClientSecret: config.NewSecret("k=1-and-more-characters"), Issuer: "https://idp.example/", Scopes: []string{"read"}},
			Paths:          []string{"/mcp/tracker"},
			ConnectTimeout: 5 * time.Second,
			MaxProcesses:   64,
		}, {
			Name:           "files-3",
			Command:        []string{"npx", "-y", "@x/server", "3"},
			Env:            map[string]config.Secret{"KEY": config.NewSecret("k=1-and-more-characters"), "COUNT": config.NewSecret("3")},
			Dir:            "work",
			Paths:          []string{"/mcp/files-3"},
			ConnectTimeout: 5 * time.Second,
			MaxProcesses:   5,
		}},
		Notifications: config.Notifications{IdleTimeout: time.Minute, ReconnectDelay: 4 * time.Second},
		Identity: config.Identity{
			Anonymous: true, URL: mustURL(t, "https://gate.example"),
			Tokens: []config.Token{{Name: "ci", Hash: "sha256:" + strings.Repeat("0", 62) + "cd", Groups: []string{"bots"}, Owner: "alice"}},
			JWT: []config.JWT{{
				Issuer: "https://idp.example/", JWKSURI: "http://127.0.0.1:9/keys", Audiences: []string{"a", "b"},
				IDClaim: "email", GroupsClaim: "roles", Prefix: "corp:",
			}},
			MTLS: config.MTLS{CAFile: "ca.pem", Name: "uri"},
			Proxy: config.Proxy{
				From:   []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32"), netip.MustParsePrefix("fd00::/8")},
				Header: "X-Forwarded-User", GroupsHeader: "X-Groups",
			},
		},
		AllowedHosts:   []string{"gate.example", "gate.example:8080", "[::1]:3"},
		AllowedOrigins: []string{"https://app.example", "vscode-webview://x1"},
		Limits: config.Limits{
			MaxConcurrentRequests: 3, MaxStreams: 13, MaxConnections: 14,
			MaxRequestBody: 4, MaxResult: 2147483648, MaxHeader: 5000, MaxBatch: 6, MaxDepth: 7,
			RequestTimeout: 8 * time.Second, CallTimeout: 12 * time.Second, ToolsFetchTimeout: 13 * time.Second, ToolsMaxPages: 14, Keepalive: 11 * time.Second,
		},
		Store: config.NewSecret("memory:"), StateDir: "/var/lib/gate",
		Storage:  config.Storage{Timeout: time.Second, Connections: 9, MaxSize: 3221225472, Retention: 48 * time.Hour, Keys: config.NewSecret("a:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")},
		Shutdown: config.Shutdown{Delay: 12 * time.Second}, OwnVariables: []string{"KEY"},
		Telemetry: config.Telemetry{
			Log: config.Log{Level: slog.LevelError, Format: "text"},
			Traces: config.Traces{
				Endpoint: mustURL(t, "http://c:4318/v1/traces"), Sample: 0.25,
				Headers: map[string]config.Secret{"X-Scope": config.NewSecret("s")},
			},
		},
	}
	if diff := cmp.Diff(want, got, revealed); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestNamesAndPathsOfUpstreams(t *testing.T) {
	tests := []struct{ name, upstreams, want string }{
		{"one is at the usual places", "[{url: http://a/}]", "default /mcp /mcp/v1"},
		{"one may have a name", "[{url: http://a/, name: x}]", "x /mcp /mcp/v1"},
		{"one may have a path", "[{url: http://a/, path: /x}]", "default /x"},
		{"several are distinguished by name", "[{url: http://a/, name: x}, {url: http://a/, name: y}]", "x /mcp/x, y /mcp/y"},
		{"several may have a path", "[{url: http://a/, name: x, path: /mcp}, {url: http://a/, name: y}]", "x /mcp, y /mcp/y"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, u := range valid(t, "version: 1\nupstreams: "+tt.upstreams).Upstreams {
				got = append(got, strings.Join(append([]string{u.Name}, u.Paths...), " "))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("upstreams (-want +got):\n%s", diff)
			}
		})
	}
}

func TestYAMLForms(t *testing.T) {
	const upstream = "\nupstreams:\n  - url: http://a/\n"
	tests := []struct{ name, src string }{
		{"document marker", "---\nversion: 1" + upstream},
		{"document end", "version: 1" + upstream + "...\n"},
		{"byte order mark", "\uFEFFversion: 1" + upstream},
		{"carriage returns", strings.ReplaceAll("version: 1"+upstream, "\n", "\r\n")},
		{"quoted keys", `{"version": 1, "upstreams": [{"url": "http://a/"}]}`},
		{"alias", "version: 1\nupstreams:\n  - url: &u http://a/\ntelemetry: {traces: {endpoint: *u}}\n"},
		{"block text", "version: 1\nupstreams:\n  - url: |-\n      http://a/\n"},
		{"comments", "# c\nversion: 1 # c\n# c" + upstream + "# c"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := valid(t, tt.src).Upstreams[0].URL.String(); got != "http://a/" {
				t.Errorf("url is %q", got)
			}
		})
	}
}

// Two spellings of one address are the same address, and a wildcard address includes each
// address.
func TestListenersDoNotCollide(t *testing.T) {
	for addresses, collide := range map[[2]string]bool{
		{"127.0.0.1:9380", "localhost:9380"}:       true,
		{"LocalHost:9380", "127.0.0.1:09380"}:      true,
		{"127.0.0.1:9380", "[::ffff:7f00:1]:9380"}: true,
		{"[::1]:9380", "[0:0::1]:9380"}:            true,
		{"gate.example:9380", "Gate.Example:9380"}: true,
		{"0.0.0.0:9380", "127.0.0.1:9380"}:         true,
		{":9380", "[::1]:9380"}:                    true,
		{"[::]:9380", "0.0.0.0:9380"}:              true,
		{"127.0.0.1:9380", "127.0.0.1:9381"}:       false,
		{"127.0.0.1:9380", "127.0.0.2:9380"}:       false,
		{"127.0.0.1:9380", "[::1]:9380"}:           false,
		{"127.0.0.1:0", "localhost:0"}:             false,
		{":0", "0.0.0.0:0"}:                        false,
		{"gate.example:9380", "ops.example:9380"}:  false,
	} {
		for _, text := range []string{
			fmt.Sprintf("listen: '%s'\noperators: {listen: '%s'}\n", addresses[0], addresses[1]),
			fmt.Sprintf("listen: '%s'\noperators: {listen: '%s'}\n", addresses[1], addresses[0]),
		} {
			_, err := parse(t, goodFile+"identity: {anonymous: true}\n"+text)
			if got := err != nil && strings.Contains(err.Error(), "operators.listen: must differ from listen"); got != collide || err != nil && !got {
				t.Errorf("%s: %v; want a collision: %t", text, err, collide)
			}
		}
	}
	if _, err := parse(t, goodFile+"listen: 127.0.0.1:8081\nstore: 'desk:'\n"); err != nil { // the desk has its own address
		t.Error(err)
	}
}
