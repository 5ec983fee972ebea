package conversation

import (
	"cmp"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/gatedialect"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// Config configures a [Gateway].
type Config struct {
	Catalog   *catalog.Catalog
	Approvals *approval.Service // nil if no calls can be held
	Record    *callrecord.Log   // of calls; nil records nothing
	Waiting   Waiting           // until [Gateway.Configure]
	Records   gatestore.Records // store the host name of each session; may be nil
	Texts     *keyring.Ring     // seals texts that clients hand back; all replicas share it. Nil: a key of this process
	Parse     jsonrpc.Limits    // of one message
	Log       *slog.Logger
	Metrics   *metrics.Metrics // nil counts nothing
	Tracing   *tracing.Tracing // nil traces nothing
}

// Waiting has the settings of how long clients wait in their requests.
type Waiting struct {
	Hold             time.Duration // before a client is asked to call again
	HoldWithProgress time.Duration // the same for a client that gets progress notifications
	HoldUnlimited    time.Duration // the same for a host without a time limit of its own
	Hosts            []Host        // limits of hosts; they override those that are built in
	Heartbeat        time.Duration // between two heartbeats
	MinPoll          time.Duration // between two polls of a client
	PerOwner         int           // how many requests of one owner may wait at a time; 0 means no limit
	Pending          schema.Status
	Drafts           bool // show modern clients approvals as drafts of MCP propose
	Errors           bool // answer legacy clients with an error, instead of a tool result, if a call may not run

	Page    func(task.ID) string       // the page on which a call is decided; may be nil
	AskHost func(workflow string) bool // whether users of hosts are invited to that page; nil means never

	Events Events
}

// Events has the settings of streams with the events of a task.
type Events struct {
	Idle     time.Duration // after which a stream without events ends; 0 means never
	PerOwner int           // how many streams one owner may have open; 0 means no limit

	SkipUpstreams     bool          // do not subscribe to the tasks of upstreams
	ReconnectDelay    time.Duration // before another attempt to subscribe, on average
	ReconnectAttempts int           // how many attempts are made in a row
}

// A Gateway has the state that the requests of all clients share, with any transport:
// the requests that wait, the open streams, and the subscriptions to upstreams.
type Gateway struct {
	cfg     Config
	waiting atomic.Pointer[Waiting]
	texts   keyring.Sealer

	sessions  boundedMap[string, struct{}] // peers whose sessions are known to come from their upstreams
	hosts     boundedMap[string, string]   // stored host names by peer; empty for a session without one
	streams   openStreams
	held      heldRequests
	answering requestIDs      // of requests that the gateway answers itself
	resumable requestIDs      // of requests that an upstream answers with events; a client may resume that stream
	waiters   counter[string] // requests that wait, by owner
	watchers  counter[string] // streams with the events of one task, by owner

	eventClients   counter[task.ID]         // streams whose clients asked for notifications of a task
	pendingAnswers boundedMap[task.ID, int] // how many times a client was told that a task still waits
	invitations    boundedMap[invitationKey, invitation]
	redelivered    boundedMap[string, struct{}] // requests, as requestName names them, that were answered on a resumed stream after their call had ended
	timedOut       boundedMap[string, struct{}] // requests, as requestName names them, whose hosts gave up
	upstreams      subscriptions
	reports        *reports
}

// NewGateway returns the gateway that cfg describes.
func NewGateway(cfg Config) *Gateway {
	ring := cfg.Texts
	if ring == nil {
		ring = keyring.Ephemeral()
	}
	g := &Gateway{cfg: cfg, texts: ring.Sealer(keyring.Agents), reports: newReports()}
	g.sessions.limit, g.resumable.perClient, g.resumable.total = maxSessions, maxResumable, maxResumables
	g.Configure(cfg.Waiting)
	return g
}

// Configure replaces the settings. Requests under way may see the old settings or the
// new ones.
func (g *Gateway) Configure(w Waiting) { g.waiting.Store(&w) }

// Waiting returns the current settings.
func (g *Gateway) Waiting() *Waiting { return g.waiting.Load() }

// Governs reports whether there are any rules. Without rules, messages are forwarded
// unread.
func (g *Gateway) Governs() bool { return g.cfg.Catalog.Governs() }

// Holds reports whether calls can be held.
func (g *Gateway) Holds() bool { return g.cfg.Approvals != nil }

// Close ends the work that is not part of a request: it stops following tasks and
// listening to upstreams, and stores their last reports.
func (g *Gateway) Close() {
	g.cfg.Log.Debug("ending streams", "listening", g.OpenStreams())
	g.streams.close()
	g.upstreams.close()
	g.reports.close()
}

// dialect returns how tasks are shown to clients of an era.
func (g *Gateway) dialect(era mcp.Era) mcptask.Dialect {
	w := g.Waiting()
	return mcptask.Dialect{
		Era: mcptask.Era(era), Now: time.Now(), Gate: gatedialect.Options{
			PendingStatus: w.Pending, Drafts: w.Drafts, Errors: w.Errors, ApprovalURL: w.Page, MinPoll: w.MinPoll, Proxy: true, Vendor: mcp.Vendor,
		},
	}
}

const defaultHeartbeat = 15 * time.Second

// HeartbeatInterval returns the time between two heartbeats on a stream.
func (g *Gateway) HeartbeatInterval() time.Duration {
	return cmp.Or(g.Waiting().Heartbeat, defaultHeartbeat)
}

// A counter counts occurrences of keys.
type counter[K comparable] struct {
	mu     sync.Mutex
	counts map[K]int
}

// add increments the count of a key and returns it. If the count has reached the limit,
// add reports false. The limit 0 means no limit.
func (c *counter[K]) add(key K, limit int) (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit > 0 && c.counts[key] >= limit {
		return c.counts[key], false
	}
	if c.counts == nil {
		c.counts = make(map[K]int)
	}
	c.counts[key]++
	return c.counts[key], true
}

// remove decrements the count of a key.
func (c *counter[K]) remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[key]--; c.counts[key] == 0 {
		delete(c.counts, key)
	}
}

// A boundedMap is a map that drops arbitrary entries above its limit.
type boundedMap[K comparable, V any] struct {
	limit int // 0 means defaultLimit

	mu     sync.Mutex
	values map[K]V
}

const defaultLimit = 10_000

func (m *boundedMap[K, V]) get(key K) (value V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok = m.values[key]
	return value, ok
}

func (m *boundedMap[K, V]) has(key K) bool {
	_, ok := m.get(key)
	return ok
}

func (m *boundedMap[K, V]) set(key K, value V) { m.update(key, func(V) V { return value }) }

// update replaces the value of a key by the result of change, and returns it.
func (m *boundedMap[K, V]) update(key K, change func(V) V) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = make(map[K]V)
	}
	value, known := m.values[key]
	for old := range m.values {
		if known || len(m.values) < cmp.Or(m.limit, defaultLimit) {
			break
		}
		delete(m.values, old)
	}
	value = change(value)
	m.values[key] = value
	return value
}
