// Package mcp contains the rules of MCP for messages: eras and protocol versions, headers that
// repeat parts of a message, capabilities, lists, and the errors that clients of each era get.
// It sends and receives nothing.
//
//	era, err := mcp.Classify(packet, headers)
//	var problem *mcp.Problem // err is one; AppendResponse encodes it for the era
package mcp

import (
	"strings"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// The protocol versions that the gate supports.
const (
	Version20250326 = "2025-03-26"
	Version20250618 = "2025-06-18"
	Version20251125 = "2025-11-25"
	Version20260728 = "2026-07-28"
)

// Versions returns the protocol versions that a request header may name.
func Versions() []string {
	return []string{Version20250326, Version20250618, Version20251125, Version20260728}
}

// The _meta keys of W3C tracing.
const (
	MetaTraceparent = "traceparent"
	MetaTracestate  = "tracestate"
)

// An Era is a generation of MCP.
type Era uint8

// The eras.
const (
	Legacy Era = iota // up to 2025-11-25: initialize and sessions
	Modern            // 2026-07-28: every request is self-contained
)

// String returns the name of the era.
func (e Era) String() string {
	if e == Modern {
		return "modern"
	}
	return "legacy"
}

// EraOf returns the era of a request that was already classified.
func EraOf(m *jsonrpc.Message) Era {
	if m.Params.Meta.Member(mcpname.MetaProtocolVersion).Present() {
		return Modern
	}
	return Legacy
}

// Headers are the HTTP headers that repeat parts of a message.
type Headers struct {
	Version []string // MCP-Protocol-Version
	Method  []string // Mcp-Method
	Name    []string // Mcp-Name
}

// Classify returns the era of a packet and checks the rules of that era. The error is a
// [*Problem]; the era is valid even then.
func Classify(p jsonrpc.Packet, h Headers) (Era, error) {
	if len(h.Version) > 1 {
		return Modern, mismatch("MCP-Protocol-Version is given more than once")
	}
	if p.Batch {
		return Legacy, checkBatch(p, h)
	}
	m := &p.Messages[0]
	version := m.Params.Meta.Member(mcpname.MetaProtocolVersion)
	if version.Present() {
		return Modern, checkModern(m, version, h)
	}
	if len(h.Version) == 0 || h.Version[0] < Version20260728 {
		return Legacy, checkGiven(m, h)
	}
	switch m.Kind {
	case jsonrpc.Request:
		return Modern, missingMeta(mcpname.MetaProtocolVersion)
	case jsonrpc.Response:
		return Modern, &Problem{Type: InvalidRequest, Detail: "responses cannot be posted in this protocol version"}
	default:
		return Modern, checkGiven(m, h)
	}
}

// checkGiven compares optional headers with m, because a proxy before the upstream may use
// them.
func checkGiven(m *jsonrpc.Message, h Headers) error {
	if len(h.Method) > 0 && (len(h.Method) > 1 || h.Method[0] != m.Method) {
		return mismatch("Mcp-Method is given, and is not the method of the message")
	}
	if len(h.Name) == 0 {
		return nil
	}
	name, ok := subject(m).Text()
	if !ok {
		return mismatch("Mcp-Name is given, and the message has no name")
	}
	return compareName(name, h.Name)
}

// checkBatch refuses batches in all versions except 2025-03-26, which has no mirrored headers.
func checkBatch(p jsonrpc.Packet, h Headers) error {
	if len(h.Version) == 1 && h.Version[0] != Version20250326 {
		return &Problem{Type: InvalidRequest, Detail: "batches exist only in protocol version " + Version20250326}
	}
	if len(h.Method)+len(h.Name) > 0 {
		return mismatch("Mcp-Method and Mcp-Name cannot describe a batch")
	}
	for i := range p.Messages {
		m := &p.Messages[i]
		if m.Method == mcpname.Initialize {
			return &Problem{Type: InvalidRequest, Detail: "initialize cannot be part of a batch"}
		}
		if m.Params.Meta.Member(mcpname.MetaProtocolVersion).Present() {
			return &Problem{Type: InvalidRequest, Detail: "a request with its own protocol version cannot be part of a batch"}
		}
	}
	return nil
}

// ClassifyBare is [Classify] for a transport without headers. agreed is the version from
// initialize, or "".
func ClassifyBare(p jsonrpc.Packet, agreed string) (Era, error) {
	if p.Batch {
		var h Headers
		if agreed != "" {
			h.Version = []string{agreed}
		}
		return Legacy, checkBatch(p, h)
	}
	m := &p.Messages[0]
	version := m.Params.Meta.Member(mcpname.MetaProtocolVersion)
	if !version.Present() {
		return Legacy, nil
	}
	if m.Kind != jsonrpc.Request {
		return Modern, nil
	}
	claimed, err := checkMeta(m, version)
	if err != nil || claimed == Version20260728 {
		return Modern, err
	}
	return Modern, checkUnknownVersion(m, claimed)
}

// checkModern makes the checks in the order in which servers report them: metadata, version,
// mirrored headers.
func checkModern(m *jsonrpc.Message, version jsonrpc.Value, h Headers) error {
	if m.Kind != jsonrpc.Request {
		return checkGiven(m, h) // the specification leaves headers of notifications open
	}
	claimed, err := checkMeta(m, version)
	if err != nil {
		return err
	}
	if len(h.Version) == 0 || h.Version[0] != claimed {
		return mismatch("MCP-Protocol-Version and the version in _meta differ")
	}
	if claimed != Version20260728 {
		return checkUnknownVersion(m, claimed)
	}
	if len(h.Method) != 1 || h.Method[0] != m.Method {
		//mutate:swap `mismatch("Mcp-Method and method differ")` "nil" TestMirroredMethod Mcp-Method may differ from the method
		return mismatch("Mcp-Method and method differ")
	}
	return checkName(m, h.Name)
}

// checkMeta checks the metadata that every modern request needs, and returns its version.
func checkMeta(m *jsonrpc.Message, version jsonrpc.Value) (claimed string, err error) {
	claimed, ok := version.Text()
	if !ok {
		return "", missingMeta(mcpname.MetaProtocolVersion)
	}
	if !m.Params.Meta.Member(mcpname.MetaClientCapabilities).IsObject() {
		return "", missingMeta(mcpname.MetaClientCapabilities)
	}
	return claimed, nil
}

// checkUnknownVersion refuses a message in an unknown version if the gate must understand it.
// The upstream decides about all others.
func checkUnknownVersion(m *jsonrpc.Message, version string) error {
	if !needsKnownVersion(m.Method) {
		return nil
	}
	return unsupported(version)
}

func unsupported(version string) *Problem {
	return &Problem{
		Type:  UnsupportedVersion,
		extra: jsonrpc.AppendString([]byte(`"supported":["`+Version20260728+`"],"requested":`), version),
	}
}

// CheckVersion refuses a modern message in an unknown version, where the gate answers in place of a server.
func CheckVersion(m *jsonrpc.Message) *Problem {
	version, ok := m.Params.Meta.Member(mcpname.MetaProtocolVersion).Text()
	if !ok || version == Version20260728 {
		return nil
	}
	return unsupported(version)
}

// needsKnownVersion reports whether policy judges the method or the gate answers it.
func needsKnownVersion(method string) bool {
	switch method {
	case mcpname.ToolsCall, mcpname.ResourcesRead, mcpname.ResourcesSubscribe, mcpname.PromptsGet:
		return true
	default:
		return strings.HasPrefix(method, "tasks/")
	}
}

// checkName compares Mcp-Name with the member that it repeats. Some bridges omit the header in
// task requests, so it is optional for tasks of the gate.
func checkName(m *jsonrpc.Message, header []string) error {
	name, ok := subject(m).Text()
	if !ok {
		return nil // the upstream refuses such params
	}
	if len(header) == 0 && strings.HasPrefix(m.Method, "tasks/") && strings.HasPrefix(name, ownTask) {
		return nil
	}
	return compareName(name, header)
}

// ownTask is the prefix of the gate's task IDs.
const ownTask = "tg_"

// subject returns the member of params that Mcp-Name repeats, if any.
func subject(m *jsonrpc.Message) jsonrpc.Value {
	switch m.Method {
	case mcpname.ToolsCall, mcpname.PromptsGet:
		return m.Params.Name
	case mcpname.ResourcesRead:
		return m.Params.URI
	case mcpname.TasksGet, mcpname.TasksUpdate, mcpname.TasksCancel:
		return m.Params.TaskID
	default:
		return jsonrpc.Value{}
	}
}

// compareName returns a problem unless the header repeats name.
func compareName(name string, header []string) error {
	if len(header) != 1 {
		return mismatch("Mcp-Name must be given exactly once")
	}
	decoded, ok := decodeHeader(header[0])
	if !ok {
		return mismatch("Mcp-Name is not encoded correctly")
	}
	if decoded != name {
		//mutate:swap `mismatch("Mcp-Name and the message differ")` "nil" Test(Classify|MirroredNames) Mcp-Name may differ from the name
		return mismatch("Mcp-Name and the message differ")
	}
	return nil
}

func missingMeta(key string) *Problem {
	return &Problem{Type: InvalidParams, Detail: "missing or malformed _meta field " + key, status: 400}
}

func mismatch(detail string) *Problem {
	return &Problem{Type: HeaderMismatch, Detail: detail}
}

// TakesInput reports whether a modern server may answer a request with questions for its client.
func TakesInput(method string) bool {
	return method == mcpname.ToolsCall || method == mcpname.PromptsGet || method == mcpname.ResourcesRead
}
