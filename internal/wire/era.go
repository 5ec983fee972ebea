// Package wire knows what MCP looks like from outside: its protocol versions,
// which parts of a message HTTP headers must repeat, and how a problem is sent
// to a client of each era. It reads messages and writes answers, and neither
// sends nor receives anything.
package wire

import (
	"strings"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// The protocol versions that the gate speaks.
const (
	Version20250326 = "2025-03-26"
	Version20250618 = "2025-06-18"
	Version20251125 = "2025-11-25"
	Version20260728 = "2026-07-28"
)

// Versions returns the protocol versions that a legacy or modern request can name
// in its header.
func Versions() []string {
	return []string{Version20250326, Version20250618, Version20251125, Version20260728}
}

// The _meta keys that make a request a modern one, and those of W3C tracing.
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaClientInfo   = "io.modelcontextprotocol/clientInfo"
	MetaSubscription = "io.modelcontextprotocol/subscriptionId"
	MetaTraceparent  = "traceparent"
	MetaTracestate   = "tracestate"
)

// An Era is a generation of MCP.
type Era uint8

// The eras.
const (
	Legacy Era = iota // up to 2025-11-25: initialize and sessions
	Modern            // 2026-07-28: every request stands for itself
)

// String returns the name of the era.
func (e Era) String() string {
	if e == Modern {
		return "modern"
	}
	return "legacy"
}

// EraOf returns the era of a request that was classified before.
func EraOf(m *jsonrpc.Message) Era {
	if m.Params.Meta.Member(MetaVersion).Present() {
		return Modern
	}
	return Legacy
}

// Headers are the lines of those HTTP headers that repeat parts of a message.
type Headers struct {
	Version []string // MCP-Protocol-Version
	Method  []string // Mcp-Method
	Name    []string // Mcp-Name
}

// Classify returns which era a packet belongs to and checks what that era
// demands of it before anybody may act on it. The error is a [*Problem]; the
// era is right even then.
func Classify(p jsonrpc.Packet, h Headers) (Era, error) {
	if len(h.Version) > 1 {
		return Modern, mismatch("MCP-Protocol-Version is given more than once")
	}
	if p.Batch {
		return Legacy, checkBatch(p, h)
	}
	m := &p.Messages[0]
	version := m.Params.Meta.Member(MetaVersion)
	if version.Present() {
		return Modern, checkModern(m, version, h)
	}
	if len(h.Version) == 0 || h.Version[0] < Version20260728 {
		return Legacy, checkGiven(m, h)
	}
	switch m.Kind {
	case jsonrpc.Request:
		return Modern, missingMeta(MetaVersion)
	case jsonrpc.Response:
		return Modern, &Problem{Type: InvalidRequest, Detail: "responses cannot be posted in this protocol version"}
	default:
		return Modern, checkGiven(m, h)
	}
}

// checkGiven compares the headers that need not be there with m, if they are:
// what stands between the gate and the upstream might go by them.
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

// checkBatch refuses batches outside of the one version that has them. That
// version has no header of its own.
func checkBatch(p jsonrpc.Packet, h Headers) error {
	if len(h.Version) == 1 && h.Version[0] != Version20250326 {
		return &Problem{Type: InvalidRequest, Detail: "batches exist only in protocol version " + Version20250326}
	}
	if len(h.Method)+len(h.Name) > 0 {
		return mismatch("Mcp-Method and Mcp-Name cannot describe a batch")
	}
	for i := range p.Messages {
		m := &p.Messages[i]
		if m.Method == "initialize" {
			return &Problem{Type: InvalidRequest, Detail: "initialize cannot be part of a batch"}
		}
		if m.Params.Meta.Member(MetaVersion).Present() {
			return &Problem{Type: InvalidRequest, Detail: "a request with its own protocol version cannot be part of a batch"}
		}
	}
	return nil
}

// ClassifyBare is [Classify] for a transport without headers. Agreed is the
// version that client and server agreed on with initialize, empty if they have
// not.
func ClassifyBare(p jsonrpc.Packet, agreed string) (Era, error) {
	if p.Batch {
		var h Headers
		if agreed != "" {
			h.Version = []string{agreed}
		}
		return Legacy, checkBatch(p, h)
	}
	m := &p.Messages[0]
	version := m.Params.Meta.Member(MetaVersion)
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

// checkModern makes the checks of a body-processing intermediary in the order
// in which servers report them: metadata, version, mirrors.
func checkModern(m *jsonrpc.Message, version jsonrpc.Value, h Headers) error {
	if m.Kind != jsonrpc.Request {
		return checkGiven(m, h) // the revision leaves headers of notifications open
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
		return mismatch("Mcp-Method and method differ")
	}
	return checkName(m, h.Name)
}

// checkMeta checks the metadata that every modern request must have, and returns
// the version in it.
func checkMeta(m *jsonrpc.Message, version jsonrpc.Value) (claimed string, err error) {
	claimed, ok := version.Text()
	if !ok {
		return "", missingMeta(MetaVersion)
	}
	if !m.Params.Meta.Member(MetaCapabilities).IsObject() {
		return "", missingMeta(MetaCapabilities)
	}
	return claimed, nil
}

// checkUnknownVersion refuses what the gate judges in a version whose meaning
// it cannot know. All else is the upstream's to refuse, which also knows what
// it supports.
func checkUnknownVersion(m *jsonrpc.Message, version string) error {
	if !needsKnownVersion(m.Method) {
		return nil
	}
	return &Problem{
		Type:  UnsupportedVersion,
		extra: jsonrpc.AppendString([]byte(`"supported":["`+Version20260728+`"],"requested":`), version),
	}
}

// needsKnownVersion reports whether the gate must understand a message with this method:
// policy judges it, or the gate answers it.
func needsKnownVersion(method string) bool {
	switch method {
	case "tools/call", "resources/read", "resources/subscribe", "prompts/get":
		return true
	default:
		return strings.HasPrefix(method, "tasks/")
	}
}

// checkName compares Mcp-Name with the member of params that it repeats. There is
// a bridge that leaves it out of requests about tasks. Of those about the gate's
// own tasks, nothing goes by it: only a wrong one is refused.
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

// ownTask begins the ids of the gate's own tasks.
const ownTask = "tg_"

// subject returns the member of params that Mcp-Name repeats. It is absent where
// there is none.
func subject(m *jsonrpc.Message) jsonrpc.Value {
	switch m.Method {
	case "tools/call", "prompts/get":
		return m.Params.Name
	case "resources/read":
		return m.Params.URI
	case "tasks/get", "tasks/update", "tasks/cancel":
		return m.Params.TaskID
	default:
		return jsonrpc.Value{}
	}
}

// compareName returns the problem of a message whose header does not repeat name.
func compareName(name string, header []string) error {
	if len(header) != 1 {
		return mismatch("Mcp-Name must be given exactly once")
	}
	decoded, ok := decodeHeader(header[0])
	if !ok {
		return mismatch("Mcp-Name is not encoded correctly")
	}
	if decoded != name {
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
