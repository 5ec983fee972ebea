package app

import (
	"context"
	"log/slog"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

const (
	// spareFiles is how many descriptors are kept for everything that is neither
	// a client nor an upstream nor the store: listeners, logs, files, identity
	// providers, traces.
	spareFiles = 64
	// storeFiles is how many the store needs besides storage.connections.
	storeFiles = 24
	// fewest is how many connections agents may have, however few descriptors
	// there are.
	fewest = 8
)

// A descriptors says how the descriptors that the process may have are divided,
// so that no group of clients can use up those of another.
type descriptors struct {
	agents    int // connections of agents
	upstreams int // connections to upstreams: every request of an agent may need one
	operators int // connections of operators
}

// divide returns how many connections there may be, if the process may have the
// given number of files. Zero means any number.
func divide(files uint64, cfg config.Config) descriptors {
	d := descriptors{agents: cfg.Limits.MaxConnections, operators: cfg.Operators.MaxConnections}
	if files == 0 || files > 1<<30 {
		return d
	}
	store := storeFiles + cfg.Storage.Connections
	d.operators = min(d.operators, max(fewest, int(files)/4))
	rest := max(2*fewest, int(files)-spareFiles-store-d.operators)
	d.agents = min(d.agents, rest/2)
	d.upstreams = rest - d.agents
	return d
}

// fit divides the descriptors that the process may have. The Go runtime has
// raised the soft limit to the hard one by now.
func (b *base) fit() {
	files := openFiles()
	b.room = divide(files, b.cfg)
	level := slog.LevelInfo
	if b.room.agents < b.cfg.Limits.MaxConnections {
		level = slog.LevelWarn
	}
	b.log.Log(context.Background(), level, "connection limits from the open-file limit", "open_files", files,
		"agent_connections", b.room.agents, "configured", b.cfg.Limits.MaxConnections,
		"upstream_connections", b.room.upstreams, "operator_connections", b.room.operators)
}

// quarter returns what one client may have of all.
func quarter(configured, all int) int64 {
	if configured > 0 {
		return int64(min(configured, all))
	}
	return int64(max(1, all/4))
}

// shares returns the limits of requests and streams.
func (b *base) shares(all, perClient int) admission.Limits {
	all = min(all, b.room.agents)
	return admission.Limits{Total: int64(all), Client: quarter(perClient, all), Anonymous: b.anonymous(int64(all))}
}

// anonymous returns how much of all the agents without an identity may have: if
// agents can be identified, a quarter stays for those that are. Otherwise it
// returns zero, which means everything.
func (b *base) anonymous(all int64) int64 {
	if !b.cfg.Identity.Recognises() {
		return 0
	}
	return max(1, all*3/4)
}
