package app

import (
	"context"
	"log/slog"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

const (
	spareFiles          = 64  // for listeners, logs, files, identity providers and traces
	storeFiles          = 24  // for the store, besides storage.connections
	operatorConnections = 256 // of all operators
	minConnections      = 8   // of agents, even with very few descriptors
)

// connectionLimits divides the process's file descriptors, so that no group of clients can
// use up those of another.
type connectionLimits struct {
	agents    int // connections of agents
	upstreams int // connections to upstreams: every request of an agent may need one
	operators int // connections of operators
}

// divide returns the connection limits for a process with this limit of open files. Zero
// means no limit.
func divide(files uint64, cfg config.Config) connectionLimits {
	d := connectionLimits{agents: cfg.Limits.MaxConnections, operators: operatorConnections}
	if files == 0 || files > 1<<30 {
		return d
	}
	store := storeFiles + cfg.Storage.Connections
	d.operators = min(d.operators, max(minConnections, int(files)/4))
	rest := max(2*minConnections, int(files)-spareFiles-store-d.operators)
	d.agents = min(d.agents, rest/2)
	d.upstreams = rest - d.agents
	return d
}

// divideDescriptors sets the connection limits from the process's limit of open files. The
// Go runtime has already raised the soft limit to the hard one.
func (b *base) divideDescriptors() {
	files := openFiles()
	b.connections = divide(files, b.cfg)
	level := slog.LevelInfo
	if b.connections.agents < b.cfg.Limits.MaxConnections && b.cfg.Given("limits.max_connections") {
		level = slog.LevelWarn
	}
	b.log.Log(context.Background(), level, "connection limits from the open-file limit", "open_files", files,
		"agent_connections", b.connections.agents, "configured", b.cfg.Limits.MaxConnections,
		"upstream_connections", b.connections.upstreams, "operator_connections", b.connections.operators)
}

// quarter returns one client's share.
func quarter(all int) int64 { return int64(max(1, all/4)) }

// shares returns limits of requests or streams.
func (b *base) shares(all int) admission.Limits {
	all = min(all, b.connections.agents)
	return admission.Limits{Total: int64(all), Client: quarter(all), Anonymous: b.anonymous(int64(all))}
}

// anonymous returns the share of agents without an identity. If the configuration
// identifies agents, a quarter stays reserved for identified ones. Otherwise it returns
// zero, which means no limit.
func (b *base) anonymous(all int64) int64 {
	if !b.cfg.Identity.Recognises() {
		return 0
	}
	return max(1, all*3/4)
}
