package policy

import (
	"errors"
	"slices"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// The entity types of thoughtgate.cedarschema.
const (
	typePrincipal types.EntityType = "ThoughtGate::Principal"
	typeGroup     types.EntityType = "ThoughtGate::Group"
	typeUpstream  types.EntityType = "ThoughtGate::Upstream"
	typeTool      types.EntityType = "ThoughtGate::Tool"
	typeResource  types.EntityType = "ThoughtGate::Resource"
	typePrompt    types.EntityType = "ThoughtGate::Prompt"
	typeNull      types.EntityType = "ThoughtGate::Null"
	typeAction    types.EntityType = "ThoughtGate::Action"
)

// entities are the type of the resource and the id of the action by the kind of a call.
var entities = map[Kind]struct {
	resource types.EntityType
	action   types.String
}{
	Tool: {typeTool, "call"}, Resource: {typeResource, "read"}, Prompt: {typePrompt, "get"},
}

func resourceID(kind Kind, name string) types.EntityUID {
	return types.NewEntityUID(entities[kind].resource, types.String(name))
}

// A question is a call in the form of Cedar. It implements [types.EntityGetter].
type question struct {
	call      *Call
	kind      Kind
	zone      *time.Location
	principal types.EntityUID
	groups    []types.EntityUID
	action    types.EntityUID
	resource  types.EntityUID
	upstream  types.EntityUID

	principalEntity, resourceEntity types.Entity // set when Cedar first asks for them
}

func newQuestion(c *Call, kind Kind, zone *time.Location) *question {
	q := &question{
		call: c, kind: kind, zone: zone,
		action:   types.NewEntityUID(typeAction, entities[kind].action),
		resource: resourceID(kind, c.Name),
		upstream: types.NewEntityUID(typeUpstream, types.String(c.Upstream)),
	}
	q.principal, q.groups = principalIDs(&c.Principal)
	return q
}

// principalIDs returns the entities of p and of its groups. Anonymous principals, and only
// they, have an empty id.
func principalIDs(p *Principal) (types.EntityUID, []types.EntityUID) {
	if p.Anonymous {
		return types.NewEntityUID(typePrincipal, ""), nil
	}
	groups := make([]types.EntityUID, len(p.Groups))
	for i, g := range p.Groups {
		groups[i] = types.NewEntityUID(typeGroup, types.String(g))
	}
	return types.NewEntityUID(typePrincipal, types.String(p.ID)), groups
}

// Get implements [types.EntityGetter].
func (q *question) Get(uid types.EntityUID) (types.Entity, bool) {
	switch uid {
	case q.principal:
		if q.principalEntity.UID != uid {
			q.principalEntity = types.Entity{
				UID: uid, Parents: types.NewEntityUIDSet(q.groups...),
				Attributes: types.NewRecord(types.RecordMap{
					"id": uid.ID, "anonymous": types.Boolean(q.call.Principal.Anonymous),
				}),
			}
		}
		return q.principalEntity, true
	case q.resource:
		if q.resourceEntity.UID != uid {
			words, first := wordAttributes(string(uid.ID))
			q.resourceEntity = types.Entity{
				UID: uid, Parents: types.NewEntityUIDSet(q.upstream),
				Attributes: types.NewRecord(types.RecordMap{"name": uid.ID, "words": words, "firstWord": first}),
			}
		}
		return q.resourceEntity, true
	default:
		return types.Entity{UID: uid}, uid == q.upstream || uid == q.action || slices.Contains(q.groups, uid)
	}
}

// inScope reports whether the scope of p matches q.
func (q *question) inScope(p *ast.Policy) bool {
	return admits(p.Principal, q.principal, q.groups) &&
		admits(p.Action, q.action, nil) &&
		admits(p.Resource, q.resource, []types.EntityUID{q.upstream})
}

func admits(scope ast.IsScopeNode, uid types.EntityUID, parents []types.EntityUID) bool {
	in := func(e types.EntityUID) bool { return e == uid || slices.Contains(parents, e) }
	switch n := scope.(type) {
	case ast.ScopeTypeEq:
		return n.Entity == uid
	case ast.ScopeTypeIn:
		return in(n.Entity)
	case ast.ScopeTypeInSet:
		return slices.ContainsFunc(n.Entities, in)
	case ast.ScopeTypeIs:
		return n.Type == uid.Type
	case ast.ScopeTypeIsIn:
		return n.Type == uid.Type && in(n.Entity)
	default:
		return true
	}
}

// contextNames are the attributes of the context.
var contextNames = [...]types.String{
	"arguments", "decimals", "upstream", "method", "time", "hour", "weekday", "session", "annotations",
}

// request returns the request for Cedar. Its context has only what the policies may read.
func (q *question) request(policies selection) (cedar.Request, error) {
	context := types.RecordMap{}
	read := policies.reads(func(r *reading) *reads { return &r.context })
	for _, name := range contextNames {
		if !read(name) {
			continue
		}
		v, err := q.attribute(name, policies)
		if err != nil {
			return cedar.Request{}, err
		}
		if v != nil {
			context[name] = v
		}
	}
	return cedar.Request{
		Principal: q.principal, Action: q.action, Resource: q.resource,
		Context: types.NewRecord(context),
	}, nil
}

// attribute returns an attribute of the context, or nil if the call does not have it.
func (q *question) attribute(name types.String, policies selection) (types.Value, error) {
	now := q.call.Time.In(q.zone)
	switch name {
	case "arguments":
		return mapArguments(q.call.Arguments, policies.names(func(r *reading) *reads { return &r.arguments }), wholeOrDecimal)
	case "decimals":
		return mapArguments(q.call.Arguments, policies.names(func(r *reading) *reads { return &r.decimals }), alwaysDecimal)
	case "upstream":
		return q.upstream.ID, nil
	case "method":
		return types.String(q.call.Method), nil
	case "time":
		return types.NewDatetime(now), nil
	case "hour":
		return types.Long(now.Hour()), nil
	case "weekday":
		return types.Long((now.Weekday()+6)%7 + 1), nil
	case "session":
		return q.call.Session.record(), nil
	default:
		if q.kind != Tool {
			return nil, nil
		}
		return q.call.Annotations.record(q.call.Listed), nil
	}
}

func (s *Session) record() types.Record {
	return types.NewRecord(types.RecordMap{
		"client":   types.String(s.Client),
		"version":  types.String(s.Version),
		"protocol": types.String(s.Protocol),
	})
}

func (a *Annotations) record(listed bool) types.Record {
	readOnly := given(a.ReadOnly, false)
	return types.NewRecord(types.RecordMap{
		"listed":          types.Boolean(listed),
		"hinted":          types.Boolean(a.ReadOnly != nil || a.Destructive != nil),
		"title":           types.String(a.Title),
		"readOnlyHint":    readOnly,
		"destructiveHint": given(a.Destructive, !bool(readOnly)),
		"idempotentHint":  given(a.Idempotent, false),
		"openWorldHint":   given(a.OpenWorld, true),
	})
}

func given(hint *bool, otherwise bool) types.Boolean {
	if hint == nil {
		return types.Boolean(otherwise)
	}
	return types.Boolean(*hint)
}

// problemOf returns the problem of arguments, without their names.
func problemOf(err error) string {
	if m, ok := errors.AsType[*mappingError](err); ok {
		return m.problem
	}
	return "a form that Cedar does not support"
}
