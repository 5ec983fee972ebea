// Package gosdktask adds MCP tasks to servers that use the official Go SDK. A call that became
// a task may run longer than its request. It survives a lost connection and, with a store on
// disk, a crash of the server.
//
//	tasks, err := gosdktask.Add(server, gosdktask.Options{
//		Tools: map[string]gosdktask.Mode{"research": gosdktask.Optional},
//	})
//	…
//	go tasks.Run(ctx)
//	http.Handle("/mcp", tasks.HTTP(mcp.NewStreamableHTTPHandler(…)))
//
// Tools need no changes. A tool that reports its status, asks its client or keeps variables
// gets its task with [From].
//
// One server serves both generations of tasks: clients of MCP 2025-11-25, which ask for a task,
// and clients of 2026-07-28, for which the server decides. Over HTTP, 2026-07-28 needs a
// handler with the option Stateless, because the SDK speaks 2026-07-28 only without sessions. A
// handler with sessions serves 2025-11-25.
//
// The package only adapts the SDK. Package mcptask implements the protocol, and package task
// the tasks and their stores.
package gosdktask

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A Mode says when a call of a tool becomes a task.
type Mode string

// The modes. Calls of a tool without a mode never become tasks.
const (
	// Optional makes a call a task if its client supports tasks. A client of 2025-11-25 must
	// also ask for one. Other clients wait for the result.
	Optional Mode = "optional"

	// Required makes every call a task, and refuses clients that do not support tasks.
	Required Mode = "required"

	// AskFirst is like Optional, for a tool that may return InputRequests. A client of
	// 2026-07-28 is asked before a task exists, and its call with the answers becomes the task.
	// With the other modes the task itself asks.
	AskFirst Mode = "ask_first"
)

// Options configure tasks. Only Tools is required.
type Options struct {
	Tools map[string]Mode // by the name of the tool

	// Store keeps the tasks, for example a store of package sqlitestore. Nil keeps them in
	// memory: they end with the process. The caller closes the store after [Tasks.Run] has
	// returned.
	Store task.Store

	// Owner returns the owner of the tasks of a request. Other owners cannot see them. By
	// default the owner is the user of the bearer token. Requests without an owner share their
	// tasks: such a client finds a task by its id, and cannot list tasks.
	Owner func(ctx context.Context, r mcp.Request) string

	TTL     time.Duration // TTL of a task whose client sets none; 0 means an hour
	MaxTTL  time.Duration // largest TTL of a task; 0 means 24 hours
	Polling task.Polling  // how often clients poll: by default a tenth of the task's age, at least 500 ms
	Limits  task.Limits   // on tasks that run at the same time; zero means 1,000 in all

	// Rerun names the tools whose work may be repeated. If the process dies, another process
	// that shares the store, or the same one after a restart, calls the tool again. Tasks of
	// all other tools then fail with an unknown outcome.
	Rerun []string

	Lease time.Duration // see [mcptask.Server]; 0 means 10 seconds
	Grace time.Duration // how long tools may still run when the process is to end; 0 means 5 seconds
	Log   *slog.Logger  // for errors of background work; nil means slog.Default
}

// Tasks are the tasks of a server. Use [Add] to create one.
type Tasks struct {
	server *mcp.Server
	opts   Options
	core   mcptask.Server
	next   mcp.MethodHandler // the server without tasks
	lines  lines             // for notifications
}

const (
	defaultTTL   = time.Hour
	defaultTotal = 1000
)

// Add adds tasks to a server. Call it before the server is used. Middleware that should see the
// calls that tasks make must be added before.
func Add(server *mcp.Server, o Options) (*Tasks, error) {
	for name, mode := range o.Tools {
		if !slices.Contains([]Mode{Optional, Required, AskFirst}, mode) {
			return nil, fmt.Errorf("gosdktask: tool %s has the unknown mode %q", name, mode)
		}
	}
	for _, name := range o.Rerun {
		if o.Tools[name] == "" {
			return nil, fmt.Errorf("gosdktask: tool %s may be run again but has no mode", name)
		}
	}
	if o.Store == nil {
		o.Store = memstore.New(memstore.Options{})
	}
	if o.Limits == (task.Limits{}) {
		o.Limits.Total = defaultTotal
	}
	o.TTL, o.Log = cmp.Or(o.TTL, defaultTTL), cmp.Or(o.Log, slog.Default())
	t := &Tasks{server: server, opts: o, core: mcptask.Server{
		Store: o.Store, Now: time.Now, // tools run in real time
		Limits: o.Limits, Polling: o.Polling, MaxTTL: o.MaxTTL,
		Log: o.Log, Lease: o.Lease, Grace: o.Grace,
	}}
	t.core.Ask, t.core.Rerun, t.core.Resume = t.ask, t.rerun, t.resume
	t.lines.ended = make(chan struct{})
	for _, method := range []string{
		mcpname.TasksGet, mcpname.TasksResult, mcpname.TasksList, mcpname.TasksCancel, mcpname.TasksUpdate,
	} {
		if err := mcp.AddReceivingCustomMethod(server, method, unreached); err != nil {
			return nil, err
		}
	}
	server.AddReceivingMiddleware(t.middleware)
	return t, nil
}

// Run does background work until ctx ends: it expires tasks, restarts or fails tasks whose
// process has died, and deletes tasks whose TTL has passed. Then it waits for running tools
// (see [Options]), and returns. Call it once.
func (t *Tasks) Run(ctx context.Context) {
	t.core.Housekeep(ctx)
	t.lines.close()
}
