package approval

import (
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// MethodBatch is the method of a held call that is a whole batch of requests.
const MethodBatch = casefile.MethodBatch

// readBatch returns what a batch is about: everything in it but the ids that
// the client gave its requests, which another time are others.
func readBatch(upstream string, p jsonrpc.Packet, text string) (task.Call, error) {
	var names []string
	arguments := []byte{'['}
	for i := range p.Messages {
		m := &p.Messages[i]
		if m.Kind == jsonrpc.Response {
			return task.Call{}, errors.New("an answer in a batch cannot be held")
		}
		if subject, governed := subjectOf(m); governed {
			names = append(names, subject)
		}
		if i > 0 {
			arguments = append(arguments, ',')
		}
		arguments = append(jsonrpc.AppendString(append(arguments, `{"method":`...), m.Method), `,"params":`...)
		params := m.Params.Bytes
		if len(params) == 0 {
			params = []byte("{}")
		}
		arguments = append(append(arguments, params...), '}')
	}
	if len(names) == 0 {
		return task.Call{}, errNotHeld
	}
	return task.Call{
		Upstream: upstream, Method: MethodBatch, Name: strings.Join(names, ", "),
		Arguments: string(append(arguments, ']')), Message: text,
	}, nil
}

// subjectOf returns the name that policy judges a message by, and whether it
// judges it at all.
func subjectOf(m *jsonrpc.Message) (string, bool) {
	kind, governed := policy.Governed(m.Method)
	name := m.Params.Name
	if kind == policy.Resource {
		name = m.Params.URI
	}
	subject, named := name.Text()
	return subject, governed && named && subject != ""
}

// toolsInBatch returns what the messages of c are about, if it is a batch.
func toolsInBatch(c Call) []casefile.ToolInBatch {
	p, err := jsonrpc.Parse(c.Message, jsonrpc.Limits{})
	if err != nil || !p.Batch {
		return nil
	}
	tools, first := make([]casefile.ToolInBatch, len(p.Messages)), map[casefile.ToolInBatch]int{}
	for i := range p.Messages {
		subject, governed := subjectOf(&p.Messages[i])
		if !governed {
			continue
		}
		tools[i] = casefile.ToolInBatch{Method: p.Messages[i].Method, Name: casefile.JournalName(subject)}
		if _, seen := first[tools[i]]; !seen && i < len(c.InBatch) {
			first[tools[i]] = i
		}
	}
	share := min(maxDescription, maxDescriptions/max(1, len(first)))
	for _, i := range first {
		tools[i].Description = plain.Text(c.InBatch[i].Description, share)
	}
	return tools
}

// maxDescriptions is how many characters of descriptions are kept of a batch. The tools in
// it share them equally.
const maxDescriptions = 4 * maxDescription

// inBatch returns what of a task the policy is asked about, one by one. Of one
// that cannot be read it returns what nobody allows.
func inBatch(t task.Task, f casefile.Facts, now time.Time) []policy.Call {
	p, err := jsonrpc.Parse([]byte(t.Call.Message), jsonrpc.Limits{})
	if err != nil || len(f.InBatch) != len(p.Messages) {
		return []policy.Call{{Time: now}}
	}
	var calls []policy.Call
	for i := range p.Messages {
		m := &p.Messages[i]
		if subject, governed := subjectOf(m); governed {
			calls = append(calls, policy.Call{
				Upstream: t.Call.Upstream, Method: m.Method, Name: subject,
				Arguments: jsontext.Value(m.Params.Arguments.Bytes),
				Principal: f.Principal, Annotations: f.InBatch[i], Session: f.Session, Time: now,
			})
		}
	}
	return calls
}
