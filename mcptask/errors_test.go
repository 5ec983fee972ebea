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
)

// TYPE-09: what a client is told of each kind of error.
const errorTable = `
not_found               -32602 -32602 Task not found {"error_type":"task_not_found"}
owner_mismatch          -32602 -32602 Task not found {"error_type":"task_not_found"}
expired                 -32602 -32602 Task expired {"error_type":"task_expired","hint":"h","retry_after":2}
not_ready               -32602 -32602 Task has not ended yet {"error_type":"task_not_ready","hint":"h","retry_after":2}
already_terminal        -32602 -32602 Task has already ended {"error_type":"task_already_terminal","hint":"h","retry_after":2}
invalid_transition      -32602 -32602 Not possible in the task's present state {"error_type":"invalid_transition","hint":"h","retry_after":2}
concurrent_modification -32603 -32603 Task was changed by somebody else {"error_type":"concurrent_modification","hint":"h","retry_after":2}
rate_limited            -32009   tool Too many calls are pending. The tool did not run. {"error_type":"rate_limited","hint":"h","retry_after":2}
capacity_exceeded       -32009   tool Too many calls are pending. The tool did not run. {"error_type":"capacity_exceeded","hint":"h","retry_after":2}
duplicate               -32009   tool The same call is pending already. The tool did not run again. {"error_type":"duplicate_call","hint":"h","retry_after":2}
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

func TestErrorTable(t *testing.T) {
	s := loadSchemas(t)
	var b strings.Builder
	b.WriteString("\n")
	for _, kind := range []task.Kind{
		task.KindNotFound, task.KindOwnerMismatch, task.KindExpired, task.KindNotReady, task.KindAlreadyTerminal,
		task.KindInvalidTransition, task.KindConcurrentModification, task.KindRateLimited, task.KindCapacityExceeded,
		task.KindDuplicate, task.KindVariableSizeExceeded, task.KindVariableOwnership, task.KindInvalidVariable,
		task.KindInvalidTTL, task.KindInvalidCursor, task.KindClosed, task.KindExists, task.KindInvalid,
		task.KindSelfApproval, task.KindAlreadyDecided, task.KindNotExecutor, task.KindDigestMismatch,
		task.KindUnreadable, task.KindUnavailable, task.KindChunkMissing,
	} {
		err := fmt.Errorf("wrapped: %w", &task.Error{
			Kind: kind, ID: id, State: task.Executing, Action: task.ActionCancel, Suggest: "h",
			RetryAfter: 1500 * time.Millisecond, Detail: "secret", Err: io.ErrUnexpectedEOF,
		})
		now := legacy.Error(err)
		refusal := modern.Refuse(err)
		code := fmt.Sprint(modern.Error(err).Code)
		if refusal.Result.Present() {
			code = "tool"
			result := must(refusal.Result.Whole(nil))
			s.mustMatch(t, schemaModern, "CallToolResult", result)
			if !strings.Contains(string(result), now.Message+" Try again in 2 s.") {
				t.Errorf("%s: %s", kind, result)
			}
		}
		fmt.Fprintf(&b, "%-23s %6d %6s %s %s\n", kind, now.Code, code, now.Message, now.Data)

		if refusal := legacy.Refuse(err); refusal.Result.Present() {
			s.mustMatch(t, schemaLegacy, "CallToolResult", must(refusal.Result.Whole(nil)))
		}
		s.mustMatch(t, schemaLegacy, "Error", must(literal.Refuse(err).Error.Whole(nil)))
	}
	if diff := cmp.Diff(errorTable, b.String()); diff != "" {
		t.Errorf("the error table changed (-want +got):\n%s", diff)
	}
}

// The task of somebody else is answered byte for byte as one that does not
// exist, whatever else the two errors hold.
func TestForeignIsMissing(t *testing.T) {
	missing := &task.Error{Kind: task.KindNotFound, ID: id, Action: task.ActionGet, Suggest: "look again"}
	foreign := &task.Error{Kind: task.KindOwnerMismatch, ID: id, State: task.Executing, RetryAfter: time.Second, Suggest: "go away"}
	for _, d := range []mcptask.Dialect{legacy, modern} {
		if diff := cmp.Diff(d.Error(missing), d.Error(foreign)); diff != "" {
			t.Errorf("%s (-missing +foreign):\n%s", eraName(d), diff)
		}
	}
}

// An error that nobody knows tells nothing, and one that is for the client is
// told as it is.
func TestOtherErrors(t *testing.T) {
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
	if diff := cmp.Diff(`{"code":5,"message":"mine","data":1}`, string(must(legacy.Refuse(own).Error.Whole(nil)))); diff != "" {
		t.Errorf("own error (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(own, legacy.Refuse(own).Err(nil)); diff != "" {
		t.Errorf("own error, read (-want +got):\n%s", diff)
	}
}

func TestTaskRequired(t *testing.T) {
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

// An upstream's error without a proper code is still an error.
func TestAnswerErr(t *testing.T) {
	for text, want := range map[string]*jsonrpc.Error{
		`{"code":-1,"message":"m","data":1.0}`: {Code: -1, Message: "m", Data: []byte(`1.0`)},
		`{"code":"x"}`:                         {Code: jsonrpc.CodeInternal},
		`{}`:                                   {Code: jsonrpc.CodeInternal},
	} {
		if diff := cmp.Diff(want, mcptask.Answer{Error: mcptask.Text{}.Around(text, "")}.Err(nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if err := (mcptask.Answer{Result: mcptask.Text{}.Around(`{}`, "")}).Err(nil); err != nil {
		t.Errorf("a result is an error: %v", err)
	}
}
