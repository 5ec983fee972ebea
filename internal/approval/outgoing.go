package approval

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// The gate makes the request for a held call from the parts that its approvers
// were shown. It does not pass on the request that the agent made:
//
//   - its method, name and arguments;
//   - what else there is in params and in their metadata, shown as [task.Call]'s
//     Also: members that the gate does not know may mean something to the
//     upstream;
//   - nothing of what is meant for the gate alone, or says nothing about the call:
//     the wish for a task, variables of the client, the token for progress, of
//     which the gate reports in its own way, the trace, and the request's id.

// The members of [task.Call.Also].
const (
	alsoParams = "params"
	alsoMeta   = "_meta"
)

// maxAlso is how many bytes may be sent besides the arguments: as much as
// approvers are shown.
const maxAlso = casefile.MaxShown

// The members of params that are shown elsewhere, or never sent as they came.
var knownParams = []string{"arguments", "task", "_meta", "inputResponses", "requestState"}

// The members of _meta that are never sent as they came. The version is always
// the same: a request in another one is not held.
var knownMeta = []string{"progressToken", metaVersion, "traceparent", "tracestate", "baggage"}

// metaVersion is the member of _meta with the protocol version of a request.
const metaVersion = "io.modelcontextprotocol/protocolVersion"

// alsoSent returns what is sent with the call in m besides its name and
// arguments, or nothing.
func alsoSent(m *jsonrpc.Message) (string, error) {
	also := object{}
	if params := unknownParams(m); len(params) > 0 {
		also.add(alsoParams, params.text())
	}
	if meta := unknownMeta(m.Params.Meta); len(meta) > 0 {
		also.add(alsoMeta, meta.text())
	}
	if len(also) == 0 {
		return "", nil
	}
	text := also.text()
	if len(text) > maxAlso {
		return "", fmt.Errorf("the call carries %d bytes besides its arguments; a call that needs approval can carry %d", len(text), maxAlso)
	}
	return string(text), nil
}

// unknownParams returns the members of params that are neither shown elsewhere
// nor dropped.
func unknownParams(m *jsonrpc.Message) object {
	subject := policy.SubjectMember(m.Method)
	params := object{}
	for name, value := range m.Params.Members() {
		if name != subject && !slices.Contains(knownParams, name) {
			params.add(name, value.Bytes)
		}
	}
	return params
}

// unknownMeta is unknownParams for metadata.
func unknownMeta(v jsonrpc.Value) object {
	meta := object{}
	for name, value := range v.Members() {
		if slices.Contains(knownMeta, name) || strings.HasPrefix(name, task.ClientPrefix) {
			continue
		}
		if name == mcptask.MetaClientCapabilities {
			value.Bytes = withoutTasks(value)
		}
		if !isEmptyObject(value.Bytes) {
			meta.add(name, value.Bytes)
		}
	}
	return meta
}

// maxSubject is how many bytes the name of a tool or prompt, or the URI of a resource,
// may have in a call that needs approval: every place where people approve shows that
// much at once.
const maxSubject = 2000

// CheckCarried returns why the call in m, which is about the named subject, cannot be
// held: its name is too long to be shown, or it carries more besides its arguments than
// approvers can be shown.
func CheckCarried(m *jsonrpc.Message, subject string) error {
	if len(subject) > maxSubject {
		return fmt.Errorf("a call that needs approval cannot have a %s of more than %d bytes, of which its approver might not see the end",
			policy.SubjectMember(m.Method), maxSubject)
	}
	_, err := alsoSent(m)
	return err
}

// withoutTasks returns capabilities without the tasks extension: whether the
// upstream makes a task of a held call is between it and the gate.
func withoutTasks(capabilities jsonrpc.Value) []byte {
	extensions := capabilities.Member("extensions")
	if !extensions.Member(mcptask.Extension).Present() {
		return capabilities.Bytes
	}
	rest := extensions.Without(mcptask.Extension)
	if isEmptyObject(rest) {
		return capabilities.Without("extensions")
	}
	extensions.Offset -= capabilities.Offset
	var patch jsonrpc.Patch
	patch.Replace(extensions, rest)
	return patch.Apply(capabilities.Bytes)
}

func isEmptyObject(text []byte) bool {
	return len(text) > 1 && text[0] == '{' && len(bytes.TrimSpace(text[1:len(text)-1])) == 0
}

// An object is a JSON object that is being written: its members.
type object [][]byte

func (o *object) add(name string, value []byte) {
	*o = append(*o, append(append(jsonrpc.AppendString(nil, name), ':'), value...))
}

func (o *object) addAll(of jsonrpc.Value) {
	for name, value := range of.Members() {
		o.add(name, value.Bytes)
	}
}

func (o *object) text() []byte {
	return slices.Concat([]byte{'{'}, bytes.Join(*o, []byte{','}), []byte{'}'})
}

// Outgoing returns the message with which the call of t is made: a request, or a
// batch. It asks for no task.
func Outgoing(t task.Task) ([]byte, error) {
	p, err := jsonrpc.Parse([]byte(t.Call.Message), jsonrpc.Limits{})
	if err != nil {
		return nil, err
	}
	if !p.Batch {
		return request(requestID(t, 0), t.Call.Method, outgoingParams(t.Call, &p.Messages[0])), nil
	}
	messages := make([][]byte, len(p.Messages))
	for i := range p.Messages {
		m := &p.Messages[i]
		id := requestID(t, i)
		if m.Kind != jsonrpc.Request {
			id = nil
		}
		messages[i] = request(id, m.Method, m.Params.Bytes)
	}
	return slices.Concat([]byte{'['}, bytes.Join(messages, []byte{','}), []byte{']'}), nil
}

func request(id []byte, method string, params []byte) []byte {
	o := object{[]byte(`"jsonrpc":"2.0"`)}
	if id != nil {
		o.add("id", id)
	}
	o.add("method", jsonrpc.AppendString(nil, method))
	if params != nil {
		o.add("params", params)
	}
	return o.text()
}

// requestID returns the id of the request, or of the one at a place in a batch,
// with which the call of t is made. Every replica knows it, to cancel the call,
// and nobody else can derive the task from it.
func requestID(t task.Task, place int) []byte {
	sum := sha256.Sum256([]byte("request " + strconv.Itoa(place) + " of " + string(t.ID)))
	return jsonrpc.AppendString(nil, "call-"+hex.EncodeToString(sum[:16]))
}

// outgoingParams returns the params of the request that makes c, which came in m.
func outgoingParams(c task.Call, m *jsonrpc.Message) []byte {
	params := object{}
	params.add(policy.SubjectMember(c.Method), jsonrpc.AppendString(nil, c.Name))
	if c.Arguments != "" {
		params.add("arguments", []byte(c.Arguments))
	}
	also := jsonrpc.Value{Bytes: []byte(c.Also)}
	if c.Also == "" {
		also = jsonrpc.Value{}
	}
	params.addAll(also.Member(alsoParams))
	meta := object{}
	if version := m.Params.Meta.Member(metaVersion); version.Present() {
		meta.add(metaVersion, version.Bytes)
		if !also.Member(alsoMeta).Member(mcptask.MetaClientCapabilities).Present() {
			meta.add(mcptask.MetaClientCapabilities, []byte("{}"))
		}
	}
	if meta.addAll(also.Member(alsoMeta)); len(meta) > 0 {
		params.add("_meta", meta.text())
	}
	return params.text()
}
