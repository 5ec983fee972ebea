package approval

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// The gate writes the request for a held call from the parts that approvers saw. It does not
// forward the agent's request:
//
//   - The method, the name and the arguments are sent.
//   - Other members of params and _meta are sent too, because they may mean something to the
//     upstream. Approvers see them as [task.Call]'s Also.
//   - Members for the gate are dropped, and so are those that do not describe the call: the
//     request for a task, client variables, the progress token, the trace, and the request id.

// The members of [task.Call.Also].
const (
	alsoParams = "params"
	alsoMeta   = "_meta"
)

// maxAlso is how many bytes may be sent besides the arguments. Approvers see all of them.
const maxAlso = review.MaxShown

// knownParams are the members of params that are shown elsewhere or dropped.
var knownParams = []string{"arguments", "task", "_meta", "inputResponses", "requestState"}

// knownMeta are the members of _meta that are never sent unchanged. The protocol version is always
// the same: other versions are not held.
var knownMeta = []string{"progressToken", mcpname.MetaProtocolVersion, "traceparent", "tracestate", "baggage"}

// alsoSent returns the [task.Call.Also] of m: the other members of params and _meta that the gate
// will send upstream, as a JSON object, or "" if there are none. It fails if they are too long to
// be shown to approvers.
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

// unknownParams returns the members of params that are neither shown elsewhere nor dropped.
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
		if name == mcpname.MetaClientCapabilities {
			value.Bytes = withoutTasks(value)
		}
		if !isEmptyObject(value.Bytes) {
			meta.add(name, value.Bytes)
		}
	}
	return meta
}

// maxSubject is how many bytes the name of a tool or prompt, or the URI of a resource, may have in
// a held call. Pages and channels show that much at once.
const maxSubject = 2000

// CheckHoldable returns an error if approvers could not be shown all of the call in m: its subject
// is too long, or it carries too much besides its arguments.
func CheckHoldable(m *jsonrpc.Message, subject string) error {
	//mutate:swap "maxSubject" "100*maxSubject" internal/mcphttp.TestHeldCallWithLongNameIsRefused calls with names of any length are held
	if len(subject) > maxSubject {
		return fmt.Errorf("a call that needs approval cannot have a %s of more than %d bytes, of which its approver might not see the end",
			policy.SubjectMember(m.Method), maxSubject)
	}
	_, err := alsoSent(m)
	return err
}

// withoutTasks returns capabilities without the tasks extension, which concerns only the gate and
// the client.
func withoutTasks(capabilities jsonrpc.Value) []byte {
	extensions := capabilities.Member("extensions")
	if !extensions.Member(mcpname.ExtensionTasks).Present() {
		return capabilities.Bytes
	}
	rest := extensions.Without(mcpname.ExtensionTasks)
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

// An object is a list of members that becomes a JSON object.
type object []jsonrpc.Member

func (o *object) add(name string, value []byte) {
	*o = append(*o, jsonrpc.Member{Name: name, JSON: value})
}

func (o *object) addAll(of jsonrpc.Value) {
	for name, value := range of.Members() {
		o.add(name, value.Bytes)
	}
}

func (o *object) text() []byte { return jsonrpc.AppendObject(nil, *o...) }

// An UpstreamRequest is the message that runs a held call: a request or a batch. It does not ask
// for a task.
type UpstreamRequest struct {
	Text      []byte
	Messages  []jsonrpc.Message // the one in Text, or those of the batch
	WantsTask bool              // the client asked for a task
}

// NewUpstreamRequest returns the message that runs the call of t.
func NewUpstreamRequest(t task.Task) (UpstreamRequest, error) {
	packet, err := jsonrpc.Parse([]byte(t.Call.Message), jsonrpc.Limits{})
	return storedCall{t: t, packet: packet}.request(), err
}

// request returns the message that runs the call.
func (s storedCall) request() UpstreamRequest {
	o := UpstreamRequest{Messages: make([]jsonrpc.Message, len(s.packet.Messages))}
	texts := make([][]byte, len(s.packet.Messages))
	for i := range s.packet.Messages {
		m := &s.packet.Messages[i]
		id, method, params := requestID(s.t, i), m.Method, m.Params
		switch {
		case !s.packet.Batch:
			method, params, o.WantsTask = s.t.Call.Method, requestParams(s.t.Call, m), m.Params.Task.Present()
		case m.Kind != jsonrpc.Request:
			id = nil
		}
		o.Messages[i] = jsonrpc.NewRequest(id, method, params)
		texts[i] = o.Messages[i].Raw
	}
	if s.packet.Batch {
		o.Text = jsonrpc.Array(texts)
	} else if len(texts) > 0 {
		o.Text = texts[0]
	}
	return o
}

// requestID returns the id of the request with the given index in the call of t, which may be a
// batch. Every replica can compute the id to cancel the call. The task id cannot be derived from it.
func requestID(t task.Task, index int) []byte {
	sum := sha256.Sum256([]byte("request " + strconv.Itoa(index) + " of " + string(t.ID)))
	return jsonrpc.AppendString(nil, "call-"+hex.EncodeToString(sum[:16]))
}

// requestParams returns the params of the request for c, which was received in m.
func requestParams(c task.Call, m *jsonrpc.Message) jsonrpc.Params {
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
	if version := m.Params.Meta.Member(mcpname.MetaProtocolVersion); version.Present() {
		meta.add(mcpname.MetaProtocolVersion, version.Bytes)
		if !also.Member(alsoMeta).Member(mcpname.MetaClientCapabilities).Present() {
			meta.add(mcpname.MetaClientCapabilities, []byte("{}"))
		}
	}
	if meta.addAll(also.Member(alsoMeta)); len(meta) > 0 {
		params.add("_meta", meta.text())
	}
	return jsonrpc.NewParams(params...)
}
