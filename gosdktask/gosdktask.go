// Package gosdktask gives MCP tasks to servers that are written with the official
// Go SDK: tools that run longer than a request, whose calls survive a lost
// connection, and, with a store on disk, a crash of the server.
//
//	tasks, err := gosdktask.Add(server, gosdktask.Options{
//		Tools: map[string]gosdktask.Mode{"research": gosdktask.Optional},
//	})
//	…
//	go tasks.Run(ctx)
//	http.Handle("/mcp", tasks.HTTP(mcp.NewStreamableHTTPHandler(…)))
//
// The tools stay as they are. A tool that wants to say how far it is, to ask its
// client something or to keep notes finds its task with [From].
//
// One server serves both generations of tasks: clients of MCP 2025-11-25, which
// ask for a task, and those of 2026-07-28, for which the server decides. With HTTP
// that needs a handler with the option Stateless, because the SDK speaks
// 2026-07-28 without sessions only; a handler with sessions serves 2025-11-25.
//
// The package adapts the SDK and nothing more. The protocol is in package mcptask, and
// tasks and their stores are in package task.
package gosdktask

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A Mode says when a call of a tool becomes a task.
type Mode string

// The modes. A tool without one is never a task.
const (
	// Optional makes a task of a call whose client understands tasks: on
	// 2025-11-25 if it asks for one. Other clients wait for the result.
	Optional Mode = "optional"

	// Required makes a task of every call, and refuses clients that do not
	// understand tasks.
	Required Mode = "required"

	// AskFirst is Optional for a tool that may return InputRequests: a client of
	// 2026-07-28 is asked before there is a task, and the call that brings the
	// answers becomes the task. With the other modes the task itself asks.
	AskFirst Mode = "ask_first"
)

// Options say how tasks are kept. Only Tools must be given.
type Options struct {
	Tools map[string]Mode // by the names of the tools

	// Store keeps the tasks, such as one of package sqlitestore. Nil keeps them in
	// memory: they end with the process. The caller closes a store of its own, after
	// [Tasks.Run] has returned.
	Store task.Store

	// Owner returns who makes a request; nobody else sees the task. By default it is the
	// user of the bearer token. Requests without an owner share their tasks: a client
	// finds a task by its id, and cannot list any.
	Owner func(ctx context.Context, r mcp.Request) string

	TTL     time.Duration // how long a task lives if its client does not say; 0 means an hour
	MaxTTL  time.Duration // how long it lives at most; 0 means 24 hours
	Polling task.Polling  // how often clients are asked to poll: a tenth of the task's age, from 500 ms
	Limits  task.Limits   // on tasks that run at the same time; zero means 1,000 in all

	// Rerun names the tools whose work may be done twice: if the process dies,
	// another one that shares the store, or the same one when it is started again,
	// calls the tool once more. A task of any other tool fails then, and says that
	// nobody knows whether the tool has done its work.
	Rerun []string

	Lease time.Duration // see [mcptask.Server]; 0 means 10 seconds
	Grace time.Duration // how long tools have to end when the process is to end; 0 means 5 seconds
	Log   *slog.Logger  // what goes wrong in the background; nil means slog.Default
}

// Tasks are the tasks of a server. See [Add].
type Tasks struct {
	server *mcp.Server
	opts   Options
	core   mcptask.Server
	next   mcp.MethodHandler // the server without tasks
	lines  lines             // over which clients are told of changes
}

const (
	defaultTTL   = time.Hour
	defaultTotal = 1000
)

// Add gives tasks to a server. It must be called before the server is used, and
// for tools that middleware is to see after all other middleware was added.
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
		Store: o.Store, Now: time.Now, //nolint:forbidigo // tools run in real time
		Limits: o.Limits, Polling: o.Polling, MaxTTL: o.MaxTTL,
		Log: o.Log, Lease: o.Lease, Grace: o.Grace,
	}}
	t.core.Ask, t.core.Rerun = t.ask, t.rerun
	t.lines.ended = make(chan struct{})
	for _, method := range []string{
		mcptask.MethodGet, mcptask.MethodResult, mcptask.MethodList, mcptask.MethodCancel, mcptask.MethodUpdate,
	} {
		if err := mcp.AddReceivingCustomMethod(server, method, unreached); err != nil {
			return nil, err
		}
	}
	server.AddReceivingMiddleware(t.middleware)
	return t, nil
}

// Run does what has to be done besides answering requests until ctx ends: it ends
// tasks whose time is over, takes up or fails those whose process has died, and
// deletes what nobody can ask for any more. Then it gives the tools that run time
// to end, see [Options], and returns. It is called once.
func (t *Tasks) Run(ctx context.Context) {
	t.core.Housekeep(ctx)
	t.lines.close()
}
