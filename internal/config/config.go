// Package config turns a configuration file, environment variables and command
// line flags into one checked [Config]. It is strict, because a misspelled
// setting that is ignored could leave the gate open: [Load] refuses unknown keys,
// and reports all problems at once, each with its position.
//
// [Load] walks the YAML syntax tree (decode.go) beside the tree of known settings
// (schema.go). Each leaf of that tree parses one text (value.go):
//
//	{"hold", Duration(&c.Waiting.Hold, 0)}
//
// Variables and flags set leaves of the same tree (environ.go). Checks that need
// several settings come last (check.go, identity.go, policy.go).
package config

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// A Config has all settings of a gate, with every default filled in. It does not
// change after [Load] has returned it.
type Config struct {
	Listen    string // for agents: host:port, or unix:PATH
	ListenTLS Certificate
	Operators Operators
	Upstreams []Upstream // at least one
	Endpoints []Endpoint // besides the paths of the upstreams

	// OtherServers are the names of the upstreams in the file that a wrap replaces by
	// its own server. Rules may name them.
	OtherServers []string

	Policy
	Channels       []Channel // besides the inbox
	Waiting        Waiting
	Execution      Execution
	Tasks          Tasks
	Audit          Audit
	Record         Record
	Store          Secret // memory:, desk:, sqlite:FILE, or the URL of a server with its password
	Storage        Storage
	StateDir       string // where a relative FILE is; empty if the user has no such directory
	Identity       Identity
	AllowedHosts   []string // extra values of Host, in lower case
	AllowedOrigins []string // extra values of Origin, in lower case
	Notifications  Notifications
	Limits         Limits
	Shutdown       Shutdown
	Telemetry      Telemetry

	OwnVariables  []string // environment variables that the file refers to, without those in ServerEnviron
	ServerEnviron []string // NAME=VALUE of the environment variables that upstream programs inherit

	Files
}

// A Policy says which calls are forwarded, and who must approve others.
type Policy struct {
	Rules      []policy.Rule // the first that matches a call decides
	Default    policy.Rule   // for calls that no rule matches; Action is empty if it was not given
	Cedar      Cedar
	Pins       Pins
	Workflows  []policy.Workflow // at least one
	Observe    bool              // forward every call, and only report the verdict
	HideDenied bool              // leave out of lists what is always denied
}

// Files describes the files that a configuration was read from.
type Files struct {
	Watch       []string          // directories to watch for changes; sorted
	Fingerprint [sha256.Size]byte // of the content of every file that was read
	Origins     Origins
}

// Given reports whether a file or a flag gives a setting, or a part of it.
func (c *Config) Given(setting string) bool { return c.Origins.give(setting) }

// give reports whether a file or a flag gives a setting, or a part of it.
func (o Origins) give(setting string) bool {
	for path, at := range o {
		rest, of := strings.CutPrefix(path, setting)
		if of && (rest == "" || rest[0] == '.' || rest[0] == '[') && at.Source != tokenVariable {
			return true
		}
	}
	return false
}

// Operators has the settings of the operators' listener.
type Operators struct {
	Listen  string        // host:port for the inbox, the API, health, readiness and metrics
	Token   Secret        // of the single operator; empty means that the gate generates one
	URL     *url.URL      // for browsers; nil means Listen
	TLS     Certificate   // zero means none
	Session time.Duration // how long a login lasts
	Tokens  []Token

	OSUsers []string // other users of this machine, by name or number, who may connect to the inbox of the desk

	OIDC OIDC // Issuer is empty if it is not configured
}

// An Upstream is one MCP server behind the gate.
type Upstream struct {
	Name                 string
	URL                  *url.URL          // nil if Command is given
	Command              []string          // the program that is the server, and its arguments; nil if URL is given
	Env                  map[string]Secret // of the program, besides Config.ServerEnviron
	Dir                  string            // working directory of the program; empty means that of the gate
	Shared               bool              // all clients share one process of the program
	MaxProcesses         int               // of the program at the same time
	Paths                []string          // at which agents reach it; unique among upstreams
	Headers              map[string]Secret // sent with every request; names in canonical form
	ForwardAuthorization bool              // send the client's Authorization header upstream
	ForwardCredential    bool              // send it even if the gate authenticated the client by it
	CredentialHeaders    []string          // headers of the client that a held call is sent with; empty means the usual ones
	ForwardQuery         []string          // query parameters of the agent that are sent upstream
	OAuth                OAuth             // how the gate gets tokens for it
	Scopes               []string          // that the JWT of an agent needs
	TLS                  TLS
	ConnectTimeout       time.Duration
	Translate            bool          // between the eras of clients and of the server
	MaxTaskTTL           time.Duration // longest TTL to request for its own tasks; 0 means that of the gate's task
}

// OAuth says how the gate gets tokens for an upstream.
type OAuth struct {
	Grant        string // "shared", "principal", "client_credentials" or "token_exchange"; empty if it needs none
	ClientID     string // as registered at the authorization server, or the URL of the client's metadata; may be empty
	ClientSecret Secret
	Issuer       string   // the only authorization server to use; empty means the one that the upstream names
	Scopes       []string // to ask for; empty means those that the upstream names
}

// TLS says how an upstream is authenticated.
type TLS struct {
	CAFile             string // PEM file of trusted authorities; empty means the system's
	ServerName         string // name to expect instead of the URL's host
	InsecureSkipVerify bool
}

// Client returns the TLS configuration for connections to the upstream.
func (t TLS) Client() (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // off unless written in the configuration
	}
	if t.CAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("tls.ca_file: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("tls.ca_file: no certificate in it")
	}
	return c, nil
}

// Waiting says how agents wait for an approval.
type Waiting struct {
	TasksOnly bool          // calls that need approval must be tasks
	Hold      time.Duration // how long a request without a task waits
	Longest   time.Duration // how long it waits if the agent receives progress
	Hosts     []Host        // timeouts of agent hosts, besides the built-in ones
	Keepalive time.Duration // interval of keepalives on a stream
	Errors    bool          // legacy agents get an error, not a result, if a call was not allowed to run
}

// A Host is the time limit of an agent host for a call.
type Host struct {
	Name  string        // of its clientInfo; a * at the end matches any text
	Limit time.Duration // 0 means that it has no limit
}

// Execution says how approved calls are run.
type Execution struct {
	Start string        // contact, approval or result
	Lease time.Duration // how long a replica may run a call without renewing the lease

	PollTimeout   time.Duration // for asking an upstream for the state of its own task
	CancelTimeout time.Duration // for asking an upstream to cancel a task
}

// Tasks says how held calls are kept.
type Tasks struct {
	DefaultTTL         time.Duration // TTL of a task if the client requests none
	MaxTTL             time.Duration // the longest TTL
	MaxPendingPerOwner int
	MaxPending         int
	PendingStatus      string   // working or input_required
	ForceRequired      []string // tools that must be called as a task
	MinPollInterval    time.Duration
	MaxPollInterval    time.Duration
	CleanupInterval    time.Duration
	MaxVariables       int64 // bytes of the names and values of the variables of one task
}

// Storage says how the store is used.
type Storage struct {
	Timeout     time.Duration // of one operation
	Connections int           // the most at the same time; 0 means the default of the kind of store
	MaxSize     int64         // bytes of a file, or in memory; 0 means the default of the kind of store
	Retention   time.Duration // how long a task is kept after its TTL
	Keys        Secret        // encrypt stored calls: NAME:BASE64, separated by commas; empty means no encryption
}

// Audit has the settings of the audit log.
type Audit struct {
	Retention time.Duration // 0 means forever
}

// Record has the settings of the record of calls.
type Record struct {
	Arguments string        // digests, redacted or full
	Retention time.Duration // 0 means forever
	MaxSize   int64         // bytes; the oldest calls are deleted; 0 means that nothing is recorded
	WhenFull  string        // wait or drop: what a call does that cannot be recorded yet
}

// Notifications says how clients are notified of their tasks on streams.
type Notifications struct {
	IdleTimeout time.Duration // ends a stream of task events that has been silent for so long

	Forward           bool          // listen to upstreams for updates of their own tasks
	ReconnectDelay    time.Duration // before the gate connects again, on average
	ReconnectAttempts int           // in a row
}

// Limits bound the resources that clients can use.
type Limits struct {
	MaxConcurrentRequests int
	MaxStreams            int // streams that stay open
	MaxConnections        int // of agents

	MaxRequestBody int64 // bytes
	MaxResult      int64 // bytes of a held call's result
	MaxHeader      int64 // bytes
	MaxBatch       int
	MaxDepth       int
	RequestTimeout time.Duration // for the upstream's response headers, for reading a request, and for each write to a client
	CallTimeout    time.Duration // for the response headers of tools/call, and for the answer to an approved call
	Keepalive      time.Duration // of idle client connections

	ToolsFetchTimeout time.Duration // for listing all tools of an upstream
	ToolsMaxPages     int           // of such a list
}

// Shutdown says how the gate stops.
type Shutdown struct {
	Delay time.Duration // between reporting not ready and closing the listeners
	Drain time.Duration // how long running calls may take to finish
}

// Telemetry has the settings of logs and traces.
type Telemetry struct {
	Log    Log
	Traces Traces
}

// Log has the settings of the log.
type Log struct {
	Level  slog.Level
	Format string // json or text
}

// Traces has the settings of tracing, by OTLP over HTTP.
type Traces struct {
	Endpoint *url.URL // nil turns tracing off
	Sample   float64  // the fraction of new traces to keep, from 0 to 1
	Headers  map[string]Secret
}

// Default returns the defaults of all settings. It has no upstream and no
// workflow; [Load] adds the default workflow if the file has none.
func Default() Config {
	return Config{
		Listen: "127.0.0.1:8080",
		Operators: Operators{
			Listen: "127.0.0.1:8081", Session: 12 * time.Hour,
			OIDC: OIDC{NameClaim: "email", GroupsClaim: "groups"},
		},
		Identity:  Identity{MTLS: MTLS{Name: "cn"}},
		Policy:    Policy{HideDenied: true, Cedar: Cedar{Timezone: "UTC"}, Pins: Pins{Unpinned: policy.HoldCall}},
		Waiting:   Waiting{Hold: 50 * time.Second, Longest: 270 * time.Second, Keepalive: 15 * time.Second},
		Execution: Execution{Start: "contact", Lease: 30 * time.Second, PollTimeout: 10 * time.Second, CancelTimeout: 5 * time.Second},
		Tasks: Tasks{
			DefaultTTL:         10 * time.Minute,
			MaxTTL:             24 * time.Hour,
			MaxPendingPerOwner: 10,
			MaxPending:         1000,
			PendingStatus:      "working",
			MinPollInterval:    2 * time.Second,
			MaxPollInterval:    30 * time.Second,
			CleanupInterval:    time.Minute,
			MaxVariables:       64 << 10,
		},
		Notifications: Notifications{IdleTimeout: 5 * time.Minute, Forward: true, ReconnectDelay: 5 * time.Second, ReconnectAttempts: 3},
		Limits: Limits{
			MaxConcurrentRequests: 10_000,
			MaxStreams:            10_000,
			MaxConnections:        25_000,
			MaxRequestBody:        1 << 20,
			MaxResult:             1 << 30,
			MaxHeader:             64 << 10,
			MaxBatch:              50,
			MaxDepth:              128,
			RequestTimeout:        30 * time.Second,
			CallTimeout:           60 * time.Second,
			ToolsFetchTimeout:     30 * time.Second,
			ToolsMaxPages:         100,
			Keepalive:             60 * time.Second,
		},
		Store:    NewSecret("sqlite:thoughtgate.db"),
		Storage:  Storage{Timeout: 5 * time.Second, Retention: time.Hour},
		Record:   Record{Arguments: "digests", Retention: 30 * 24 * time.Hour, MaxSize: 256 << 20, WhenFull: "drop"},
		Shutdown: Shutdown{Drain: 25 * time.Second},
		Telemetry: Telemetry{
			Log:    Log{Level: slog.LevelInfo, Format: "json"},
			Traces: Traces{Sample: 1},
		},
	}
}

// DefaultUpstream returns the default settings of an upstream. [Load] fills in
// Name and Paths, which depend on the number of upstreams.
func DefaultUpstream() Upstream {
	return Upstream{
		ForwardAuthorization: true,
		ConnectTimeout:       5 * time.Second,
		MaxProcesses:         64,
	}
}
