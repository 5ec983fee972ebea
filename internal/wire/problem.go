package wire

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
)

// A Type names a kind of problem for programs. Its text is the error_type of
// answers and never changes.
type Type string

// The kinds of problems.
const (
	ParseError         Type = "parse_error"
	InvalidRequest     Type = "invalid_request"
	InvalidParams      Type = "invalid_params"
	HeaderMismatch     Type = "header_mismatch"
	UnsupportedVersion Type = "unsupported_protocol_version"
	BodyTooLarge       Type = "body_too_large"
	SlowRequest        Type = "request_too_slow"
	MediaType          Type = "unsupported_media_type"
	NotFound           Type = "not_found"
	TaskNotFound       Type = "task_not_found"
	PassthroughTask    Type = "passthrough_task"
	MethodNotAllowed   Type = "method_not_allowed"
	HostNotAllowed     Type = "host_not_allowed"
	OriginNotAllowed   Type = "origin_not_allowed"
	Unauthenticated    Type = "unauthenticated"
	IdentityDown       Type = "identity_unavailable"
	Overloaded         Type = "overloaded"
	ClientLimit        Type = "client_limit"
	ShuttingDown       Type = "shutting_down"
	UpstreamDown       Type = "upstream_unreachable"
	UpstreamTimeout    Type = "upstream_timeout"
	UpstreamInvalid    Type = "upstream_invalid_response"
	UpstreamRedirect   Type = "upstream_redirect"
	UpstreamUnasked    Type = "upstream_unasked_response"
	UpstreamTaskGone   Type = "upstream_task_not_found"
	PolicyDenied       Type = "policy_denied"
	AmbiguousName      Type = "ambiguous_name"
	AmbiguousMethod    Type = "ambiguous_method"
	TaskRequired       Type = "task_required"
	ApprovalPending    Type = "approval_pending"
	StoreUnavailable   Type = "store_unavailable"
	Internal           Type = "internal_error"
)

// Upstream reports whether a problem of the type is a fault of an upstream's.
func (t Type) Upstream() bool { return strings.HasPrefix(string(t), "upstream_") }

// codes are the codes of one type of problem, for each kind of client.
type codes struct {
	legacy, modern int    // JSON-RPC codes
	status         int    // HTTP status; 0 means inBand for requests and noRequest for all else
	noRequest      int    // HTTP status where there is no request to answer
	message        string // unless the problem has a better one
}

// inBand is the HTTP status of an error that belongs to a request. Any other
// would mean to a legacy client that its session or the endpoint is gone.
const inBand = http.StatusOK

// table is the one place where problems become codes.
var table = map[Type]codes{
	ParseError:         {jsonrpc.CodeParse, jsonrpc.CodeParse, 400, 0, "the body is not valid JSON"},
	InvalidRequest:     {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 400, 0, "invalid request"},
	InvalidParams:      {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, 0, 400, "invalid params"},
	HeaderMismatch:     {codeHeaderMismatch, codeHeaderMismatch, 400, 0, "headers and message differ"},
	UnsupportedVersion: {codeUnsupportedVersion, codeUnsupportedVersion, 400, 0, "unsupported protocol version"},
	BodyTooLarge:       {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 413, 0, "the body is too large"},
	SlowRequest:        {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 408, 0, "the body did not arrive in time"},
	MediaType:          {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 415, 0, "the body must be plain application/json"},
	NotFound:           {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 404, 0, "no MCP endpoint at this path"},
	TaskNotFound:       {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, 404, 0, "there is no such task"},
	PassthroughTask:    {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, 400, 0, "this task is the upstream's own; only held calls have events here"},
	MethodNotAllowed:   {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 405, 0, "method not allowed"},
	HostNotAllowed:     {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 403, 0, "host not allowed"},
	OriginNotAllowed:   {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 403, 0, "origin not allowed"},
	Unauthenticated:    {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 401, 0, "credentials required"},
	IdentityDown:       {codeUnavailable, jsonrpc.CodeInternal, 503, 0, "your identity cannot be verified at the moment, try again"},
	Overloaded:         {codeUnavailable, jsonrpc.CodeInternal, 503, 0, "too many requests at once, try again"},
	ClientLimit:        {codeUnavailable, jsonrpc.CodeInternal, 429, 0, "you have too many requests or streams open at once, try again when some have ended"},
	ShuttingDown:       {codeUnavailable, jsonrpc.CodeInternal, 503, 0, "the gate is shutting down, try again"},
	UpstreamDown:       {-32000, jsonrpc.CodeInternal, 0, 502, "the upstream cannot be reached"},
	UpstreamTimeout:    {-32001, jsonrpc.CodeInternal, 0, 504, "the upstream did not answer in time"},
	UpstreamInvalid:    {-32002, jsonrpc.CodeInternal, 0, 502, "the upstream sent an invalid answer"},
	UpstreamRedirect:   {-32002, jsonrpc.CodeInternal, 0, 502, "the upstream answered with a redirect, which the gate does not follow"},
	UpstreamUnasked:    {-32002, jsonrpc.CodeInternal, 0, 502, "the upstream answered a different request"},
	UpstreamTaskGone:   {-32002, jsonrpc.CodeInternal, 0, 502, "the upstream no longer knows the task that it created for the call"},
	PolicyDenied:       {-32003, jsonrpc.CodeInvalidParams, 0, 403, "denied by policy; the call did not run"},
	AmbiguousName:      {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, 0, 400, "the upstream may read the name differently; the call did not run"},
	AmbiguousMethod:    {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 400, 0, "the method is a misspelling of one that policy controls"},
	TaskRequired:       {jsonrpc.CodeMethodNotFound, CodeMissingCapability, 0, 400, "this tool must be called as a task"},
	ApprovalPending:    {codeUnavailable, jsonrpc.CodeInternal, 0, 503, "still waiting for approval or for the result, ask again"},
	StoreUnavailable:   {codeUnavailable, jsonrpc.CodeInternal, 0, 503, "the gate cannot store calls that need approval at the moment; the call did not run, try again"},
	Internal:           {jsonrpc.CodeInternal, jsonrpc.CodeInternal, 0, 500, "internal error"},
}

// Types returns all kinds of problems.
func Types() []Type { return slices.Sorted(maps.Keys(table)) }

// CodeMissingCapability is the code of 2026-07-28 for a request that needs a
// capability which its sender did not declare.
const CodeMissingCapability = -32021

const (
	codeHeaderMismatch     = -32020
	codeUnsupportedVersion = -32022
	codeUnavailable        = -32013
)

// A Problem is an error of the gate's own for a client. It is an
// error whose text may be shown; its cause is for the log.
type Problem struct { //nolint:errname // it is more often sent than returned
	Type       Type
	Detail     string // more precise than the table's message; must be safe to show
	Tool       string // that was called, if it is about that
	Hint       string // what the client could do
	RetryAfter int    // seconds; 0 means that there is no use in saying
	Cause      error
	Meta       mcptask.Object // more metadata of a tool result that has it
	Result     bool           // it is sent as a tool result where there is a request, so that a model can read it

	extra  []byte // more members of data, as JSON without braces
	status int    // instead of the table's
}

func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return table[p.Type].message
}

func (p *Problem) Unwrap() error { return p.Cause }

// Status returns the HTTP status of p, where request says whether
// there is a request that p answers.
func (p *Problem) Status(request bool) int {
	t := table[p.Type]
	switch {
	case p.status != 0:
		return p.status
	case t.status != 0:
		return t.status
	case request:
		return inBand
	default:
		return t.noRequest
	}
}

// AppendResponse appends the JSON-RPC response with p for a client of era
// e about the request with the given id, which may be nil.
func (p *Problem) AppendResponse(dst []byte, e Era, id []byte, correlationID string) []byte {
	if p.Result && id != nil {
		d := mcptask.Dialect{Era: mcptask.Era(e), Proxy: true, Correlation: correlationID}
		return jsonrpc.AppendResult(dst, id, d.ToolError(p.Error(), table[p.Type].legacy, string(p.Type), p.Meta))
	}
	return jsonrpc.AppendErrorResponse(dst, id, p.RPCError(e, correlationID))
}

// RPCError returns p as the error of a response to a client of era e.
func (p *Problem) RPCError(e Era, correlationID string) *jsonrpc.Error {
	t := table[p.Type]
	code := t.legacy
	if e == Modern {
		code = t.modern
	}
	data := append([]byte(`{"error_type":"`), p.Type...)
	data = append(data, `","correlation_id":`...)
	data = jsonrpc.AppendString(data, correlationID)
	if p.Tool != "" {
		data = jsonrpc.AppendString(append(data, `,"tool":`...), p.Tool)
	}
	if p.Hint != "" {
		data = jsonrpc.AppendString(append(data, `,"hint":`...), p.Hint)
	}
	if p.RetryAfter > 0 {
		data = strconv.AppendInt(append(data, `,"retry_after":`...), int64(p.RetryAfter), 10)
	}
	if p.extra != nil {
		data = append(append(data, ','), p.extra...)
	}
	return &jsonrpc.Error{Code: code, Message: p.Error(), Data: append(data, '}')}
}

// StoreFailed returns the problem of a call that could not be kept, as a client
// of era e is told.
func StoreFailed(e Era, cause error) *Problem {
	p := &Problem{Type: StoreUnavailable, Cause: cause, RetryAfter: 5}
	if e == Modern {
		p.status = http.StatusServiceUnavailable
	}
	return p
}

// TaskMissing returns the problem of a call of tool that had to be a task and
// is none, as a client of era e is told.
func TaskMissing(e Era, tool string) *Problem {
	p := &Problem{Type: TaskRequired, Tool: tool}
	if e == Modern {
		p.status = http.StatusBadRequest
		p.extra = append([]byte(`"requiredCapabilities":`), nest("{}", []string{"extensions", ExtensionTasks})...)
		return p
	}
	p.Hint = `send a task with the call, such as {"ttl": 600000}`
	return p
}

// FromParse turns the error of [jsonrpc.Parse] into the problem it is.
func FromParse(err *jsonrpc.ParseError) *Problem {
	if err.Code == jsonrpc.CodeInvalidRequest {
		return &Problem{Type: InvalidRequest, Detail: err.Reason}
	}
	return &Problem{Type: ParseError, Detail: err.Reason}
}
