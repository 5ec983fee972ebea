package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// A Setting is a node in the tree of everything that can be configured.
//
//sumtype:decl
type Setting interface{ isSetting() }

type (
	// A Leaf is one value. Functions such as [Line] and [Duration] return leaves.
	Leaf struct {
		want  string                 // follows "must be"
		kinds kind                   // how YAML may write it
		set   func(text string) bool // parses and stores a value, and reports whether it is valid
		shape shape

		required bool // an empty text counts as not given
	}
	// A Group is a mapping with known keys.
	Group []Entry
	// A List is a sequence. The function appends an item and returns its setting.
	List func() Setting
	// A Dict is a mapping with keys that users choose. The function adds an item and
	// returns its setting, or a problem with the key.
	Dict func(key string) (to Setting, problem string)
	// A JSON is a mapping of any shape, or a JSON object as text. The function stores it; its
	// argument is nil if there was a problem.
	JSON func(jsontext.Value)
	// A section is a group that is made when the file has it.
	section func() Group
	// A required setting must be given, and not be empty, if its group is given.
	required struct {
		Setting
		why string // follows "is required"
	}
)

// An Entry is a setting and its key.
type Entry struct {
	Key string
	To  Setting
}

func (Leaf) isSetting()    {}
func (Group) isSetting()   {}
func (List) isSetting()    {}
func (Dict) isSetting()    {}
func (JSON) isSetting()    {}
func (section) isSetting() {}

// Required returns a setting that must be given, and not be empty, if its group is given.
func Required(s Setting) Setting {
	if l, ok := s.(Leaf); ok {
		l.required, s = true, l
	}
	return required{s, ""}
}

// listOf returns a list of groups: each item is a copy of initial, with the settings
// that the function returns.
func listOf[T any](p *[]T, initial T, settings func(*T) Group) List {
	return func() Setting {
		*p = append(*p, initial)
		return settings(&(*p)[len(*p)-1])
	}
}

// texts returns a list of texts that satisfy valid.
func texts(p *[]string, want string, valid func(string) bool) List {
	return func() Setting { return Each(p, want, valid) }
}

// find returns the setting with the given key, or nil.
func (g Group) find(key string) Setting {
	i := slices.IndexFunc(g, func(e Entry) bool { return e.Key == key })
	if i < 0 {
		return nil
	}
	return g[i].To
}

// settings returns the tree of all keys of the configuration file. Each [Leaf] writes its value into c.
// The keys of a channel depend on kinds.
func (c *Config) settings(kinds []ChannelKind) Group {
	return Group{
		{"version", required{number(new(int), 1), "; write version: 1"}}, // must be 1; the number is not kept
		{"listen", agentAddress(&c.Listen)},
		{"listen_tls", c.ListenTLS.settings()},
		{"operators", c.Operators.settings()},
		{"upstreams", listOf(&c.Upstreams, DefaultUpstream(), (*Upstream).settings)},
		{"endpoints", listOf(&c.Endpoints, Endpoint{}, (*Endpoint).settings)},
		{"rules", listOf(&c.Rules, policy.Rule{}, ruleSettings)},
		{"default", action(&c.Default.Action)},
		{"mode", mode(&c.Observe)},
		{"visibility", choice(&c.HideDenied, "hide", "show")},
		{"workflows", workflows(&c.Workflows)},
		{"channels", channels(&c.Channels, kinds)},
		{"cedar", c.Cedar.settings()},
		{"pins", c.Pins.settings()},
		{"waiting", Group{
			{"mode", choice(&c.Waiting.TasksOnly, "tasks-only", "any")},
			{"hold", Duration(&c.Waiting.Hold, 0)},
			{"longest", Duration(&c.Waiting.Longest, 0)},
			{"hosts", listOf(&c.Waiting.Hosts, Host{}, (*Host).settings)},
			{"outcomes", choice(&c.Waiting.Errors, "errors", "results")},
			{"keepalive", Duration(&c.Waiting.Keepalive, 100*time.Millisecond)},
		}},
		{"execution", Group{
			{"start", OneOf(&c.Execution.Start, "contact", "approval", "result")},
			{"lease", Duration(&c.Execution.Lease, time.Second)},
			{"poll_timeout", Duration(&c.Execution.PollTimeout, shortestTimeout)},
			{"cancel_timeout", Duration(&c.Execution.CancelTimeout, shortestTimeout)},
		}},
		{"tasks", c.Tasks.settings()},
		{"audit", Group{
			{"retention", Duration(&c.Audit.Retention, 0)},
		}},
		{"record", Group{
			{"arguments", OneOf(&c.Record.Arguments, "digests", "redacted", "full")},
			{"retention", Duration(&c.Record.Retention, 0)},
			{"max_size", size(&c.Record.MaxSize, 0, 1<<50)},
			{"when_full", OneOf(&c.Record.WhenFull, "drop", "wait")},
		}},
		{"store", store(&c.Store)},
		{"storage", c.Storage.settings()},
		{"state_dir", Text(&c.StateDir)},
		{"identity", c.Identity.settings()},
		{"allowed_hosts", List(func() Setting { return host(&c.AllowedHosts) })},
		{"allowed_origins", List(func() Setting { return origin(&c.AllowedOrigins) })},
		{"notifications", c.Notifications.settings()},
		{"limits", c.Limits.settings()},
		{"shutdown", Group{
			{"delay", Duration(&c.Shutdown.Delay, 0)},
			{"drain", Duration(&c.Shutdown.Drain, 0)},
		}},
		{"telemetry", c.Telemetry.settings()},
	}
}

func (h *Host) settings() Group {
	return Group{
		{"name", Required(Line(&h.Name))},
		{"limit", limit(&h.Limit)},
	}
}

func (u *Upstream) settings() Group {
	return Group{
		{"name", name(&u.Name)},
		{"url", URL(&u.URL)},
		{"command", List(func() Setting { return argument(&u.Command) })},
		{"env", variables(&u.Env)},
		{"dir", Text(&u.Dir)},
		{"shared", Bool(&u.Shared)},
		{"max_processes", number(&u.MaxProcesses, 10_000)},
		{"path", mcpPath(&u.Paths)},
		{"headers", headers(&u.Headers)},
		{"forward_authorization", Bool(&u.ForwardAuthorization)},
		{"forward_credential", Bool(&u.ForwardCredential)},
		{"credential_headers", List(func() Setting { return credentialHeader(&u.CredentialHeaders) })},
		{"forward_query", texts(&u.ForwardQuery, "the name of a query parameter", isLineOfText)},
		{"auth", Group{{"oauth", u.OAuth.settings()}}},
		{"scopes", texts(&u.Scopes, "the name of a scope", isScope)},
		{"tls", Group{
			{"ca_file", Text(&u.TLS.CAFile)},
			{"server_name", Text(&u.TLS.ServerName)},
			{"insecure_skip_verify", Bool(&u.TLS.InsecureSkipVerify)},
		}},
		{"connect_timeout", Duration(&u.ConnectTimeout, shortestTimeout)},
		{"max_task_ttl", Duration(&u.MaxTaskTTL, 0)},
		{"translate", Bool(&u.Translate)},
	}
}

func (o *OAuth) settings() Group {
	return Group{
		{"grant", Required(OneOf(&o.Grant, "shared", "principal", "client_credentials", "token_exchange"))},
		{"client_id", Line(&o.ClientID)},
		{"client_secret", Read(&o.ClientSecret, "text", func(s string) (Secret, bool) { return NewSecret(s), true })},
		{"issuer", issuerURL(&o.Issuer)},
		{"scopes", texts(&o.Scopes, "the name of a scope", isLineOfText)},
	}
}

func (t *Tasks) settings() Group {
	return Group{
		{"default_ttl", Duration(&t.DefaultTTL, time.Second)},
		{"max_ttl", Duration(&t.MaxTTL, time.Second)},
		{"max_pending_per_owner", number(&t.MaxPendingPerOwner, 1_000_000)},
		{"max_pending", number(&t.MaxPending, 10_000_000)},
		{"pending_status", OneOf(&t.PendingStatus, "working", "input_required")},
		{"force_required", texts(&t.ForceRequired, wantTool, isLineOfText)},
		{"min_poll_interval", Duration(&t.MinPollInterval, shortestTimeout)},
		{"max_poll_interval", Duration(&t.MaxPollInterval, shortestTimeout)},
		{"cleanup_interval", Duration(&t.CleanupInterval, shortestTimeout)},
		{"variables", Group{
			{"max_total", size(&t.MaxVariables, 1, 4<<20)},
		}},
	}
}

func (n *Notifications) settings() Group {
	return Group{
		{"idle_timeout", Duration(&n.IdleTimeout, shortestTimeout)},
		{"forward", Bool(&n.Forward)},
		{"reconnect_delay", Duration(&n.ReconnectDelay, shortestTimeout)},
		{"reconnect_attempts", upTo(&n.ReconnectAttempts, 1000)},
	}
}

func (s *Storage) settings() Group {
	return Group{
		{"timeout", Duration(&s.Timeout, 10*shortestTimeout)},
		{"connections", upTo(&s.Connections, 10_000)},
		{"max_size", size(&s.MaxSize, 0, 1<<50)},
		{"retention", Duration(&s.Retention, time.Second)},
		{"keys", storeKeys(&s.Keys)},
	}
}

func (l *Limits) settings() Group {
	return Group{
		{"max_concurrent_requests", number(&l.MaxConcurrentRequests, 10_000_000)},
		{"max_streams", number(&l.MaxStreams, 10_000_000)},
		{"max_connections", number(&l.MaxConnections, 10_000_000)},
		{"max_request_body", size(&l.MaxRequestBody, 1, 1<<30)},
		{"max_result", size(&l.MaxResult, 64<<10, 1<<40)},
		{"max_header", size(&l.MaxHeader, 1<<10, 16<<20)},
		{"max_batch", number(&l.MaxBatch, 100_000)},
		{"max_depth", number(&l.MaxDepth, 128)},
		{"request_timeout", Duration(&l.RequestTimeout, shortestTimeout)},
		{"tools_fetch_timeout", Duration(&l.ToolsFetchTimeout, shortestTimeout)},
		{"tools_max_pages", number(&l.ToolsMaxPages, 1_000_000)},
		{"call_timeout", Duration(&l.CallTimeout, shortestTimeout)},
		{"keepalive", Duration(&l.Keepalive, shortestTimeout)},
	}
}

func (t *Telemetry) settings() Group {
	return Group{
		{"log", Group{
			{"level", level(&t.Log.Level)},
			{"format", OneOf(&t.Log.Format, "json", "text")},
		}},
		{"traces", Group{
			{"endpoint", Optional(URL(&t.Traces.Endpoint))},
			{"sample", fraction(&t.Traces.Sample)},
			{"headers", headers(&t.Traces.Headers)},
		}},
	}
}

// reserved are headers of the transport and of MCP, besides those that begin with
// Mcp-. A fixed value would break the exchange.
const reserved = " Accept Accept-Encoding Connection Content-Encoding Content-Length Content-Type Expect Host" +
	" Keep-Alive Last-Event-Id Proxy-Connection Te Trailer Transfer-Encoding Upgrade "

func headers(p *map[string]Secret) Dict {
	return func(key string) (Setting, string) {
		if !headerName(key) {
			return nil, "is not an HTTP header name"
		}
		key, free := freeHeader(key)
		if !free {
			return nil, "cannot be set: the gate uses this header itself"
		}
		if _, twice := (*p)[key]; twice {
			return nil, fmt.Sprintf("is given twice: header names are case-insensitive, see %s", key)
		}
		if *p == nil {
			*p = map[string]Secret{}
		}
		(*p)[key] = Secret{}
		return headerValue(*p, key), ""
	}
}

// variables parses environment variables.
func variables(p *map[string]Secret) Dict {
	return func(key string) (Setting, string) {
		switch {
		case key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r == '=' || r == 0x7f }):
			return nil, "is not the name of an environment variable"
		case strings.HasPrefix(key, "THOUGHTGATE_"):
			return nil, "cannot be set: THOUGHTGATE_ variables are for the gate, not for servers"
		}
		if *p == nil {
			*p = map[string]Secret{}
		}
		(*p)[key] = Secret{}
		set := func(s string) bool {
			(*p)[key] = NewSecret(s)
			return !strings.Contains(s, "\x00")
		}
		return Leaf{want: "text without NUL", kinds: isText | isInteger, set: set}.called("text"), ""
	}
}

// argument parses one argument of a command, which no shell interprets.
func argument(p *[]string) Leaf {
	return read(p, isText|isInteger, "text without NUL", func(s string) ([]string, bool) {
		return append(*p, s), !strings.Contains(s, "\x00")
	}).called("text")
}
