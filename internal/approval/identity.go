package approval

import (
	"slices"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// requestMeta are the members of _meta that name a request or describe its sender,
// and say nothing of what is asked for. Hosts send others with each call.
var requestMeta = []string{
	"io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/logLevel",
	"claudecode/toolUseId",
	"callId", "x-codex-turn-metadata",
	"vscode.conversationId", "vscode.requestId",
}

// anyMeta stands for all members of _meta in [Settings.RequestMeta].
const anyMeta = "*"

// identity returns what identical calls have in common with c: everything but the
// metadata of the request. The call that runs is still the one that was held first,
// with the metadata that its approvers saw.
func (d *Desk) identity(c task.Call) (task.Digest, error) {
	also := jsonrpc.Value{Bytes: []byte(c.Also)}
	if c.Also == "" || !also.Member(alsoMeta).Present() {
		return c.Digest()
	}
	kept, meta := object{}, object{}
	if params := also.Member(alsoParams); params.Present() {
		kept.add(alsoParams, params.Bytes)
	}
	for name, value := range also.Member(alsoMeta).Members() {
		if !d.namesRequest(name) {
			meta.add(name, value.Bytes)
		}
	}
	if len(meta) > 0 {
		kept.add(alsoMeta, meta.text())
	}
	c.Also = ""
	if len(kept) > 0 {
		c.Also = string(kept.text())
	}
	return c.Digest()
}

// namesRequest reports whether a member of _meta says nothing of what is asked for.
func (d *Desk) namesRequest(name string) bool {
	more := d.settings().RequestMeta
	return slices.Contains(requestMeta, name) || slices.Contains(more, name) || slices.Contains(more, anyMeta)
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
