// Package config turns a configuration file, environment variables and command
// line flags into one checked [Config]. It is strict, because a setting that is
// misspelled and ignored would leave the gate open: what it does not know, it
// refuses, and it reports everything that is wrong at once, with the place.
//
// The path of a setting is: the YAML syntax tree (decode.go) is walked beside
// the tree of known settings (schema.go), whose leaves read and check one text
// each (value.go). Variables and flags name leaves of the same tree
// (environ.go). Rules about several settings are checked last (check.go,
// policy.go).
//
// The package knows nothing of how the settings are used.
package config

import (
	"crypto/sha256"
	"log/slog"
	"net/url"
	"strings"
	"time"
)

// A Config has all settings of a gate. It is plain data with every
// default filled in, and is never changed after [Load] has returned it.
type Config struct {
	Listen    string // host:port for agents
	ListenTLS Certificate
	Operators Operators
	Upstreams []Upstream // at least one

	// OtherServers are the names of the upstreams in the file of a wrap, which has a
	// server of its own. Rules may be for them.
	OtherServers []string

	Policy
	WholeBatches   bool      // hold all of a batch of which something needs approval
	Drafts         bool      // show modern agents approvals as drafts of MCP propose
	Channels       []Channel // besides the inbox
	Waiting        Waiting
	Execution      Execution
	Tasks          Tasks
	Audit          Audit
	Store          Secret // where held calls are kept: memory:, desk:, sqlite:FILE, or the URL of a server with its password
	Storage        Storage
	StateDir       string // where FILE is, unless it says so itself; empty if there is no such place
	Identity       Identity
	AllowedHosts   []string // extra values of Host, in lower case
	AllowedOrigins []string // extra values of Origin, in lower case
	Notifications  Notifications
	Limits         Limits
	Shutdown       Shutdown
	Telemetry      Telemetry

	ServerEnviron []string // of the gate's own environment variables, those that upstreams which are programs get

	Files
}

// A Policy says which calls are forwarded, and who must approve others.
type Policy struct {
	Rules      []Rule // the first that matches a call decides
	Default    Rule   // for calls that no rule matches; without Action if none was given
	Cedar      Cedar
	Workflows  []Workflow // at least one
	Observe    bool       // forward every call, and only report what would have happened
	HideDenied bool       // leave out of lists what is denied outright
}

// Files are where a configuration comes from.
type Files struct {
	Watch       []string          // directories in which a change may mean another configuration; sorted
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

// Operators says how the people who run the gate reach it.
type Operators struct {
	Listen  string        // host:port for the inbox, the API, health, readiness and metrics
	Token   Secret        // that a single operator shows; empty means that one is to be made
	URL     *url.URL      // where browsers reach it; nil means at Listen
	TLS     Certificate   // zero means none
	Session time.Duration // how long a login lasts
	Tokens  []Token

	MaxConnections int  // at a time, of all operators
	OIDC           OIDC // without Issuer if there is none
}

// An Upstream is one MCP server behind the gate.
type Upstream struct {
	Name                 string
	URL                  *url.URL          // http or https, with a host, without user and fragment; nil if Command is given
	Command              []string          // the program, with its arguments, that is the server; nil if URL is given
	Env                  map[string]Secret // what the program gets besides Config.ServerEnviron
	Dir                  string            // where the program runs; empty means where the gate does
	Shared               bool              // all clients share one process of the program
	MaxProcesses         int               // of the program, at a time
	Paths                []string          // where agents reach it, each used by no other upstream
	Headers              map[string]Secret // sent with every request; names in canonical form
	ForwardAuthorization bool              // whether the client's Authorization header goes upstream
	ForwardCredential    bool              // whether it does even if the gate recognised the client by it
	CredentialHeaders    []string          // which of a client's headers go with a held call; none means the usual ones
	ForwardQuery         []string          // names in the agent's query that go upstream
	TLS                  TLS
	ConnectTimeout       time.Duration
	MaxTaskTTL           time.Duration // how long its own tasks are asked to live at most; 0 means as long as the gate's
	IdleTimeout          time.Duration // how long an unused connection, or process, is kept
	MaxIdleConnections   int

	MaxProcessesPerClient int // zero means a quarter of MaxProcesses
}

// TLS says how an upstream proves who it is.
type TLS struct {
	CAFile             string // PEM file of the authorities to trust; empty means the system's
	ServerName         string // name to expect instead of the URL's host
	InsecureSkipVerify bool
}

// Waiting says how agents wait for an approval.
type Waiting struct {
	TasksOnly bool          // whoever needs approval must ask for a task
	Hold      time.Duration // how long a request without a task is held
	Longest   time.Duration // the same for an agent that is shown progress
	Hosts     []Host        // how long agent hosts wait, besides those that are built in
	Keepalive time.Duration // between two signs of life on a stream
	Errors    bool          // legacy agents get an error if a call was not allowed to run
	PendingOK bool          // the answer to a call that still waits is no error

	RequestMeta []string // members of _meta that say nothing of what is asked for; * stands for all
}

// A Host says how long a kind of agent host lets a call run.
type Host struct {
	Name  string        // as its clientInfo says; a * at the end stands for anything
	Limit time.Duration // zero means that it has none
}

// Execution says how approved calls are run.
type Execution struct {
	Start   string        // contact, approval or result
	Timeout time.Duration // how long the upstream may take
	Lease   time.Duration // how long a replica that runs a call may be silent

	PollTimeout   time.Duration // how long the upstream may take to say how its own task stands
	CancelTimeout time.Duration // how long an upstream may take to accept a cancellation
}

// Tasks says how held calls are kept.
type Tasks struct {
	DefaultTTL           time.Duration // how long an outcome can be fetched if the agent asks for no more
	MaxTTL               time.Duration // no task lives longer
	MaxPendingPerOwner   int
	MaxPending           int
	MaxPendingPerAddress int      // held calls of all anonymous agents at one address; zero means a quarter of MaxPending
	MaxPendingUnknown    int      // the same for those that show nothing that distinguishes them
	PendingStatus        string   // working or input_required
	ForceRequired        []string // tools that must be called as a task
	MinPollInterval      time.Duration
	MaxPollInterval      time.Duration
	CleanupInterval      time.Duration
	Variables            VariableLimits
}

// VariableLimits bounds the variables of a task.
type VariableLimits struct {
	MaxCount int
	MaxName  int64 // bytes of a name
	MaxValue int64 // bytes of a value
	MaxTotal int64 // bytes of all names and values
}

// Storage says how the store is used.
type Storage struct {
	Timeout     time.Duration // how long it may take to answer
	Connections int           // how many there are to it at most; 0 means what suits its kind
	MaxSize     int64         // bytes of a file, or in memory; 0 means what suits its kind
	Retention   time.Duration // how long a task is kept after its time is over
	Keys        Secret        // NAME:BASE64, separated by commas: what stored calls are encrypted with; empty means that they are not
}

// Audit says how long it is known what became of held calls.
type Audit struct {
	Retention time.Duration // zero means for good
}

// Notifications says how clients are notified of their tasks on streams.
type Notifications struct {
	IdleTimeout time.Duration // after which a stream of a task's events is ended if there are none
	MaxPerOwner int           // how many of these one owner may have open

	Forward           bool          // whether upstreams are listened to for news of their own tasks
	ReconnectDelay    time.Duration // before an upstream that is listened to is connected to again, on average
	ReconnectAttempts int           // how often that is tried in a row
}

// Limits bound what one client, or all of them, can ask of the gate.
type Limits struct {
	MaxConcurrentRequests int
	MaxStreams            int // streams without an end of their own
	MaxConnections        int // of agents

	// Limits for one agent, or for all agents without an identity at one address;
	// zero means a quarter of the total.
	MaxRequestsPerClient    int
	MaxStreamsPerClient     int
	MaxConnectionsPerClient int

	MaxRequestBody int64 // bytes
	MaxBodyMemory  int64 // bytes of all requests under way
	MaxResult      int64 // bytes of a held call's result
	MaxHeader      int64 // bytes
	MaxLine        int64 // bytes of one line that a server writes to its standard output
	MaxBatch       int
	MaxDepth       int
	RequestTimeout time.Duration // until the upstream's response headers
	CallTimeout    time.Duration // the same for tools/call, which is the upstream's to be slow at
	ReadTimeout    time.Duration // until a client has sent its whole body
	WriteTimeout   time.Duration // until a client has taken one chunk
	Keepalive      time.Duration // how long an unused client connection is kept

	ToolsFetchTimeout time.Duration // until the upstream has listed its tools
	ToolsMaxPages     int           // of the list of its tools
}

// Shutdown says how the gate stops.
type Shutdown struct {
	Delay time.Duration // between not being ready and closing the listeners
	Drain time.Duration // how long calls under way may take to finish
}

// Telemetry says what the gate reports about itself.
type Telemetry struct {
	Log    Log
	Traces Traces
}

// Log says what is logged, and how.
type Log struct {
	Level  slog.Level
	Format string // json or text
}

// Traces says where spans are sent, by OTLP over HTTP.
type Traces struct {
	Endpoint *url.URL // nil turns tracing off
	Sample   float64  // the part of new traces that is kept, from 0 to 1
	Headers  map[string]Secret
}

// Default returns the settings of a gate without a configuration. It is not
// valid as it is: it has no upstream, and no workflow either, because the one
// that [Load] adds is there only if no other is given.
func Default() Config {
	return Config{
		Listen: "127.0.0.1:8080",
		Operators: Operators{
			Listen: "127.0.0.1:8081", Session: 12 * time.Hour, MaxConnections: 256,
			OIDC: OIDC{NameClaim: "email", GroupsClaim: "groups", Recheck: 15 * time.Minute},
		},
		Identity:  Identity{MTLS: MTLS{Name: "cn"}},
		Policy:    Policy{HideDenied: true, Cedar: Cedar{Timezone: "UTC"}},
		Drafts:    true,
		Waiting:   Waiting{Hold: 50 * time.Second, Longest: 270 * time.Second, Keepalive: 15 * time.Second},
		Execution: Execution{Start: "contact", Timeout: time.Minute, Lease: 30 * time.Second, PollTimeout: 10 * time.Second, CancelTimeout: 5 * time.Second},
		Tasks: Tasks{
			DefaultTTL:         10 * time.Minute,
			MaxTTL:             24 * time.Hour,
			MaxPendingPerOwner: 10,
			MaxPending:         1000,
			MaxPendingUnknown:  20,
			PendingStatus:      "working",
			MinPollInterval:    2 * time.Second,
			MaxPollInterval:    30 * time.Second,
			CleanupInterval:    time.Minute,
			Variables:          VariableLimits{MaxCount: 64, MaxName: 128, MaxValue: 16 << 10, MaxTotal: 64 << 10},
		},
		Notifications: Notifications{IdleTimeout: 5 * time.Minute, MaxPerOwner: 20, Forward: true, ReconnectDelay: 5 * time.Second, ReconnectAttempts: 3},
		Limits: Limits{
			MaxConcurrentRequests: 10_000,
			MaxStreams:            10_000,
			MaxConnections:        25_000,
			MaxRequestBody:        1 << 20,
			MaxBodyMemory:         256 << 20,
			MaxResult:             1 << 30,
			MaxHeader:             64 << 10,
			MaxLine:               64 << 20,
			MaxBatch:              50,
			MaxDepth:              128,
			RequestTimeout:        30 * time.Second,
			CallTimeout:           60 * time.Second,
			ToolsFetchTimeout:     30 * time.Second,
			ToolsMaxPages:         100,
			ReadTimeout:           30 * time.Second,
			WriteTimeout:          30 * time.Second,
			Keepalive:             60 * time.Second,
		},
		Store:    NewSecret("sqlite:thoughtgate.db"),
		Storage:  Storage{Timeout: 5 * time.Second, Retention: time.Hour},
		Shutdown: Shutdown{Drain: 25 * time.Second},
		Telemetry: Telemetry{
			Log:    Log{Level: slog.LevelInfo, Format: "json"},
			Traces: Traces{Sample: 1},
		},
	}
}

// DefaultUpstream returns the settings of an upstream of which nothing but its
// URL is told. Name and Paths depend on how many upstreams there are, so they
// are left for [Load] to fill in.
func DefaultUpstream() Upstream {
	return Upstream{
		ForwardAuthorization: true,
		ConnectTimeout:       5 * time.Second,
		IdleTimeout:          90 * time.Second,
		MaxIdleConnections:   256,
		MaxProcesses:         64,
	}
}
