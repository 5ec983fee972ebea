package approval

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// MethodBatch is the method of a held batch.
const MethodBatch = review.MethodBatch

// readBatch returns the call of a batch: everything in it except the request ids, which differ
// each time.
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

// subjectOf returns the name that policy judges a message by, and whether policy judges the
// message at all.
func subjectOf(m *jsonrpc.Message) (string, bool) {
	kind, governed := policy.Governed(m.Method)
	name := m.Params.Name
	if kind == policy.Resource {
		name = m.Params.URI
	}
	subject, named := name.Text()
	return subject, governed && named && subject != ""
}

// toolsInBatch returns the tools of the messages of c, if it is a batch.
func toolsInBatch(c Call, p jsonrpc.Packet) []review.ToolInBatch {
	if !p.Batch {
		return nil
	}
	tools, first := make([]review.ToolInBatch, len(p.Messages)), map[review.ToolInBatch]int{}
	for i := range p.Messages {
		subject, governed := subjectOf(&p.Messages[i])
		if !governed {
			continue
		}
		tools[i] = review.ToolInBatch{Method: p.Messages[i].Method, Name: review.JournalName(subject)}
		if _, seen := first[tools[i]]; !seen && i < len(c.InBatch) {
			first[tools[i]] = i
		}
	}
	share := min(maxDescription, maxDescriptions/max(1, len(first)))
	for _, i := range first {
		tools[i].Description = safetext.Text(c.InBatch[i].Description, share)
	}
	return tools
}

// maxDescriptions is how many characters of descriptions are stored with a batch. Its tools share
// them equally.
const maxDescriptions = 4 * maxDescription

// inBatch returns the questions to policy about a batch, one per message. If the facts do not
// match the messages, it returns a question that every policy denies.
func inBatch(t task.Task, messages []jsonrpc.Message, f review.Facts, now time.Time) []policy.Call {
	if len(f.InBatch) != len(messages) {
		return []policy.Call{{Time: now}}
	}
	var calls []policy.Call
	for i := range messages {
		m := &messages[i]
		if subject, governed := subjectOf(m); governed {
			digest := ""
			if i < len(f.DigestsInBatch) {
				digest = f.DigestsInBatch[i]
			}
			calls = append(calls, policy.Call{
				Upstream: t.Call.Upstream, Method: m.Method, Name: subject,
				Arguments: jsontext.Value(m.Params.Arguments.Bytes),
				Principal: f.Principal, Annotations: f.InBatch[i], Listed: digest != "", Digest: digest, Accepted: slices.Contains(f.Accepted, digest),
				Changed: i < len(f.ChangesInBatch) && f.ChangesInBatch[i] != nil, Session: f.Session, Time: now,
			})
		}
	}
	return calls
}
