package conversation

import (
	"cmp"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// judgedCall returns the entry about a message that policy judged, in a slice of at most one
// element. Its outcome is empty if the message is forwarded.
func (g *Gateway) judgedCall(m *jsonrpc.Message, j catalog.Judgement, problem *mcp.Problem) []callrecord.Entry {
	if _, governed := policy.Governed(m.Method); !governed || j.Verdict.Action == "" || !g.cfg.Record.Records() {
		return nil
	}
	e := entryOf(j)
	switch {
	case problem == nil:
	case j.Verdict.Action == policy.Deny:
		e.Outcome = callrecord.Denied
	default:
		e.Outcome = callrecord.Refused
	}
	return []callrecord.Entry{e}
}

// entryOf returns the entry about a message without its outcome.
func entryOf(j catalog.Judgement) callrecord.Entry {
	c := &j.Call
	e := callrecord.Entry{
		Time: c.Time, Event: callrecord.Judged, Upstream: c.Upstream, Method: c.Method, Name: c.Name,
		Client: callrecord.Client{Name: c.Session.Client, Version: c.Session.Version, Protocol: c.Session.Protocol},
		Hints:  c.Annotations, Listed: c.Listed, Changed: c.Changed, ToolDigest: c.Digest, Accepted: c.Accepted, Arguments: c.Arguments,
	}
	e.SetVerdict(&j.Verdict)
	if !c.Principal.Anonymous {
		e.Principal, e.Groups = c.Principal.ID, c.Principal.Groups
	}
	return e
}

// recordHeld records that messages were held as a task, attached to it, or not held because of err.
func (g *Gateway) recordHeld(entries []callrecord.Entry, id task.ID, attached bool, err error) {
	outcome := callrecord.Held
	switch {
	case errors.Is(err, ErrGone):
		outcome = callrecord.Gone
	case err != nil:
		id, outcome = "", callrecord.Refused
	case attached:
		outcome = callrecord.Attached
	}
	for _, e := range entries {
		e.ID, e.Outcome = string(id), outcome
		g.cfg.Record.Add(e)
	}
}

// record records the messages of the request that policy judged. Those that were forwarded have the
// given outcome.
func (r *Request) record(outcome string, took time.Duration) {
	for _, e := range r.judged {
		e.Outcome, e.Took = cmp.Or(e.Outcome, outcome), took
		r.gateway.cfg.Record.Add(e)
	}
}
