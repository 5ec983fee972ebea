package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A clientKind is a way in which clients differ that decides how they wait.
type clientKind struct {
	name     string // for people
	era      wire.Era
	tasks    bool // it asks for a task, or declares that it understands tasks
	progress bool // it asks to be shown progress
}

// clientKinds returns the kinds of clients that a request with the given method can
// come from. Only tools can be called as a task.
func clientKinds(method string) []clientKind {
	legacy, modern := clientKind{name: wire.Version20251125, era: wire.Legacy}, clientKind{name: wire.Version20260728, era: wire.Modern}
	if kind, _ := policy.Governed(method); kind != policy.Tool {
		return []clientKind{legacy, modern}
	}
	return []clientKind{
		legacy,
		{name: wire.Version20251125 + " with a task", era: wire.Legacy, tasks: true},
		modern,
		{name: wire.Version20260728 + " with tasks", era: wire.Modern, tasks: true},
	}
}

// A ClientPlan is what becomes of a call that a client of some kind makes.
type ClientPlan struct {
	Client string `json:"client"`
	Plan   string `json:"plan"`
}

// Plans returns what a gate with the given configuration does with a call, for each
// kind of client. The gate is a real one, without listeners and with an empty store:
// it plans the call and goes no further. Progress says that the client asks to be
// shown progress; the name of its host is in c.Session.
func Plans(ctx context.Context, cfg config.Config, s *gate.Settings, c policy.Call, progress bool) (_ []ClientPlan, err error) {
	log := slog.New(slog.DiscardHandler)
	g := gate.New(s, func() time.Time { return c.Time }, log, nil)
	store, err := (storage.Settings{DSN: storage.Memory}).Open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var known workflows
	known.current.Store(&cfg.Workflows)
	desk, err := approval.New(approval.Config{
		Store: store, Judge: g.Recheck, Settings: deskSettings(cfg),
		Send:     func(task.Task) approval.Sender { return approval.Unreachable{Err: errPlanOnly} },
		Workflow: known.workflow,
	})
	if err != nil {
		return nil, err
	}
	hub := conversation.NewHub(conversation.Config{Gate: g, Desk: desk, Waiting: waiting(cfg), Parse: parseLimits(cfg.Limits), Log: log})
	defer hub.Close()
	var plans []ClientPlan
	for _, kind := range clientKinds(c.Method) {
		kind.progress = progress
		m, err := kind.message(c, parseLimits(cfg.Limits))
		if err != nil {
			return nil, fmt.Errorf("the gate cannot read this call: %w", err)
		}
		p := hub.PlanOf(ctx, newPlannedClient(ctx, g, c, kind), m)
		plans = append(plans, ClientPlan{Client: kind.name, Plan: p.String()})
	}
	return plans, nil
}

// message returns c as a client of this kind sends it.
func (k clientKind) message(c policy.Call, limits jsonrpc.Limits) (conversation.Message, error) {
	meta := make(map[string]any)
	if k.progress {
		meta["progressToken"] = "explain"
	}
	params := map[string]any{"_meta": meta}
	if c.Arguments != nil {
		params["arguments"] = c.Arguments
	}
	if kind, _ := policy.Governed(c.Method); kind == policy.Resource {
		params["uri"] = c.Name
	} else {
		params["name"] = c.Name
	}
	switch {
	case k.era == wire.Modern:
		capabilities := make(map[string]any)
		if k.tasks {
			capabilities["extensions"] = map[string]any{wire.ExtensionTasks: struct{}{}}
		}
		meta[wire.MetaVersion], meta[wire.MetaCapabilities] = wire.Version20260728, capabilities
		if c.Session.Client != "" {
			meta[wire.MetaClientInfo] = map[string]any{"name": c.Session.Client, "version": c.Session.Version}
		}
	case k.tasks:
		params["task"] = struct{}{}
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": c.Method, "params": params}, json.Deterministic(true))
	if err != nil {
		return conversation.Message{}, err
	}
	packet, err := jsonrpc.Parse(body, limits)
	return conversation.Message{Packet: packet, Body: body, Era: k.era}, err
}

// A plannedClient is the sender of a call that is planned and not made.
type plannedClient struct {
	conversation.Client // planning needs no more than the methods below

	from    gate.Client
	caller  *upstream.Caller
	version string
}

// newPlannedClient returns the sender of c. The gate knows the client's program, and
// what the upstream says of the tool, as a gate does after a client has listed tools.
func newPlannedClient(ctx context.Context, g *gate.Gate, c policy.Call, kind clientKind) plannedClient {
	from := gate.Client{Upstream: c.Upstream, Key: gate.ClientKey(c.Principal, "", kind.name), Principal: c.Principal}
	session := c.Session
	version := wire.Version20251125
	if kind.era == wire.Modern {
		version = wire.Version20260728
	}
	session.Protocol = version
	g.Meet(ctx, from, gate.Facts{Session: session})
	if of, _ := policy.Governed(c.Method); of == policy.Tool {
		tools, err := json.Marshal([]any{map[string]any{"name": c.Name, "annotations": hints(c.Annotations)}})
		if err == nil {
			g.Learn(ctx, from, gate.Page{Method: "tools/list"}, jsonrpc.Value{Bytes: tools})
		}
	}
	up := upstream.New(upstream.Config{Name: c.Upstream, Server: unreachable{}})
	return plannedClient{from: from, caller: up.Caller(g, from, nil), version: version}
}

// hints returns annotations as an upstream gives them.
func hints(a policy.Annotations) map[string]bool {
	given := make(map[string]bool)
	for name, value := range map[string]*bool{
		"readOnlyHint": a.ReadOnly, "destructiveHint": a.Destructive, "idempotentHint": a.Idempotent, "openWorldHint": a.OpenWorld,
	} {
		if value != nil {
			given[name] = *value
		}
	}
	return given
}

// From implements [conversation.Client].
func (c plannedClient) From() gate.Client { return c.from }

// Caller implements [conversation.Client].
func (c plannedClient) Caller() *upstream.Caller { return c.caller }

// Transport implements [conversation.Client].
func (c plannedClient) Transport() conversation.Transport {
	return conversation.Transport{Header: make(http.Header), Version: c.version}
}

// errPlanOnly is why an upstream cannot be reached for a call that is only planned.
var errPlanOnly = errors.New("the call is planned and not made")

// unreachable is the upstream of calls that are planned and not made.
type unreachable struct{}

// Send implements [upstream.Server].
func (unreachable) Send(context.Context, upstream.Request) (*upstream.Response, error) {
	return nil, &upstream.UnsentError{Cause: errPlanOnly}
}
