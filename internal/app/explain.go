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
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A clientKind has the properties of a client that decide how it waits.
type clientKind struct {
	name     string // for the output
	era      mcp.Era
	tasks    bool // asks for a task, or declares support for tasks
	progress bool // asks for progress notifications
}

// clientKinds returns the kinds of clients that can send the method. Only tools can be
// called as a task.
func clientKinds(method string) []clientKind {
	legacy, modern := clientKind{name: mcp.Version20251125, era: mcp.Legacy}, clientKind{name: mcp.Version20260728, era: mcp.Modern}
	if kind, _ := policy.Governed(method); kind != policy.Tool {
		return []clientKind{legacy, modern}
	}
	return []clientKind{
		legacy,
		{name: mcp.Version20251125 + " with a task", era: mcp.Legacy, tasks: true},
		modern,
		{name: mcp.Version20260728 + " with tasks", era: mcp.Modern, tasks: true},
	}
}

// A ClientPlan describes how the gate handles a call of one kind of client.
type ClientPlan struct {
	Client string `json:"client"`
	Plan   string `json:"plan"`
}

// Plans returns how a gate with this configuration handles a call, for each kind of
// client. It uses the real planning code with an empty store, and sends nothing. Set
// progress if the client asks for progress notifications, and c.Session.Client to the name
// of its host.
func Plans(ctx context.Context, cfg config.Config, s *catalog.Settings, c policy.Call, progress bool) (_ []ClientPlan, err error) {
	log := slog.New(slog.DiscardHandler)
	g := catalog.New(s, func() time.Time { return c.Time }, log, nil)
	store, err := (storage.Settings{DSN: storage.Memory}).Open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var known workflows
	known.current.Store(&cfg.Workflows)
	desk, err := approval.New(approval.Config{
		Store: store, Judge: g.Recheck, Settings: approvalSettings(cfg),
		Send:     func(task.Task) approval.Sender { return approval.Unreachable{Err: errPlanOnly} },
		Workflow: known.find,
	})
	if err != nil {
		return nil, err
	}
	hub := conversation.NewGateway(conversation.Config{Catalog: g, Approvals: desk, Waiting: waiting(cfg), Parse: parseLimits(cfg.Limits), Log: log})
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
	case k.era == mcp.Modern:
		capabilities := make(map[string]any)
		if k.tasks {
			capabilities["extensions"] = map[string]any{mcpname.ExtensionTasks: struct{}{}}
		}
		meta[mcpname.MetaProtocolVersion], meta[mcpname.MetaClientCapabilities] = mcp.Version20260728, capabilities
		if c.Session.Client != "" {
			meta[mcpname.MetaClientInfo] = map[string]any{"name": c.Session.Client, "version": c.Session.Version}
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

// A plannedClient is the sender of a call that is only planned.
type plannedClient struct {
	conversation.Client // nil: planning uses only the methods below

	from    catalog.Client
	caller  *upstream.Caller
	version string
}

// newPlannedClient returns the sender of c. The catalog knows the client and the tool's
// annotations, as after a real tools/list.
func newPlannedClient(ctx context.Context, g *catalog.Catalog, c policy.Call, kind clientKind) plannedClient {
	from := catalog.Client{Upstream: c.Upstream, Key: catalog.ClientKey(c.Principal, "", kind.name), Principal: c.Principal}
	session := c.Session
	version := mcp.Version20251125
	if kind.era == mcp.Modern {
		version = mcp.Version20260728
	}
	session.Protocol = version
	g.LearnHandshake(ctx, from, catalog.Handshake{Session: session})
	if of, _ := policy.Governed(c.Method); of == policy.Tool {
		tools, err := json.Marshal([]any{map[string]any{"name": c.Name, "annotations": hints(c.Annotations)}})
		if err == nil {
			g.LearnPage(ctx, from, catalog.Page{Method: mcpname.ToolsList}, jsonrpc.Value{Bytes: tools})
		}
	}
	up := upstream.New(upstream.Config{Name: c.Upstream, Server: unreachable{}})
	return plannedClient{from: from, caller: up.Caller(g, from, nil), version: version}
}

// hints returns annotations in the form of a tools/list result.
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

// Identity implements [conversation.Client].
func (c plannedClient) Identity() catalog.Client { return c.from }

// Caller implements [conversation.Client].
func (c plannedClient) Caller() *upstream.Caller { return c.caller }

// Transport implements [conversation.Client].
func (c plannedClient) Transport() conversation.Transport {
	return conversation.Transport{Header: make(http.Header), Version: c.version}
}

var errPlanOnly = errors.New("the call is only planned")

// unreachable is the upstream of calls that are only planned.
type unreachable struct{}

// Send implements [upstream.Server].
func (unreachable) Send(context.Context, upstream.Request) (*upstream.Response, error) {
	return nil, &upstream.UnsentError{Cause: errPlanOnly}
}
