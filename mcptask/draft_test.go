package mcptask_test

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/gatedialect"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// Modern clients get details of approvals, as SEP-2643 and SEP-2848 propose, if the setting is
// on. Other clients do not.
func TestDraftsAreOnlyForEnabledModernClients(t *testing.T) {
	drafts := mcptask.Dialect{Era: mcptask.V2026, Gate: gatedialect.Options{Drafts: true}}
	for _, tt := range []struct {
		name        string
		task        task.Task
		disposition string
		denied      string
	}{
		{"pending", newTask(t, submit), "", ""},
		{"rejected", newTask(t, submit, lifecycle.Reject{By: "bob"}), "denied-not-executed", `{"reason":"approval_rejected","remediation":"unavailable"}`},
		{"expired", newTask(t, submit, lifecycle.Expire{By: "gate"}), "denied-not-executed", `{"reason":"approval_expired","remediation":"available"}`},
		{"unreachable", newTask(t, submit, approve, fail(lifecycle.StageUpstreamUnreachable)), "execution-error", ""},
		{"cancelled", newTask(t, submit, lifecycle.Cancel{By: "alice"}), "", ""},
		{"no approval requested", newTask(t, lifecycle.Admit{By: "gate"}, fail(lifecycle.StageUpstreamUnreachable)), "", ""},
	} {
		got := jsonrpc.Value{Bytes: mustWith(payloadOf(tt.task))(drafts.GetResult(tt.task))}
		told, _ := got.Member("_meta").Member(mcpname.MetaToolApproval).Member("disposition").Text()
		if told != tt.disposition {
			t.Errorf("%s: disposition %q; want %q", tt.name, told, tt.disposition)
		}
		if denied := string(got.Member("result").Member("_meta").Member(mcpname.MetaAuthorization).Bytes); denied != tt.denied {
			t.Errorf("%s: authorization %s; want %s", tt.name, denied, tt.denied)
		}
		for _, d := range []mcptask.Dialect{modern, {Era: mcptask.V2025, Gate: gatedialect.Options{Drafts: true}}} {
			plain := jsonrpc.Value{Bytes: mustWith(payloadOf(tt.task))(d.GetResult(tt.task))}
			if plain.Member("_meta").Member(mcpname.MetaToolApproval).Present() || plain.Member("result").Member("_meta").Member(mcpname.MetaAuthorization).Present() {
				t.Errorf("%s: a client without drafts gets draft members: %s", tt.name, plain.Bytes)
			}
		}
	}
	completed := newTask(t, submit, approve, claim, lifecycle.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK, Size: int64(len(okResult)), Inline: []byte(okResult)}})
	got := jsonrpc.Value{Bytes: mustWith([]byte(okResult))(drafts.GetResult(completed))}
	if told, _ := got.Member("_meta").Member(mcpname.MetaToolApproval).Member("disposition").Text(); told != "approved-executed" {
		t.Errorf("completed: %s", got.Bytes)
	}
	const pending = `{"resultType":"complete","content":[{"type":"text","text":"wait"}],` +
		`"_meta":{"io.modelcontextprotocol/authorization":{"reason":"approval_pending","remediation":"available","remediationHints":[{"type":"task","taskId":"tg_1"}]}}}`
	meta := drafts.Gate.Denied("approval_pending", gatedialect.RemediationAvailable, "tg_1")
	if got := drafts.ToolResult(mcptask.ToolText{Text: "wait", Meta: meta}); string(got) != pending {
		t.Errorf("pending: %s; want %s", got, pending)
	}
}
