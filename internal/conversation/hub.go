package conversation

import (
	"cmp"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Config is what a [Hub] is made of.
type Config struct {
	Gate    *gate.Gate
	Desk    *approval.Desk // nil if nothing can be held
	Waiting Waiting        // until [Hub.Configure]
	Records task.Records   // keep which host a session belongs to; may be nil
	Texts   *keyring.Ring  // seals what clients hand back; shared by all replicas. Nil: a key of this hub's own
	Parse   jsonrpc.Limits // of one message
	Log     *slog.Logger
	Metrics *metrics.Metrics // nil counts nothing
	Tracing *tracing.Tracing // nil traces nothing
}

// Waiting says how long clients are kept waiting in their requests.
type Waiting struct {
	Hold     time.Duration // before a client is asked to come again
	Longest  time.Duration // for a client that is sent progress meanwhile
	Forever  time.Duration // for a host that has no limit of its own
	Hosts    []Host        // limits of hosts, before those that are built in
	Beat     time.Duration // between two signs of life
	MinPoll  time.Duration // between two polls of a client
	PerOwner int           // how many requests of one client may wait at a time; 0 means any number
	Pending  mcptask.Status
	Drafts   bool // show modern clients approvals as drafts of MCP propose
	Errors   bool // legacy clients get an error, instead of a tool result, if a call was not allowed to run
	NoError  bool // the answer to a call that still waits is no error

	Page    func(task.ID) string       // where people decide about a call; may be nil
	AskHost func(workflow string) bool // whether users of hosts are invited to that page; nil means never

	WholeBatches bool // hold all of a batch of which something needs approval

	Events Events
}

// Events says how long, and by how many, the events of a task are listened to.
type Events struct {
	Idle     time.Duration // after which a stream without events is ended; 0 means never
	PerOwner int           // how many streams one owner may have open; 0 means any number

	SkipUpstreams     bool          // listen to no upstream for news of its tasks
	ReconnectDelay    time.Duration // before an upstream is connected to again, on average
	ReconnectAttempts int           // how often that is tried in a row
}

// A Hub holds what the requests of all clients share, whichever transport they
// come by: which of them wait, which streams the gate can speak on, and which
// upstreams are listened to.
type Hub struct {
	cfg     Config
	current atomic.Pointer[Waiting]
	texts   keyring.Sealer

	sessions  sessions
	hosts     sessionHosts
	listeners listeners
	held      heldRequests
	awaited   awaited
	resumable resumable
	waiters   waiters
	watchers  waiters // of the events of one task

	eventClients eventClients
	pending      counts // how often a client got the answer that a task still waits
	invitations  invitations
	resumed      counts // the requests, as requestOf names them, that were answered on a stream taken up again after their call had ended
	givenUp      counts // the requests, as requestOf names them, whose hosts' time was up
	upstreams    subscriptions
	reports      *reports
}

// NewHub returns the hub that cfg describes.
func NewHub(cfg Config) *Hub {
	ring := cfg.Texts
	if ring == nil {
		ring = keyring.Ephemeral()
	}
	h := &Hub{cfg: cfg, texts: ring.Sealer(keyring.Agents), reports: newReports()}
	h.Configure(cfg.Waiting)
	return h
}

// Configure replaces the settings. Requests under way may see the old ones, the
// new ones, or both in turn.
func (h *Hub) Configure(w Waiting) { h.current.Store(&w) }

// Waiting returns the settings in force.
func (h *Hub) Waiting() *Waiting { return h.current.Load() }

// Governs reports whether there are rules at all. Without any, messages pass
// unread.
func (h *Hub) Governs() bool { return h.cfg.Gate.Governs() }

// Holds reports whether calls can be held.
func (h *Hub) Holds() bool { return h.cfg.Desk != nil }

// Close ends what goes on between requests: following tasks, listening to
// upstreams, and acting on what those say.
func (h *Hub) Close() {
	h.cfg.Log.Debug("ending streams", "listening", h.Listening())
	h.listeners.close()
	h.upstreams.close()
	h.reports.close()
}

// dialect returns how tasks are shown to clients of an era.
func (h *Hub) dialect(era wire.Era) mcptask.Dialect {
	w := h.Waiting()
	return mcptask.Dialect{
		Era: mcptask.Era(era), PendingStatus: w.Pending, Drafts: w.Drafts, Errors: w.Errors, Page: w.Page, MinPoll: w.MinPoll, Now: time.Now(), Proxy: true,
	}
}

// defaultBeat is how often a stream shows that it is alive if nothing else is set.
const defaultBeat = 15 * time.Second

// Beat returns how often a client gets a sign of life.
func (h *Hub) Beat() time.Duration { return cmp.Or(h.Waiting().Beat, defaultBeat) }
