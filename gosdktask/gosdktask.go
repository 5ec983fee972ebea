// Package gosdktask adds MCP tasks to servers that use the official Go SDK. A call that became
// a task may run longer than its request. It survives a lost connection and, with a store on
// disk, a crash of the server.
//
//	tasks, err := gosdktask.Add(server, gosdktask.Options{
//		Tools: map[string]gosdktask.Tool{"research": {Mode: gosdktask.Optional}},
//	})
//	…
//	go tasks.Run(ctx)
//	http.Handle("/mcp", tasks.Handler(mcp.NewStreamableHTTPHandler(…)))
//
// Tools need no changes. A tool that reports its status, asks its client or keeps variables
// uses [From] and [Ask].
//
// One server serves both eras of tasks: clients of MCP 2025-11-25, which ask for a task,
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
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A Mode says when a call of a tool becomes a task.
type Mode string

// The modes.
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

// A Tool has the options of one tool. Calls of tools without options never become tasks.
type Tool struct {
	Mode Mode // empty means Optional

	// Rerun allows the tool to be called again for the same task. If the process dies, another
	// process that shares the store, or the same one after a restart, repeats the call. Without
	// Rerun, the task then fails with an unknown outcome.
	Rerun bool

	TTL time.Duration // of a task whose client sets none; 0 means [Options.TTL]
}

// Options configure tasks. Only Tools is required.
type Options struct {
	Tools map[string]Tool // by the name of the tool, which the server already has

	// Store keeps the tasks, for example a store of package sqlitestore. Nil keeps them in
	// memory: they end with the process. The caller closes the store after [Tasks.Run] has
	// returned.
	Store task.Store

	// Owner returns the owner of the tasks of a request. Other owners cannot see them. By
	// default the owner is the user of the bearer token, or its subject ("sub" in the Extra of
	// the token); a token with neither gets no tasks. Requests without an owner share their
	// tasks: such a client finds a task by its id, and cannot list tasks.
	Owner func(ctx context.Context, r mcp.Request) string

	TTL     time.Duration // TTL of a task whose client sets none; 0 means an hour
	MaxTTL  time.Duration // largest TTL of a task; 0 means 24 hours
	Polling task.Polling  // how often clients poll; see [task.Polling.ByAge]
	Limits  task.Limits   // on tasks that run at the same time; zero means 1,000 in all

	Lease time.Duration // see [mcptask.Server]; 0 means 10 seconds
	Grace time.Duration // how long tools may still run when the process is to end; 0 means 5 seconds
	Log   *slog.Logger  // for errors of background work; nil means slog.Default
}

// check returns an error if o makes no sense.
func (o *Options) check() error {
	for what, d := range map[string]time.Duration{
		"TTL": o.TTL, "MaxTTL": o.MaxTTL, "Lease": o.Lease, "Grace": o.Grace, "Polling.Min": o.Polling.Min, "Polling.Max": o.Polling.Max,
	} {
		if d < 0 {
			return fmt.Errorf("gosdktask: %s is negative", what)
		}
	}
	if v := reflect.ValueOf(o.Store); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("gosdktask: Store is a nil %T", o.Store)
	}
	most := task.TTLRules{Max: o.MaxTTL}.Longest()
	for name, tool := range o.Tools {
		switch {
		case !slices.Contains([]Mode{"", Optional, Required, AskFirst}, tool.Mode):
			return fmt.Errorf("gosdktask: tool %s has the unknown mode %q", name, tool.Mode)
		case tool.TTL < 0 || tool.TTL > most:
			return fmt.Errorf("gosdktask: the TTL of tool %s is negative or more than MaxTTL", name)
		}
	}
	return nil
}

// Tasks are the tasks of a server. Use [Add] to create one.
type Tasks struct {
	server *mcp.Server
	opts   Options
	core   mcptask.Server
	next   mcp.MethodHandler // the server without tasks
	lines  lines             // for notifications
	ran    atomic.Bool       // Run was called
}

const (
	defaultTTL   = time.Hour
	defaultTotal = 1000
)

// Add adds tasks to a server. Call it after the tools were added, and before the server is used.
//
// A task calls its tool in the background, through the receiving middleware that the server has
// when Add is called. Middleware that must see these calls, for example to check or count them,
// must be added before. Middleware that is added later sees only the requests of clients.
func Add(server *mcp.Server, o Options) (*Tasks, error) {
	if server == nil {
		return nil, errors.New("gosdktask: no server")
	}
	if err := o.check(); err != nil {
		return nil, err
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
	t.core.Ask, t.core.Rerun, t.core.Resume, t.core.CheckAnswer = t.ask, t.rerun, t.resume, checkAnswer
	t.lines.ended = make(chan struct{})
	for _, method := range []string{
		mcpname.TasksGet, mcpname.TasksResult, mcpname.TasksList, mcpname.TasksCancel, mcpname.TasksUpdate,
	} {
		if err := mcp.AddReceivingCustomMethod(server, method, unreached); err != nil {
			return nil, err
		}
	}
	server.AddReceivingMiddleware(t.middleware)
	if err := t.checkServer(context.Background()); err != nil {
		return nil, err
	}
	return t, nil
}

type addingKey struct{}

// checkServer returns an error if the server lacks a tool, or has tasks already. It lists the
// tools, and tasks that were added before notice that.
func (t *Tasks) checkServer(ctx context.Context) error {
	session, err := t.connect(ctx, peer{})
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // the session has no unsent data
	twice := false
	ctx = context.WithValue(ctx, addingKey{}, &twice)
	missing := maps.Clone(t.opts.Tools)
	for cursor, more := "", true; more; more = cursor != "" {
		list, err := t.next(ctx, mcpname.ToolsList, &mcp.ListToolsRequest{Session: session, Params: &mcp.ListToolsParams{Cursor: cursor}})
		if twice {
			return errors.New("gosdktask: tasks were added to the server twice")
		}
		result, ok := list.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return nil // middleware does not let the tools be listed
		}
		for _, tool := range result.Tools {
			delete(missing, tool.Name)
		}
		cursor = result.NextCursor
	}
	for name := range missing {
		return fmt.Errorf("gosdktask: the server has no tool %s; call Add after its tools were added", name)
	}
	return nil
}

// Run does background work until ctx ends: it expires tasks, restarts or fails tasks whose
// process has died, and deletes tasks whose TTL has passed. Then it waits for running tools
// (see [Options]), and returns nil. It ends early with an error if the store is closed, or if a
// newer program has changed the store. Call it once.
func (t *Tasks) Run(ctx context.Context) error {
	if t.ran.Swap(true) {
		return errors.New("gosdktask: Run was called twice")
	}
	err := t.core.Housekeep(ctx)
	t.lines.close()
	return err
}
