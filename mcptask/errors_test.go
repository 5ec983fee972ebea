package mcptask_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// TYPE-09: the client's error for each kind of error.
const errorTable = `
not_found               -32602 -32602 Task not found {"error_type":"task_not_found"}
owner_mismatch          -32602 -32602 Task not found {"error_type":"task_not_found"}
expired                 -32602 -32602 Task expired {"error_type":"task_expired","hint":"h","retry_after":2}
not_ready               -32602 -32602 Task has not ended yet {"error_type":"task_not_ready","hint":"h","retry_after":2}
already_terminal        -32602 -32602 Task has already ended {"error_type":"task_already_terminal","hint":"h","retry_after":2}
invalid_transition      -32602 -32602 Not possible in the task's present state {"error_type":"invalid_transition","hint":"h","retry_after":2}
concurrent_modification -32603 -32603 Task was changed by somebody else {"error_type":"concurrent_modification","hint":"h","retry_after":2}
rate_limited            -32009   tool Too many calls are pending. This one did not run. {"error_type":"rate_limited","hint":"h","retry_after":2}
capacity_exceeded       -32009   tool Too many calls are pending. This one did not run. {"error_type":"capacity_exceeded","hint":"h","retry_after":2}
owner_full              -32009   tool Earlier calls and their results take all the storage of this client. This call did not run. {"error_type":"storage_exceeded","hint":"h","retry_after":2}
duplicate               -32009   tool The same call is pending already. It did not run again. {"error_type":"duplicate_call","hint":"h","retry_after":2}
variable_size_exceeded  -32602 -32602 Task variables are too many or too large {"error_type":"variable_size_exceeded","hint":"h","retry_after":2}
variable_ownership      -32602 -32602 Task variable belongs to the other side {"error_type":"variable_ownership","hint":"h","retry_after":2}
invalid_variable        -32602 -32602 Malformed task variable {"error_type":"invalid_variable","hint":"h","retry_after":2}
invalid_ttl             -32602 -32602 ttl must be a positive whole number of milliseconds {"error_type":"invalid_ttl","hint":"h","retry_after":2}
invalid_cursor          -32602 -32602 Invalid cursor {"error_type":"invalid_cursor","hint":"h","retry_after":2}
closed                  -32013 -32603 Shutting down, try again {"error_type":"shutting_down","hint":"h","retry_after":2}
exists                  -32603 -32603 Internal error {"error_type":"internal_error"}
invalid                 -32603 -32603 Internal error {"error_type":"internal_error"}
self_approval           -32603 -32603 Internal error {"error_type":"internal_error"}
already_decided         -32603 -32603 Internal error {"error_type":"internal_error"}
not_executor            -32603 -32603 Internal error {"error_type":"internal_error"}
digest_mismatch         -32603 -32603 Internal error {"error_type":"internal_error"}
unreadable              -32603 -32603 Task cannot be read {"error_type":"task_unreadable","hint":"h","retry_after":2}
unavailable             -32013 -32603 Held calls cannot be reached at the moment, try again {"error_type":"store_unavailable","hint":"h","retry_after":2}
chunk_missing           -32603 -32603 Internal error {"error_type":"internal_error"}
`

func TestErrorOfEveryKind(t *testing.T) {
	s := loadSchemas(t)
	var b strings.Builder
	b.WriteString("\n")
	for _, kind := range []task.Kind{
		task.ErrNotFound, task.ErrOwnerMismatch, task.ErrExpired, task.ErrNotReady, task.ErrAlreadyTerminal,
		task.ErrInvalidTransition, task.ErrConcurrentModification, task.ErrRateLimited, task.ErrCapacityExceeded,
		task.ErrOwnerFull, task.ErrDuplicate, task.ErrVariableSizeExceeded, task.ErrVariableOwnership, task.ErrInvalidVariable,
		task.ErrInvalidTTL, task.ErrInvalidCursor, task.ErrClosed, task.ErrExists, task.ErrInvalid,
		lifecycle.ErrSelfApproval, lifecycle.ErrAlreadyDecided, lifecycle.ErrNotExecutor, lifecycle.ErrDigestMismatch,
		task.ErrUnreadable, task.ErrUnavailable, task.ErrChunkMissing,
	} {
		err := fmt.Errorf("wrapped: %w", &task.Error{
			Kind: kind, ID: id, State: task.Executing, Action: action.Cancel, Suggest: "h",
			RetryAfter: 1500 * time.Millisecond, Detail: "secret", Err: io.ErrUnexpectedEOF,
		})
		now := legacy.Error(err)
		refusal := modern.Refuse(err)
		code := fmt.Sprint(modern.Error(err).Code)
		if refusal.Result.Present() {
			code = "tool"
			result := must(refusal.Result.ComposeBytes(nil))
			s.mustMatch(t, schemaModern, "CallToolResult", result)
			if !strings.Contains(string(result), now.Message+" Try again in 2 s.") {
				t.Errorf("%s: %s", kind, result)
			}
		}
		fmt.Fprintf(&b, "%-23s %6d %6s %s %s\n", string(kind), now.Code, code, now.Message, now.Data)

		if refusal := legacy.Refuse(err); refusal.Result.Present() {
			s.mustMatch(t, schemaLegacy, "CallToolResult", must(refusal.Result.ComposeBytes(nil)))
		}
		s.mustMatch(t, schemaLegacy, "Error", must(literal.Refuse(err).Error.ComposeBytes(nil)))
	}
	if diff := cmp.Diff(errorTable, b.String()); diff != "" {
		t.Errorf("the error table changed (-want +got):\n%s", diff)
	}
}

// The error for a task of another owner equals the error for a missing task, byte for byte,
// whatever details the two errors hold.
func TestTaskOfAnotherOwnerIsMissing(t *testing.T) {
	missing := &task.Error{Kind: task.ErrNotFound, ID: id, Action: action.Get, Suggest: "look again"}
	foreign := &task.Error{Kind: task.ErrOwnerMismatch, ID: id, State: task.Executing, RetryAfter: time.Second, Suggest: "go away"}
	for _, d := range []mcptask.Dialect{legacy, modern} {
		if diff := cmp.Diff(d.Error(missing), d.Error(foreign)); diff != "" {
			t.Errorf("%s (-missing +foreign):\n%s", eraName(d), diff)
		}
	}
}

// The text of an unknown error does not reach the client. A JSON-RPC error reaches it
// unchanged.
func TestUnknownErrorTextIsHidden(t *testing.T) {
	for _, err := range []error{errors.New("dial tcp 10.0.0.1: refused"), context.Canceled, io.EOF} {
		want := &jsonrpc.Error{Code: -32603, Message: "Internal error", Data: []byte(`{"error_type":"internal_error"}`)}
		if diff := cmp.Diff(want, modern.Error(err)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	own := &jsonrpc.Error{Code: 5, Message: "mine", Data: []byte(`1`)}
	if got := legacy.Error(fmt.Errorf("wrapped: %w", own)); got != own {
		t.Errorf("own error became %v", got)
	}
	if diff := cmp.Diff(`{"code":5,"message":"mine","data":1}`, string(must(legacy.Refuse(own).Error.ComposeBytes(nil)))); diff != "" {
		t.Errorf("own error (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(own, legacy.Refuse(own).Err(nil)); diff != "" {
		t.Errorf("own error, read (-want +got):\n%s", diff)
	}
}

func TestTaskRequiredError(t *testing.T) {
	s := loadSchemas(t)
	for _, tt := range []struct {
		file, definition string
		err              *jsonrpc.Error
		want             string
	}{
		{
			schemaLegacy, "JSONRPCErrorResponse", legacy.TaskRequired(),
			`{"code":-32601,"message":"Tool requires task augmentation","data":{"error_type":"task_required"}}`,
		},
		{
			schemaLegacy, "JSONRPCErrorResponse", mcptask.TaskForbidden(),
			`{"code":-32601,"message":"Tool does not support task augmentation","data":{"error_type":"task_forbidden"}}`,
		},
		{
			schemaModern, "MissingRequiredClientCapabilityError", modern.TaskRequired(),
			`{"code":-32021,"message":"Missing required client capability","data":{"error_type":"missing_client_capability",` +
				`"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}`,
		},
	} {
		response := jsonrpc.AppendErrorResponse(nil, []byte(`1`), tt.err)
		s.mustMatch(t, tt.file, tt.definition, response)
		if diff := cmp.Diff(tt.want, string(jsonrpc.Value{Bytes: response}.Member("error").Bytes)); diff != "" {
			t.Errorf("error (-want +got):\n%s", diff)
		}
	}
}

// An upstream error without a valid code is still an error.
func TestUpstreamErrorStaysError(t *testing.T) {
	for text, want := range map[string]*jsonrpc.Error{
		`{"code":-1,"message":"m","data":1.0}`: {Code: -1, Message: "m", Data: []byte(`1.0`)},
		`{"code":"x"}`:                         {Code: jsonrpc.CodeInternal},
		`{}`:                                   {Code: jsonrpc.CodeInternal},
	} {
		if diff := cmp.Diff(want, mcptask.Outcome{Error: mcptask.Text{}.Wrap(text, "")}.Err(nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if err := (mcptask.Outcome{Result: mcptask.Text{}.Wrap(`{}`, "")}).Err(nil); err != nil {
		t.Errorf("a result was returned as the error %v", err)
	}
}
