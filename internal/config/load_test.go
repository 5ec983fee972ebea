package config_test

import (
	"encoding/pem"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

const goodFile = "version: 1\nupstreams: [{url: http://file/}]\n"

// write creates a file in a new directory.
func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func flag(source, setting string, values ...string) config.Override {
	return config.Override{Source: source, Setting: setting, Values: values}
}

// lines returns the warnings as text.
func lines(warnings []config.Problem) []string {
	var all []string
	for _, w := range warnings {
		all = append(all, w.String())
	}
	return all
}

// All eight combinations of sources for one setting.
func TestFlagBeatsVariableBeatsFile(t *testing.T) {
	const inFile, inVariable, inFlag, byDefault = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:8080"
	for mask := range 8 {
		s := config.Sources{Channels: kinds}
		want := byDefault
		text := goodFile
		if mask&1 != 0 {
			want, text = inFile, goodFile+"listen: "+inFile+"\n"
		}
		if mask&2 != 0 {
			want, s.Environ = inVariable, []string{"THOUGHTGATE_LISTEN=" + inVariable}
		}
		if mask&4 != 0 {
			want, s.Overrides = inFlag, []config.Override{flag("--listen", "listen", inFlag)}
		}
		s.File = write(t, "f.yaml", text)
		cfg, _, err := config.Load(s)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Listen != want {
			t.Errorf("file %t, variable %t, flag %t: listen is %s, want %s", mask&1 != 0, mask&2 != 0, mask&4 != 0, cfg.Listen, want)
		}
	}
}

// Each variable of REQ-CORE-003 5.3, REQ-GOV-001 5.2 and F-002, and REQ-CORE-007 5.2, and each
// other variable, changes its setting.
func TestVariables(t *testing.T) {
	endpoint := func(c config.Config) any { return c.Telemetry.Traces.Endpoint.String() }
	tests := []struct {
		environ string
		get     func(config.Config) any
		want    any
	}{
		{"THOUGHTGATE_LISTEN=127.0.0.1:9", func(c config.Config) any { return c.Listen }, "127.0.0.1:9"},
		{"THOUGHTGATE_OPERATORS_LISTEN=127.0.0.1:9", func(c config.Config) any { return c.Operators.Listen }, "127.0.0.1:9"},
		{"THOUGHTGATE_OPERATOR_TOKEN=twenty-characters-at-least", func(c config.Config) any { return c.Operators.Token.Reveal() }, "twenty-characters-at-least"},
		{"THOUGHTGATE_APPROVAL_TIMEOUT_SECS=300", func(c config.Config) any { return c.Workflows[0].Timeout }, 5 * time.Minute},
		{"THOUGHTGATE_TASK_DEFAULT_TTL_SECS=7", func(c config.Config) any { return c.Tasks.DefaultTTL }, 7 * time.Second},
		{"THOUGHTGATE_TASK_DEFAULT_TTL_MS=7000", func(c config.Config) any { return c.Tasks.DefaultTTL }, 7 * time.Second},
		{"THOUGHTGATE_TASK_MAX_TTL_SECS=7200", func(c config.Config) any { return c.Tasks.MaxTTL }, 2 * time.Hour},
		{"THOUGHTGATE_TASK_MAX_TTL_MS=7200000", func(c config.Config) any { return c.Tasks.MaxTTL }, 2 * time.Hour},
		{"THOUGHTGATE_TASK_CLEANUP_INTERVAL_SECS=7", func(c config.Config) any { return c.Tasks.CleanupInterval }, 7 * time.Second},
		{"THOUGHTGATE_TASK_MAX_PENDING_PER_PRINCIPAL=7", func(c config.Config) any { return c.Tasks.MaxPendingPerOwner }, 7},
		{"THOUGHTGATE_TASK_MAX_PENDING_GLOBAL=7", func(c config.Config) any { return c.Tasks.MaxPending }, 7},
		{"THOUGHTGATE_TASK_MIN_POLL_INTERVAL_SECS=7", func(c config.Config) any { return c.Tasks.MinPollInterval }, 7 * time.Second},
		{"THOUGHTGATE_TASK_MAX_POLL_INTERVAL_SECS=7", func(c config.Config) any { return c.Tasks.MaxPollInterval }, 7 * time.Second},
		{"THOUGHTGATE_TASK_FORCE_REQUIRED=tool1, tool2", func(c config.Config) any { return c.Tasks.ForceRequired }, []string{"tool1", "tool2"}},
		{"THOUGHTGATE_UPSTREAM=http://env/?a=b,c", func(c config.Config) any { return c.Upstreams[0].URL.String() }, "http://env/?a=b,c"},
		{"THOUGHTGATE_UPSTREAM=x=http://env/,y=http://env/?a=b", func(c config.Config) any { return c.Upstreams[1].Name + c.Upstreams[1].URL.RawQuery }, "ya=b"},
		{"THOUGHTGATE_UPSTREAM_CONNECT_TIMEOUT_SECS=7", func(c config.Config) any { return c.Upstreams[0].ConnectTimeout }, 7 * time.Second},
		{"THOUGHTGATE_STORE=memory:", func(c config.Config) any { return c.Store.Reveal() }, "memory:"},
		{"THOUGHTGATE_STORE_KEYS=a:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=", func(c config.Config) any { return c.Storage.Keys.Reveal() }, "a:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="},
		{"THOUGHTGATE_STATE_DIR=/srv", func(c config.Config) any { return c.StateDir }, "/srv"},
		{"XDG_STATE_HOME=/state", func(c config.Config) any { return c.StateDir }, "/state/thoughtgate"},
		{"HOME=/home/me", func(c config.Config) any { return c.StateDir }, "/home/me/.local/state/thoughtgate"},
		{"THOUGHTGATE_SYNC_FORWARD_TIMEOUT_SECS=70", func(c config.Config) any { return c.Limits.CallTimeout }, 70 * time.Second},
		// GOV-004 5.1 and F-006.3
		{"THOUGHTGATE_UPSTREAM_REQUEST_TIMEOUT_SECS=7", func(c config.Config) any { return c.Limits.RequestTimeout }, 7 * time.Second},
		{"THOUGHTGATE_UPSTREAM_CANCEL_TIMEOUT_SECS=7", func(c config.Config) any { return c.Execution.CancelTimeout }, 7 * time.Second},
		{"THOUGHTGATE_LAZY_POLL_TIMEOUT_SECS=7", func(c config.Config) any { return c.Execution.PollTimeout }, 7 * time.Second},
		{"THOUGHTGATE_REQUEST_TIMEOUT_SECS=1m30s", func(c config.Config) any { return c.Limits.RequestTimeout }, 90 * time.Second},
		{"THOUGHTGATE_REQUEST_TIMEOUT_SECS=7", func(c config.Config) any { return c.Limits.RequestTimeout }, 7 * time.Second},
		{"THOUGHTGATE_SSE_CLIENT_IDLE_TIMEOUT_SECS=7", func(c config.Config) any { return c.Notifications.IdleTimeout }, 7 * time.Second},
		{"THOUGHTGATE_SSE_RECONNECT_DELAY_SECS=7", func(c config.Config) any { return c.Notifications.ReconnectDelay }, 7 * time.Second},
		{"THOUGHTGATE_SSE_FORWARDING_ENABLED=false", func(c config.Config) any { return c.Notifications.Forward }, false},
		{"THOUGHTGATE_SSE_RECONNECT_MAX_ATTEMPTS=7", func(c config.Config) any { return c.Notifications.ReconnectAttempts }, 7},
		{"THOUGHTGATE_TOOLS_FETCH_TIMEOUT_MS=1500", func(c config.Config) any { return c.Limits.ToolsFetchTimeout }, 1500 * time.Millisecond},
		{"THOUGHTGATE_TOOLS_MAX_PAGES=7", func(c config.Config) any { return c.Limits.ToolsMaxPages }, 7},
		{"THOUGHTGATE_KEEPALIVE_SECS=7", func(c config.Config) any { return c.Limits.Keepalive }, 7 * time.Second},
		{"THOUGHTGATE_MAX_CONCURRENT_REQUESTS=7", func(c config.Config) any { return c.Limits.MaxConcurrentRequests }, 7},
		{"THOUGHTGATE_MAX_REQUEST_BODY_BYTES=7", func(c config.Config) any { return c.Limits.MaxRequestBody }, int64(7)},
		{"THOUGHTGATE_LOG_LEVEL=debug", func(c config.Config) any { return c.Telemetry.Log.Level.String() }, "DEBUG"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318/", endpoint, "http://c:4318/v1/traces"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/x", endpoint, "http://c:4318/x"},
	}
	tested := map[string]bool{"THOUGHTGATE_CONFIG": true} // TestFileFromVariable
	for _, tt := range tests {
		name, _, _ := strings.Cut(tt.environ, "=")
		tested[name] = true
		t.Run(name, func(t *testing.T) {
			cfg, _, err := config.Load(config.Sources{Channels: kinds, File: write(t, "f.yaml", goodFile), Environ: []string{tt.environ}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, tt.get(cfg)); diff != "" {
				t.Errorf("setting (-want +got):\n%s", diff)
			}
		})
	}
	for _, v := range config.Variables() {
		if !tested[v.Name] {
			t.Errorf("%s is not tested", v.Name)
		}
	}
}

func TestTracesEndpointBeatsSharedEndpoint(t *testing.T) {
	cfg, _, err := config.Load(config.Sources{Channels: kinds, Environ: []string{
		"THOUGHTGATE_UPSTREAM=http://a/",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://traces/",
		"OTEL_EXPORTER_OTLP_ENDPOINT=not looked at",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Telemetry.Traces.Endpoint.String(); got != "http://traces/" {
		t.Errorf("endpoint is %s", got)
	}
}

func TestInvalidVariablesAndFlags(t *testing.T) {
	_, _, err := config.Load(config.Sources{
		Channels: kinds,
		File:     write(t, "f.yaml", "version: 1\nlisten: x\n"),
		Environ: []string{
			"THOUGHTGATE_UPSTREAM=http://user:hunter2@a/",
			"THOUGHTGATE_KEEPALIVE_SECS=soon",
			"THOUGHTGATE_REQUEST_TIMEOUT_SECS=-1",
			"THOUGHTGATE_UPSTREAM_CONNECT_TIMEOUT_SECS=0",
			"THOUGHTGATE_MAX_CONCURRENT_REQUESTS=many",
			"THOUGHTGATE_MAX_REQUEST_BODY_BYTES=", // as if not set
			"THOUGHTGATE_LOG_LEVEL=hunter2",       // ignored, because the flag takes precedence
		},
		Overrides: []config.Override{
			flag("--operators-listen", "operators.listen", "hunter2"),
			flag("--log-level", "telemetry.log.level", "info"),
			flag("--anonymous", "identity.anonymous", "hunter2"),
		},
	})
	if e := new(config.Error); !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	_, afterFile, _ := strings.Cut(err.Error(), "f.yaml:2:9: listen: must be host:port, such as 127.0.0.1:8080, or unix:/PATH\n")
	const timeout = "must be a duration with a unit, such as 30s or 1m30s, of at least 1ms"
	want := []string{
		"--anonymous: identity.anonymous: must be true or false",
		"--operators-listen: operators.listen: must be host:port, such as 127.0.0.1:8080",
		"THOUGHTGATE_KEEPALIVE_SECS: limits.keepalive: " + timeout,
		"THOUGHTGATE_MAX_CONCURRENT_REQUESTS: limits.max_concurrent_requests: must be a whole number from 1 to 10000000",
		"THOUGHTGATE_REQUEST_TIMEOUT_SECS: limits.request_timeout: " + timeout,
		"THOUGHTGATE_UPSTREAM: upstreams[0].url: must be an http or https URL with a host, and without user, password or fragment",
		"THOUGHTGATE_UPSTREAM_CONNECT_TIMEOUT_SECS: upstreams[0].connect_timeout: " + timeout,
	}
	if diff := cmp.Diff(want, strings.Split(afterFile, "\n")); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestUpstreamsOfFlagReplaceThoseOfFile(t *testing.T) {
	file := write(t, "f.yaml", "version: 1\nupstreams:\n  - {name: a, url: http://a/, headers: {X-Api-Key: k}}\n  - {name: b, url: http://b/, path: /b}\n")
	cfg, warnings, err := config.Load(config.Sources{
		Channels:  kinds,
		File:      file,
		Environ:   []string{"THOUGHTGATE_UPSTREAM=http://env/"},
		Overrides: []config.Override{flag("--upstream", "upstreams", "b=http://flag/?x=y", "c=http://flag/")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []config.Upstream
	for _, name := range []string{"b", "c"} {
		u := config.DefaultUpstream()
		u.Name, u.URL, u.Paths = name, mustURL(t, "http://flag/"), []string{"/mcp/" + name}
		want = append(want, u)
	}
	want[0].URL.RawQuery = "x=y"
	if diff := cmp.Diff(want, cfg.Upstreams, revealed); diff != "" {
		t.Errorf("upstreams (-want +got):\n%s", diff)
	}
	wantWarning := []string{"--upstream: upstreams: replaces the upstreams of the file, with all their settings"}
	if diff := cmp.Diff(wantWarning, lines(warnings)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestUpstreamFlagsNeedNames(t *testing.T) {
	_, _, err := config.Load(config.Sources{Channels: kinds, Overrides: []config.Override{flag("--upstream", "upstreams", "http://a/", "b=http://b/")}})
	want := "--upstream: upstreams[0].name: is required when there are several upstreams"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestConfigurationNeedsUpstream(t *testing.T) {
	_, _, err := config.Load(config.Sources{Channels: kinds})
	want := "upstreams: no upstream configured: add `upstreams:`, set THOUGHTGATE_UPSTREAM, or start serve with `--upstream URL`"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Without a prefix, names of an issuer could equal names in the file, so that one agent could
// pose as the other.
func TestWarningOfCollidingIssuerNames(t *testing.T) {
	const jwt = "jwt: [{issuer: 'https://login.example', audiences: [gate]PREFIX}]"
	const token = ", tokens: [{name: ci, hash: '" + someHash + "'}]"
	for identity, want := range map[string]int{jwt: 0, jwt + token: 1, strings.Replace(jwt, "PREFIX", ", prefix: 'corp:'", 1) + token: 0} {
		file := goodFile + "identity: {" + strings.Replace(identity, "PREFIX", "", 1) + "}\n"
		_, warnings, err := config.Load(config.Sources{Channels: kinds, File: write(t, "gate.yaml", file)})
		if err != nil || strings.Count(strings.Join(lines(warnings), "\n"), "identity.jwt[0].prefix: is empty") != want {
			t.Errorf("%s: %v %v", identity, lines(warnings), err)
		}
	}
}

// Every process on this machine can connect from a loopback address, like the proxy.
func TestWarningOfLoopbackProxy(t *testing.T) {
	const warning = "identity.proxy.from[0]: includes a loopback address"
	for from, want := range map[string]bool{
		"127.0.0.1": true, "127.8.9.10": true, "127.0.0.0/8": true, "127.64.0.0/10": true, "::1": true, "::1/128": true,
		"0.0.0.0/0": true, "0.0.0.0/1": true, "64.0.0.0/2": true, "126.0.0.0/7": true, "::/0": true, "::/127": true, "::/64": true,
		"::ffff:127.0.0.1": true, "::ffff:127.0.0.0/104": true, "::ffff:0.0.0.0/96": true, "::ffff:64.0.0.0/98": true,
		"10.0.0.7": false, "128.0.0.0/1": false, "126.0.0.0/8": false, "192.0.2.0/24": false, "fd00::/8": false, "2001:db8::1": false,
		"::ffff:10.0.0.0/104": false, "::2": false,
	} {
		file := goodFile + "identity: {proxy: {from: ['" + from + "'], header: X-User}}\n"
		_, warnings, err := config.Load(config.Sources{Channels: kinds, File: write(t, "gate.yaml", file)})
		if got := strings.Contains(strings.Join(lines(warnings), "\n"), warning); got != want || err != nil {
			t.Errorf("%s: %v %v", from, lines(warnings), err)
		}
	}
}

// Members of a Slack user group may change their names, and so count twice.
func TestWarningOfSlackGroupsWithQuorum(t *testing.T) {
	const warning = "workflows.ops.quorum: a person who changes the e-mail address of their Slack profile may count twice"
	for rest, want := range map[string]bool{
		"quorum: 2, channels: [inbox, chat]": true, "channels: [inbox, chat]": false, "quorum: 2, channels: [inbox]": false,
	} {
		file := goodFile + "operators: {url: 'https://gate.example'}\nworkflows: {ops: {" + rest + "}}\n" +
			"channels: {chat: {slack: {bot_token: xoxb-1, app_token: xapp-1, channel: C1, groups: {S1: staff}}}}\n"
		_, warnings, err := config.Load(config.Sources{Channels: kinds, File: write(t, "gate.yaml", file)})
		if got := strings.Contains(strings.Join(lines(warnings), "\n"), warning); got != want || err != nil {
			t.Errorf("%s: %v %v", rest, lines(warnings), err)
		}
	}
}

// An IPv4 network and its IPv6-mapped form are equal.
func TestMappedNetworksBecomeIPv4(t *testing.T) {
	file := goodFile + "identity: {proxy: {from: ['::ffff:10.0.0.7', '::ffff:10.1.0.0/112'], header: X-User}}\n"
	cfg, _, err := config.Load(config.Sources{Channels: kinds, File: write(t, "gate.yaml", file)})
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32"), netip.MustParsePrefix("10.1.0.0/16")}
	if err != nil || !slices.Equal(cfg.Identity.Proxy.From, want) {
		t.Errorf("%v, %v; want %v", cfg.Identity.Proxy.From, err, want)
	}
}

func TestAnonymousFlagOpensListeners(t *testing.T) {
	s := config.Sources{Channels: kinds, Environ: []string{"THOUGHTGATE_UPSTREAM=http://a/", "THOUGHTGATE_LISTEN=0.0.0.0:1", "THOUGHTGATE_OPERATORS_LISTEN=:2"}}
	_, _, err := config.Load(s)
	if err == nil || strings.Count(err.Error(), "other machines can reach this address") != 1 { // operators always authenticate
		t.Errorf("got %v", err)
	}
	s.Overrides = []config.Override{flag("--anonymous", "identity.anonymous", "true")}
	_, warnings, err := config.Load(s)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].String(), "without TLS") {
		t.Error(warnings, err)
	}
	known := write(t, "known.yaml", goodFile+"identity: {tokens: [{name: a, hash: '"+someHash+"'}]}\n")
	if _, _, err := config.Load(config.Sources{Channels: kinds, File: known, Environ: []string{"THOUGHTGATE_LISTEN=0.0.0.0:1"}}); err != nil {
		t.Errorf("agents authenticate, but the error is: %v", err)
	}
}

func TestFileFromVariable(t *testing.T) {
	environ := []string{"THOUGHTGATE_CONFIG=" + write(t, "env.yaml", strings.Replace(goodFile, "file", "env", 1))}
	cfg, _, err := config.Load(config.Sources{Channels: kinds, Environ: environ})
	if err != nil || cfg.Upstreams[0].URL.Host != "env" {
		t.Errorf("got %v, %v", cfg.Upstreams, err)
	}
	cfg, _, err = config.Load(config.Sources{Channels: kinds, Environ: environ, File: write(t, "f.yaml", goodFile)})
	if err != nil || cfg.Upstreams[0].URL.Host != "file" {
		t.Errorf("got %v, %v", cfg.Upstreams, err)
	}
}

func TestMissingFile(t *testing.T) {
	s := config.Sources{Channels: kinds, File: filepath.Join(t.TempDir(), "none.yaml"), Overrides: []config.Override{flag("--upstream", "upstreams", "http://a/")}}
	if _, _, err := config.Load(s); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestWarnings(t *testing.T) {
	file := write(t, "f.yaml", `version: 1
upstreams:
  - url: https://a/
    headers: { X-Api-Key: "${THOUGHTGATE_FILES_KEY}", X-B: "${THOUGHTGATE_B:-x}" }
    tls: { insecure_skip_verify: true }
`)
	_, warnings, err := config.Load(config.Sources{Channels: kinds, File: file, Environ: []string{
		"THOUGHTGATE_FILES_KEY=hunter2",
		"THOUGHTGATE_B=hunter2",
		"THOUGHTGATE_LISTN=hunter2",
		"THOUGHTGATE_STREAM_CHUNK_SIZE_BYTES=hunter2",
		"THOUGHTGATE_APPROVAL_LIVENESS_CHECK=hunter2",
		"THOUGHTGATE_EMPTY=",
		"OTHER=hunter2",
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		file + ":5:34: upstreams[0].tls.insecure_skip_verify: the upstream's certificate is not verified: anyone on the network path can read and change every call",
		"THOUGHTGATE_APPROVAL_LIVENESS_CHECK: is ignored: use execution.start instead: contact checks that the agent is present, approval does not",
		"THOUGHTGATE_LISTN: is not a ThoughtGate variable and is ignored",
		"THOUGHTGATE_STREAM_CHUNK_SIZE_BYTES: is ignored: results are always streamed in pieces of 64 KiB",
	}
	if diff := cmp.Diff(want, lines(warnings)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestVariablesInsideTheFile(t *testing.T) {
	tests := []struct{ name, written, want string }{
		{"value", "a${A}b", "aXb"},
		{"several", "${A}${A}-${B:-y}", "XX-y"},
		{"default of a set variable", "${A:-y}", "X"},
		{"default of an empty variable", "${E:-y}", "y"},
		{"empty variable", "a${E}b", "ab"},
		{"empty default", "a${B:-}b", "ab"},
		{"default with colons", "${B:-a:-b}", "a:-b"},
		{"dollar signs", "$$A$$$${A}$$", "$A$${A}$"},
		{"value is not expanded again", "${NESTED}", "${A} $A"},
		{"value is not structure", "${STRUCTURE}", "a: {b: [c]} # d"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := valid(t, "version: 1\nupstreams:\n  - url: http://a/\n    headers: {X: '"+tt.written+"'}\n",
				"A=X", "E=", "NESTED=${A} $A", "STRUCTURE=a: {b: [c]} # d")
			if got := cfg.Upstreams[0].Headers["X"].Reveal(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestVariablesTakeTheTypeOfTheSetting(t *testing.T) {
	const file = goodFile + "identity: {anonymous: \"${YES}\"}\nlimits: {max_batch: \"${N}\", keepalive: \"${N}s\", max_header: \"${N}KiB\"}\ntelemetry: {traces: {sample: \"${F}\"}}\n"
	cfg := valid(t, file, "YES=true", "N=7", "F=0.5")
	if !cfg.Identity.Anonymous || cfg.Limits.MaxBatch != 7 || cfg.Limits.Keepalive != 7*time.Second || cfg.Limits.MaxHeader != 7<<10 || cfg.Telemetry.Traces.Sample != 0.5 {
		t.Errorf("got %+v", cfg)
	}
	if got := problems(t, file, "YES=hunter2", "N=hunter2", "F=hunter2"); len(got) != 5 || strings.Contains(strings.Join(got, ""), "hunter2") {
		t.Errorf("got %q", got)
	}
}

func TestKeysAreNotExpanded(t *testing.T) {
	got := problems(t, goodFile+"${KEY}: 127.0.0.1:1\n", "KEY=listen")
	if diff := cmp.Diff([]string{`f.yaml:3:1: "${KEY}": unknown key`}, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestHeaderValueStaysOnOneLine(t *testing.T) {
	got := problems(t, "version: 1\nupstreams:\n  - url: http://a/\n    headers: {X: '${X}'}\n", "X=hunter2\r\nEvil: yes")
	want := []string{"f.yaml:4:18: upstreams[0].headers.X: must be a valid HTTP header value on one line"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestAuthorities(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := write(t, "f.yaml", "version: 1\nupstreams:\n  - url: https://a/\n    tls: {ca_file: ca.pem}\n")
	ca := filepath.Join(filepath.Dir(file), "ca.pem")

	_, _, err := config.Load(config.Sources{Channels: kinds, File: file})
	want := file + ":4:20: upstreams[0].tls.ca_file: cannot be read"
	if err == nil || err.Error() != want {
		t.Errorf("missing: got %v, want %s", err, want)
	}

	if err := os.WriteFile(ca, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = config.Load(config.Sources{Channels: kinds, File: file})
	want = file + ":4:20: upstreams[0].tls.ca_file: has no certificate in PEM form"
	if err == nil || err.Error() != want {
		t.Errorf("not PEM: got %v, want %s", err, want)
	}

	if err := os.WriteFile(ca, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load(config.Sources{Channels: kinds, File: file})
	if err != nil || cfg.Upstreams[0].TLS.CAFile != ca {
		t.Errorf("good: got %v, %v", cfg.Upstreams, err)
	}
}

// LoadStorage requires only the settings of the store, and reports all errors in them.
func TestLoadStorage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("version: 1\nupstreams: [{url: 'https://a/', headers: {X: '${NOT_SET}'}}]\nstore: sqlite:x.db\nstate_dir: /srv\n")
	cfg, _, err := config.LoadStorage(config.Sources{Channels: kinds, File: file, Environ: []string{"THOUGHTGATE_STORE=sqlite:y.db"}})
	if err != nil || cfg.Store.Reveal() != "sqlite:y.db" || cfg.StateDir != "/srv" || cfg.Storage.Timeout != 5*time.Second {
		t.Errorf("%v, %s in %s, %v", err, cfg.Store.Reveal(), cfg.StateDir, cfg.Storage.Timeout)
	}
	if cfg, _, err := config.LoadStorage(config.Sources{Channels: kinds, Environ: []string{"HOME=/home/me"}}); err != nil || cfg.StateDir == "" {
		t.Errorf("without a file: %v, %q", err, cfg.StateDir)
	}
	write("version: 1\nstore: mysql://x\nstorage: {timeout: 5}\nlisten: x\n")
	if _, _, err := config.LoadStorage(config.Sources{Channels: kinds, File: file}); err == nil ||
		!strings.Contains(err.Error(), "store: must be") || !strings.Contains(err.Error(), "storage.timeout: must be") || strings.Contains(err.Error(), "listen") {
		t.Errorf("error %v", err)
	}
}
