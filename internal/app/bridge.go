package app

import (
	"maps"
	"slices"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/bridge"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// processRestarts is how often a process of an upstream that ends by itself is
// started again within a minute.
const processRestarts = 3

// newBridge returns the way to an upstream that is a program.
func (a *App) newBridge(u config.Upstream) *bridge.Bridge {
	cfg := a.processConfig(u)
	cfg.Dir, cfg.Env, cfg.Restarts = u.Dir, environOf(u, a.cfg.ServerEnviron), processRestarts
	return bridge.New(bridge.Config{
		Server: cfg, Shared: u.Shared, Idle: u.IdleTimeout, Log: a.log,
		Processes: admission.Limits{
			Total: int64(u.MaxProcesses), Client: quarter(u.MaxProcessesPerClient, u.MaxProcesses), Anonymous: a.anonymous(int64(u.MaxProcesses)),
		},
		Records: func() task.Records { return a.keep.GateStore },
	})
}

// processConfig says how a program that is an upstream is run.
func (a *App) processConfig(u config.Upstream) stdioclient.Config {
	limits := a.cfg.Limits
	return stdioclient.Config{
		Name: u.Name, Command: u.Command, MaxLine: int(limits.MaxLine), Depth: limits.MaxDepth, Grace: grace,
		ListTimeout: limits.RequestTimeout, ToolsTimeout: limits.ToolsFetchTimeout, ToolsPages: limits.ToolsMaxPages,
		MaxTaskTTL: u.MaxTaskTTL, Log: a.log, Metrics: a.metrics, Tracing: a.tracing,
	}
}

// environOf returns the environment of an upstream's program. It is never nil, which
// would stand for all that the gate has.
func environOf(u config.Upstream, base []string) []string {
	env := append([]string{}, base...)
	given := reveal(u.Env)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		env = append(env, name+"="+given[name]) // the last one of a name counts
	}
	return env
}

// closeBridges ends the processes of all upstreams that are programs.
func (a *App) closeBridges() {
	var all sync.WaitGroup
	for _, b := range a.bridges {
		all.Go(b.Close)
	}
	all.Wait()
}
