package approval

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// requestMeta are the members of _meta that name a request or describe its sender,
// and say nothing of what is asked for. Hosts send others with each call.
var requestMeta = []string{
	"io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/logLevel",
	"claudecode/toolUseId",
	codexTurn,
	"vscode.conversationId", "vscode.requestId",
}

// codexTurn is the member of _meta by which calls of Codex are known, and codexMeta
// are others that Codex sends, whose names are anybody's.
const codexTurn = "x-codex-turn-metadata"

var codexMeta = []string{"callId", "itemId", "threadId", "sessionId", "windowId"}

// anyMeta stands for all members of _meta in [Settings.RequestMeta].
const anyMeta = "*"

// identity returns what identical calls have in common with c: everything but the
// metadata of the request. The call that runs is still the one that was held first,
// with the metadata that its approvers saw.
func (c *core) identity(call task.Call) (task.Digest, error) {
	rest, _, err := withoutRequestMeta(call, c.settings().RequestMeta)
	if err != nil {
		return task.Digest{}, err
	}
	return rest.Digest()
}

// withoutRequestMeta returns call without the metadata of the request, which has the
// names that the gate knows or one of the given ones, and that metadata by name, in its
// canonical form.
func withoutRequestMeta(call task.Call, names []string) (task.Call, map[string]jsontext.Value, error) {
	also := jsonrpc.Value{Bytes: []byte(call.Also)}
	if call.Also == "" || !also.Member(alsoMeta).Present() {
		return call, nil, nil
	}
	kept, meta, request := object{}, object{}, map[string]jsontext.Value{}
	if params := also.Member(alsoParams); params.Present() {
		kept.add(alsoParams, params.Bytes)
	}
	ignored := ignoredMeta(also.Member(alsoMeta), names)
	for name, value := range also.Member(alsoMeta).Members() {
		if !slices.Contains(ignored, name) && !slices.Contains(ignored, anyMeta) {
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

// ignoredMeta returns which members of a call's _meta say nothing of what is asked
// for: the given ones, and those that the gate knows.
func ignoredMeta(meta jsonrpc.Value, names []string) []string {
	ignored := slices.Concat(requestMeta, names)
	if meta.Member(codexTurn).Present() {
		ignored = append(ignored, codexMeta...)
	}
	return ignored
}

// Same reports whether a message, to the upstream of t, is identical to the call
// that t was made for.
func (d *Desk) Same(t task.Task, message []byte) bool {
	held, err := readCall(t.Call.Upstream, []byte(t.Call.Message))
	if err != nil {
		return false
	}
	call, err := readCall(t.Call.Upstream, message)
	if err != nil {
		return false
	}
	if early(t, held) {
		call.Also = ""
	}
	digest, err := d.identity(call)
	return err == nil && digest == t.Digest
}
