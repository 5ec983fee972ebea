package approval

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// requestMeta are members of _meta that identify a request or its sender, but do not change the
// meaning of the call. Hosts send different values with each call.
var requestMeta = []string{
	mcpname.MetaClientInfo, mcpname.MetaClientCapabilities, "io.modelcontextprotocol/logLevel",
	"claudecode/toolUseId",
	codexTurn,
	"vscode.conversationId", "vscode.requestId",
}

// codexTurn is the member of _meta that identifies calls of Codex. CodexMeta are other members
// that Codex sends, under generic names.
const codexTurn = "x-codex-turn-metadata"

var codexMeta = []string{"callId", "itemId", "threadId", "sessionId", "windowId"}

// identity returns the digest that identical calls share: of everything but known request
// metadata. The call that runs is the one that was held first, with the metadata that its
// approvers saw.
func identity(call task.Call) (task.Digest, error) {
	rest, _, err := withoutRequestMeta(call)
	if err != nil {
		return task.Digest{}, err
	}
	return rest.Digest()
}

// withoutRequestMeta returns call without known request metadata, and that metadata by name in
// canonical form.
func withoutRequestMeta(call task.Call) (task.Call, map[string]jsontext.Value, error) {
	also := jsonrpc.Value{Bytes: []byte(call.Also)}
	if call.Also == "" || !also.Member(alsoMeta).Present() {
		return call, nil, nil
	}
	kept, meta, request := object{}, object{}, map[string]jsontext.Value{}
	if params := also.Member(alsoParams); params.Present() {
		kept.add(alsoParams, params.Bytes)
	}
	ignored := ignoredMeta(also.Member(alsoMeta))
	for name, value := range also.Member(alsoMeta).Members() {
		//mutate:swap "!slices.Contains(ignored, name)" "ignored == nil" internal/mcphttp.TestAttachWithOtherMeta calls with different metadata count as identical
		if !slices.Contains(ignored, name) {
			meta.add(name, value.Bytes)
			continue
		}
		form, ok := value.AppendCanonical(nil)
		if !ok {
			return call, nil, errors.New("metadata has no canonical form")
		}
		request[name] = form
	}
	if len(meta) > 0 {
		kept.add(alsoMeta, meta.text())
	}
	call.Also = ""
	if len(kept) > 0 {
		call.Also = string(kept.text())
	}
	return call, request, nil
}

// ignoredMeta returns the members of _meta that do not change the meaning of the call.
func ignoredMeta(meta jsonrpc.Value) []string {
	if meta.Member(codexTurn).Present() {
		return slices.Concat(requestMeta, codexMeta)
	}
	return requestMeta
}

// IsIdentical reports whether request m to the upstream of t is identical to the call of t.
func (s *Service) IsIdentical(t task.Task, m *jsonrpc.Message) bool {
	call, err := callIn(t.Call.Upstream, jsonrpc.Packet{Messages: []jsonrpc.Message{*m}}, m.Raw)
	if err != nil {
		return false
	}
	if !t.Abridged() && t.Call.Also == "" && call.Also != "" { // t may have been held by an early version
		held, err := readStored(t)
		if err != nil {
			return false
		}
		if heldByEarlyVersion(t, held.call) {
			call.Also = ""
		}
	}
	digest, err := identity(call)
	return err == nil && digest == t.Digest
}
