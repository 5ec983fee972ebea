package config

import (
	"fmt"
	"net/textproto"
	"strings"
	"time"
)

// A setting is a node in the tree of everything that can be configured.
//
//sumtype:decl
type setting interface{ isSetting() }

type (
	// A leaf is one value.
	leaf struct {
		want  string                 // what it must be, to follow "must be"
		kinds kind                   // how YAML may write it
		set   func(text string) bool // stores the text's value, or reports false if it is not what is wanted
		shape shape
	}
	// A group is a mapping with known keys.
	group []entry
	// A list is a sequence; item makes room for one more.
	list struct{ item func() setting }
	// A required setting must be given wherever its group is.
	required struct{ setting }
	// A dict is a mapping whose keys are the user's. It makes room for a key,
	// or says what is wrong with the key.
	dict struct {
		item func(key string) (setting, string)
	}
	// An either is a group, or a single value that stands for it.
	either struct {
		short leaf
		long  group
	}
)

type entry struct {
	key string
	to  setting
}

func (leaf) isSetting()   {}
func (group) isSetting()  {}
func (list) isSetting()   {}
func (dict) isSetting()   {}
func (either) isSetting() {}

// find returns the setting with the given key, or nil.
func (g group) find(key string) setting {
	for _, e := range g {
		if e.key != key {
			continue
		}
		if r, ok := e.to.(required); ok {
			return r.setting
		}
		return e.to
	}
	return nil
}

// settings returns the tree whose leaves store into c. It is the one list of
// all keys.
func (c *Config) settings() group {
	return group{
		{"version", required{number(new(int), 1)}},
		{"listen", address(&c.Listen)},
		{"listen_tls", c.ListenTLS.settings()},
		{"operators", c.Operators.settings()},
		{"upstreams", list{func() setting {
			c.Upstreams = append(c.Upstreams, DefaultUpstream())
			return c.Upstreams[len(c.Upstreams)-1].settings()
		}}},
		{"rules", list{func() setting {
			c.Rules = append(c.Rules, Rule{})
			return c.Rules[len(c.Rules)-1].settings()
		}}},
		{"default", either{action(&c.Default.Action), c.Default.outcome()}},
		{"mode", mode(&c.Observe)},
		{"visibility", choice(&c.HideDenied, "hide", "show")},
		{"batch", group{{"approval", choice(&c.WholeBatches, "whole", "item")}}},
		{"drafts", boolean(&c.Drafts)},
		{"workflows", workflows(&c.Workflows)},
		{"channels", channels(&c.Channels)},
		{"cedar", c.Cedar.settings()},
		{"waiting", group{
			{"mode", choice(&c.Waiting.TasksOnly, "tasks-only", "any")},
			{"hold", duration(&c.Waiting.Hold, 0)},
			{"longest", duration(&c.Waiting.Longest, 0)},
			{"hosts", list{func() setting {
				c.Waiting.Hosts = append(c.Waiting.Hosts, Host{})
				return c.Waiting.Hosts[len(c.Waiting.Hosts)-1].settings()
			}}},
			{"outcomes", choice(&c.Waiting.Errors, "errors", "results")},
			{"pending", choice(&c.Waiting.PendingOK, "ok", "error")},
			{"request_meta", list{func() setting { return metaName(&c.Waiting.RequestMeta) }}},
			{"keepalive", duration(&c.Waiting.Keepalive, 100*time.Millisecond)},
		}},
		{"execution", group{
			{"start", oneOf(&c.Execution.Start, "contact", "approval", "result")},
			{"timeout", duration(&c.Execution.Timeout, shortest)},
			{"lease", duration(&c.Execution.Lease, time.Second)},
			{"poll_timeout", duration(&c.Execution.PollTimeout, shortest)},
			{"cancel_timeout", duration(&c.Execution.CancelTimeout, shortest)},
		}},
		{"tasks", c.Tasks.settings()},
		{"audit", group{
			{"retention", duration(&c.Audit.Retention, 0)},
		}},
		{"store", store(&c.Store)},
		{"storage", c.Storage.settings()},
		{"state_dir", text(&c.StateDir)},
		{"identity", c.Identity.settings()},
		{"allowed_hosts", list{func() setting { return host(&c.AllowedHosts) }}},
		{"allowed_origins", list{func() setting { return origin(&c.AllowedOrigins) }}},
		{"notifications", c.Notifications.settings()},
		{"limits", c.Limits.settings()},
		{"shutdown", group{
			{"delay", duration(&c.Shutdown.Delay, 0)},
			{"drain", duration(&c.Shutdown.Drain, 0)},
		}},
		{"telemetry", c.Telemetry.settings()},
	}
}

func (h *Host) settings() group {
	return group{
		{"name", required{line(&h.Name)}},
		{"limit", limit(&h.Limit)},
	}
}

func (u *Upstream) settings() group {
	return group{
		{"name", name(&u.Name)},
		{"url", endpoint(&u.URL)},
		{"command", list{func() setting { return argument(&u.Command) }}},
		{"env", variables(&u.Env)},
		{"dir", text(&u.Dir)},
		{"shared", boolean(&u.Shared)},
		{"max_processes", number(&u.MaxProcesses, 10_000)},
		{"max_processes_per_client", upTo(&u.MaxProcessesPerClient, 10_000)},
		{"path", mcpPath(&u.Paths)},
		{"headers", headers(&u.Headers)},
		{"forward_authorization", boolean(&u.ForwardAuthorization)},
		{"forward_credential", boolean(&u.ForwardCredential)},
		{"credential_headers", list{func() setting { return credentialHeader(&u.CredentialHeaders) }}},
		{"forward_query", list{func() setting { return queryName(&u.ForwardQuery) }}},
		{"tls", group{
			{"ca_file", text(&u.TLS.CAFile)},
			{"server_name", text(&u.TLS.ServerName)},
			{"insecure_skip_verify", boolean(&u.TLS.InsecureSkipVerify)},
		}},
		{"connect_timeout", duration(&u.ConnectTimeout, shortest)},
		{"max_task_ttl", duration(&u.MaxTaskTTL, 0)},
		{"idle_timeout", duration(&u.IdleTimeout, shortest)},
		{"max_idle_connections", number(&u.MaxIdleConnections, 1_000_000)},
	}
}

func (t *Tasks) settings() group {
	return group{
		{"default_ttl", duration(&t.DefaultTTL, time.Second)},
		{"max_ttl", duration(&t.MaxTTL, time.Second)},
		{"max_pending_per_owner", number(&t.MaxPendingPerOwner, 1_000_000)},
		{"max_pending", number(&t.MaxPending, 10_000_000)},
		{"max_pending_per_address", upTo(&t.MaxPendingPerAddress, 10_000_000)},
		{"max_pending_unknown", number(&t.MaxPendingUnknown, 10_000_000)},
		{"pending_status", oneOf(&t.PendingStatus, "working", "input_required")},
		{"force_required", list{func() setting { return tool(&t.ForceRequired) }}},
		{"min_poll_interval", duration(&t.MinPollInterval, shortest)},
		{"max_poll_interval", duration(&t.MaxPollInterval, shortest)},
		{"cleanup_interval", duration(&t.CleanupInterval, shortest)},
		{"variables", group{
			{"max_count", number(&t.Variables.MaxCount, 10_000)},
			{"max_name", size(&t.Variables.MaxName, 16, 1<<10)},
			{"max_value", size(&t.Variables.MaxValue, 1, 1<<20)},
			{"max_total", size(&t.Variables.MaxTotal, 1, 4<<20)},
		}},
	}
}

func (n *Notifications) settings() group {
	return group{
		{"idle_timeout", duration(&n.IdleTimeout, shortest)},
		{"max_per_owner", number(&n.MaxPerOwner, 1_000_000)},
		{"forward", boolean(&n.Forward)},
		{"reconnect_delay", duration(&n.ReconnectDelay, shortest)},
		{"reconnect_attempts", upTo(&n.ReconnectAttempts, 1000)},
	}
}

func (s *Storage) settings() group {
	return group{
		{"timeout", duration(&s.Timeout, 10*shortest)},
		{"connections", upTo(&s.Connections, 10_000)},
		{"max_size", size(&s.MaxSize, 0, 1<<50)},
		{"retention", duration(&s.Retention, time.Second)},
		{"keys", storeKeys(&s.Keys)},
	}
}

func (l *Limits) settings() group {
	return group{
		{"max_concurrent_requests", number(&l.MaxConcurrentRequests, 10_000_000)},
		{"max_streams", number(&l.MaxStreams, 10_000_000)},
		{"max_connections", number(&l.MaxConnections, 10_000_000)},
		{"max_requests_per_client", upTo(&l.MaxRequestsPerClient, 10_000_000)},
		{"max_streams_per_client", upTo(&l.MaxStreamsPerClient, 10_000_000)},
		{"max_connections_per_client", upTo(&l.MaxConnectionsPerClient, 10_000_000)},
		{"max_request_body", size(&l.MaxRequestBody, 1, 1<<30)},
		{"max_body_memory", size(&l.MaxBodyMemory, 1<<20, 1<<40)},
		{"max_result", size(&l.MaxResult, 64<<10, 1<<40)},
		{"max_header", size(&l.MaxHeader, 1<<10, 16<<20)},
		{"max_line", size(&l.MaxLine, 64<<10, 1<<30)},
		{"max_batch", number(&l.MaxBatch, 100_000)},
		{"max_depth", number(&l.MaxDepth, 128)},
		{"request_timeout", duration(&l.RequestTimeout, shortest)},
		{"tools_fetch_timeout", duration(&l.ToolsFetchTimeout, shortest)},
		{"tools_max_pages", number(&l.ToolsMaxPages, 1_000_000)},
		{"call_timeout", duration(&l.CallTimeout, shortest)},
		{"read_timeout", duration(&l.ReadTimeout, shortest)},
		{"write_timeout", duration(&l.WriteTimeout, shortest)},
		{"keepalive", duration(&l.Keepalive, shortest)},
	}
}

func (t *Telemetry) settings() group {
	return group{
		{"log", group{
			{"level", level(&t.Log.Level)},
			{"format", oneOf(&t.Log.Format, "json", "text")},
		}},
		{"traces", group{
			{"endpoint", optional(endpoint(&t.Traces.Endpoint))},
			{"sample", fraction(&t.Traces.Sample)},
			{"headers", headers(&t.Traces.Headers)},
		}},
	}
}

// reserved are the headers that, beside those that begin with Mcp-, belong to
// the transport or to the conversation between client and upstream: a fixed
// value would break either.
const reserved = " Accept Accept-Encoding Connection Content-Encoding Content-Length Content-Type Expect Host" +
	" Keep-Alive Last-Event-Id Proxy-Connection Te Trailer Transfer-Encoding Upgrade "

func headers(p *map[string]Secret) dict {
	return dict{func(key string) (setting, string) {
		if !headerName(key) {
			return nil, "is not an HTTP header name"
		}
		key = textproto.CanonicalMIMEHeaderKey(key)
		if strings.HasPrefix(key, "Mcp-") || strings.Contains(reserved, " "+key+" ") {
			return nil, "cannot be set: the gate uses this header itself"
		}
		if _, twice := (*p)[key]; twice {
			return nil, fmt.Sprintf("is given twice: HTTP treats it the same as %s", key)
		}
		if *p == nil {
			*p = map[string]Secret{}
		}
		(*p)[key] = Secret{}
		return headerValue(*p, key), ""
	}}
}

// variables reads environment variables.
func variables(p *map[string]Secret) dict {
	return dict{func(key string) (setting, string) {
		switch {
		case key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r == '=' || r == 0x7f }):
			return nil, "is not the name of an environment variable"
		case strings.HasPrefix(key, "THOUGHTGATE_"):
			return nil, "cannot be set: servers do not get the gate's own variables"
		}
		if *p == nil {
			*p = map[string]Secret{}
		}
		(*p)[key] = Secret{}
		set := func(s string) bool {
			(*p)[key] = NewSecret(s)
			return !strings.Contains(s, "\x00")
		}
		return leaf{want: "text without NUL", kinds: isText | isInteger, set: set}.called("text"), ""
	}}
}

// argument reads one word of a command. No shell looks at it.
func argument(p *[]string) leaf {
	return read(p, isText|isInteger, "text without NUL", func(s string) ([]string, bool) {
		return append(*p, s), !strings.Contains(s, "\x00")
	}).called("text")
}
