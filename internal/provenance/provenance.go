// Package provenance finds out which program of this machine sent a decision, and whether an agent
// started that program:
//
//	agents := provenance.New(records, log)         // that all gates of this machine share
//	agents.Register(ctx, host, now)                // the process that started this gate
//	server.ConnContext = provenance.WithConn
//	via, err := agents.Locate(r.Context(), via)    // while serving a request
//
// Agents are known by their host, the process that started the gate as its MCP server. Everything
// that the host has started belongs to the agent too. A program that leaves this tree, for example
// by a double fork, is not recognized: the package reveals decisions of agents, but cannot prevent
// them.
package provenance

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os/user"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/process"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// ErrClosed is the error of a program that did not wait for the answer, so that it cannot be
// identified.
var ErrClosed = process.ErrClosed

type connKey struct{}

// WithConn is the ConnContext of an [http.Server] whose requests are located.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, &conn{network: c})
}

// A conn is a connection whose requests are located.
type conn struct {
	network net.Conn
	last    atomic.Pointer[process.ID] // the process that was found at its other end
}

// peer returns the processes at the other end of c. If nobody asks which agent started them, one is
// enough, which usually is the same for all requests.
func (c *conn) peer(agents []agent) (process.Peer, error) {
	if len(agents) > 0 {
		return process.Behind(c.network)
	}
	var last process.ID
	if found := c.last.Load(); found != nil {
		last = *found
	}
	p, err := process.OneBehind(c.network, last)
	if len(p.Holders) > 0 {
		c.last.Store(&p.Holders[0])
	}
	return p, err
}

// Agents are the agents whose gates share a store on this machine. A nil *Agents knows nothing.
type Agents struct {
	records gatestore.Records // nil if no gate shares them
	machine string
	log     *slog.Logger
	own     []agent // the one that started this process, if it is known
}

// An agent is the process that started a gate, and that gate.
type agent struct {
	Host process.ID `json:"host"`
	Gate process.ID `json:"gate"`
}

// New returns the agents whose gates use the records, which may be nil.
func New(records gatestore.Records, log *slog.Logger) *Agents {
	machine, err := process.Machine()
	if err != nil {
		log.Info("this system does not tell which program sends a decision", "err", err)
	}
	return &Agents{records: records, machine: machine, log: log}
}

// recordPrefix begins the names of the records of agents.
const recordPrefix = "agents/"

// maxAgents is the maximum number of agents on one machine.
const maxAgents = 1000

// kept is how long a record is kept if no gate of its machine removes it.
const kept = 365 * 24 * time.Hour

// Register makes the host of this gate known to all gates that share the records. It stays known
// until the host has ended, even if this gate ends before. Call it before serving requests.
func (a *Agents) Register(ctx context.Context, host process.ID, now time.Time) {
	self, err := process.Self()
	if err != nil {
		return
	}
	a.own = []agent{{host, self}}
	if a.records == nil {
		return
	}
	if err := errors.Join(a.forgetEnded(ctx), a.put(ctx, a.own[0], now.Add(kept))); err != nil {
		a.log.WarnContext(ctx, "other gates do not know the process of this agent", "err", err)
	}
}

func (a *Agents) put(ctx context.Context, own agent, expires time.Time) error {
	value, err := json.Marshal(own)
	if err != nil {
		return err
	}
	err = a.records.PutRecord(ctx, gatestore.Record{Name: a.prefix() + own.Gate.String(), Version: 1, Value: value, Expires: expires})
	if errors.Is(err, task.ErrConcurrentModification) {
		return nil // this process has registered before
	}
	return err
}

// prefix begins the names of the records of this machine.
func (a *Agents) prefix() string { return recordPrefix + a.machine + "/" }

// forgetEnded removes the agents of this machine whose host and gate have ended.
func (a *Agents) forgetEnded(ctx context.Context) error {
	records, err := a.records.ListRecords(ctx, gatestore.RecordQuery{Prefix: a.prefix(), Limit: maxAgents})
	for _, r := range records {
		var one agent
		if json.Unmarshal(r.Value, &one) == nil && (process.Exists(one.Host) || process.Exists(one.Gate)) {
			continue
		}
		err = errors.Join(err, a.records.DeleteRecord(ctx, r.Name))
	}
	return err
}

// known returns the agents of this machine.
func (a *Agents) known(ctx context.Context) ([]agent, error) {
	all := slices.Clone(a.own)
	if a.records == nil {
		return all, nil
	}
	records, err := a.records.ListRecords(ctx, gatestore.RecordQuery{Prefix: a.prefix(), Limit: maxAgents})
	for _, r := range records {
		var one agent
		if json.Unmarshal(r.Value, &one) == nil {
			all = append(all, one)
		}
	}
	return all, err
}

// Locate adds to via what is known of the program that sent the request with this context. It
// changes nothing if the request came from another machine. The error is [ErrClosed], and via is
// valid even then.
func (a *Agents) Locate(ctx context.Context, via gatetask.Via) (gatetask.Via, error) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if a == nil || !ok {
		return via, nil
	}
	agents, unknown := a.known(ctx)
	peer, err := c.peer(agents)
	if errors.Is(err, process.ErrRemote) {
		return via, nil
	}
	via.FromAgent = gatetask.FromAgentUnknown
	if err != nil {
		if errors.Is(err, ErrClosed) {
			return via, ErrClosed
		}
		return via, nil
	}
	via.User = nameOf(peer.UID)
	if unknown != nil {
		a.log.WarnContext(ctx, "the agents of other gates are not known", "err", unknown)
	}
	found, from := judge(peer, agents)
	if unknown != nil && from == gatetask.FromAgentNo {
		from = gatetask.FromAgentUnknown
	}
	via.FromAgent = from
	if p, err := process.Read(found.PID); err == nil && p.ID == found {
		via.PID, via.Program, via.Terminal = p.PID, safetext.Text(p.Program, maxProgram), p.Terminal
	}
	return via, nil
}

// maxProgram is the maximum length of the name of a program, in bytes.
const maxProgram = 200

// nameOf returns the name of a user, or the number of one without a name.
func nameOf(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return safetext.Text(u.Username, maxProgram)
	}
	return number
}

// judge returns the process that sent a decision, if it is known, and whether an agent started it.
// A process that may have sent it counts if an agent started it.
func judge(peer process.Peer, agents []agent) (process.ID, gatetask.FromAgent) {
	candidates := peer.Holders
	if len(candidates) == 0 {
		candidates = slices.DeleteFunc(slices.Clone(peer.Hidden), func(p process.ID) bool {
			return slices.ContainsFunc(agents, func(a agent) bool { return a.Gate == p })
		})
	}
	apart := len(agents) > 0
	var traced []process.ID // without agents, nothing is known of the tree
	if apart {
		traced = candidates
	}
	for _, p := range traced {
		chain := process.Ancestors(p)
		//mutate:false TestGatesShareTheirAgents decisions of an agent's own processes count as those of people
		if slices.ContainsFunc(agents, func(a agent) bool { return slices.Contains(chain, a.Host) }) {
			return p, gatetask.FromAgentYes
		}
		apart = apart && isAttended(p, chain)
	}
	switch {
	case len(candidates) == 0, len(peer.Holders) == 0 && len(candidates) > 1:
		return process.ID{}, gatetask.FromAgentUnknown
	case apart:
		return candidates[0], gatetask.FromAgentNo
	default:
		return candidates[0], gatetask.FromAgentUnknown
	}
}

// isAttended reports whether a process runs at a terminal, in a session that one of its ancestors
// began. A process that has left the processes that started it does not look like that.
func isAttended(id process.ID, chain []process.ID) bool {
	p, err := process.Read(id.PID)
	return err == nil && p.ID == id && p.Terminal != "" &&
		slices.ContainsFunc(chain, func(one process.ID) bool { return one.PID == p.Session })
}
