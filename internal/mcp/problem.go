package mcp

import (
	"cmp"
	"crypto/rand"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/gatedialect"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

// A Type is the kind of a problem for programs: the error_type of answers. It never changes.
type Type string

// The kinds of problems. The comments say what docs/errors.md adds to their messages.
const (
	ParseError         Type = "parse_error"
	InvalidRequest     Type = "invalid_request" // Two parsers could read it differently: a name given twice, `Method` for `method`, too deep.
	InvalidParams      Type = "invalid_params"  // Such as a `tools/call` without a name. A call that needs approval may have a URI of 2000 bytes, and one message may subscribe to 1000 resources.
	HeaderMismatch     Type = "header_mismatch" // A fault of the client, or an attempt to fool a proxy.
	UnsupportedVersion Type = "unsupported_protocol_version"
	BodyTooLarge       Type = "body_too_large" // See `limits.max_request_body`.
	SlowRequest        Type = "request_too_slow"
	MediaType          Type = "unsupported_media_type"
	NotFound           Type = "not_found"        // See `upstreams[].path`.
	SessionGone        Type = "session_gone"     // It may also belong to another agent. See [Sessions](identity.md#sessions-of-agents).
	TaskNotFound       Type = "task_not_found"   // Or it belongs to another agent.
	PassthroughTask    Type = "passthrough_task" // Ask the upstream with `tasks/get`.
	MethodNotAllowed   Type = "method_not_allowed"
	HostNotAllowed     Type = "host_not_allowed"     // Add the `Host` header to `allowed_hosts`.
	OriginNotAllowed   Type = "origin_not_allowed"   // Add the `Origin` header to `allowed_origins` if that site may use the gate.
	Unauthenticated    Type = "unauthenticated"      // `WWW-Authenticate` says what the gate accepts, or the server that refused a held call. See [identity.md](identity.md).
	NotConnected       Type = "not_connected"        // A person must sign in at the link in the message. See [connections.md](connections.md).
	InsufficientScope  Type = "insufficient_scope"   // See `upstreams[].scopes`.
	IdentityDown       Type = "identity_unavailable" // The keys of the issuer of the JWT cannot be fetched.
	Overloaded         Type = "overloaded"           // A limit of the whole gate; see [Limits](configuration.md#limits).
	ClientLimit        Type = "client_limit"         // The share of one client; see [Limits](configuration.md#limits).
	ShuttingDown       Type = "shutting_down"
	UpstreamDown       Type = "upstream_unreachable"      // The call did not run.
	UpstreamTimeout    Type = "upstream_timeout"          // See `limits.request_timeout` and `limits.call_timeout`. The call may have run.
	UpstreamInvalid    Type = "upstream_invalid_response" // Not JSON, compressed, broken off, or a status outside of 200 to 599. The call may have run.
	UpstreamRedirect   Type = "upstream_redirect"         // Configure the final URL.
	UpstreamUnasked    Type = "upstream_unasked_response"
	UpstreamTaskGone   Type = "upstream_task_not_found" // The call may have run.
	PolicyDenied       Type = "policy_denied"           // The message names the rule or policy. For `tools/call` it is a tool result.
	ToolUnpinned       Type = "tool_unpinned"           // The tool has changed or is new. See [Pins](approvals.md#pins).
	AmbiguousName      Type = "ambiguous_name"          // `hint` says why. See [Spellings](policy.md#spellings).
	AmbiguousMethod    Type = "ambiguous_method"        // Such as `TOOLS/CALL`.
	NameTooLong        Type = "name_too_long"
	TaskRequired       Type = "task_required" // See `waiting.mode` and `tasks.force_required`.
	ApprovalPending    Type = "approval_pending"
	StoreUnavailable   Type = "store_unavailable" // The message says so if the gate does not know whether the call was stored. See [The store is unavailable](operations.md#the-store-is-unavailable).
	Internal           Type = "internal_error"
)

// Upstream reports whether the upstream caused the problem.
func (t Type) Upstream() bool { return strings.HasPrefix(string(t), "upstream_") }

// codes are the codes and the message of a problem type.
type codes struct {
	legacy, modern int    // JSON-RPC codes
	status         int    // HTTP status; 0 means inBand for requests and noRequest otherwise
	noRequest      int    // HTTP status without a request to answer
	message        string // default message
}

// inBand is the HTTP status of errors that answer a request. A legacy client would take any
// other status as the end of its session.
const inBand = http.StatusOK

// table maps problem types to codes.
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
	SessionGone:        {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 404, 0, "there is no such session, or it has ended: begin again with initialize"},
	TaskNotFound:       {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, 404, 0, "there is no such task"},
	PassthroughTask:    {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, 400, 0, "this task is the upstream's own; only held calls have events here"},
	MethodNotAllowed:   {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 405, 0, "method not allowed"},
	HostNotAllowed:     {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 403, 0, "host not allowed"},
	OriginNotAllowed:   {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 403, 0, "origin not allowed"},
	Unauthenticated:    {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 401, 0, "credentials required"},
	NotConnected:       {codeUnavailable, jsonrpc.CodeInternal, 0, 403, "the gate needs the right to use this server"},
	InsufficientScope:  {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 403, 0, "the token lacks scopes that are needed here"},
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
	ToolUnpinned:       {-32003, jsonrpc.CodeInvalidParams, 0, 403, "the tool is not as the lock file has it; the call did not run"},
	AmbiguousName:      {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, 0, 400, "the upstream may read the name differently; the call did not run"},
	AmbiguousMethod:    {jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, 400, 0, "the method is a misspelling of one that policy controls"},
	NameTooLong:        {jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidParams, 0, 400, "the name has more than 1 KiB, or the URI more than 8 KiB; the call did not run"},
	TaskRequired:       {jsonrpc.CodeMethodNotFound, CodeMissingCapability, 0, 400, "this tool must be called as a task"},
	ApprovalPending:    {codeUnavailable, jsonrpc.CodeInternal, 0, 503, "still waiting for approval or for the result, ask again"},
	StoreUnavailable:   {codeUnavailable, jsonrpc.CodeInternal, 0, 503, "the gate cannot store calls that need approval at the moment; the call did not run, try again"},
	Internal:           {jsonrpc.CodeInternal, jsonrpc.CodeInternal, 0, 500, "internal error"},
}

// Types returns all problem types.
func Types() []Type { return slices.Sorted(maps.Keys(table)) }

// CodeMissingCapability is the code of 2026-07-28 for a request without a required client
// capability.
const CodeMissingCapability = -32021

const (
	codeHeaderMismatch     = -32020
	codeUnsupportedVersion = -32022
	codeUnavailable        = -32013
	codeURLElicitation     = -32042
	codeNoResource         = -32002
)

// A Problem is an error that is shown to a client. Cause is for the log only.
type Problem struct { //nolint:errname // it is more often sent than returned
	Type       Type
	Detail     string   // replaces the default message; must be safe to show
	Tool       string   // the called tool, if any
	Hint       string   // what the client could do
	RetryAfter int      // seconds; 0 to omit
	Challenge  []string // the upstream's WWW-Authenticate
	Connect    string   // the page on which a person connects the gate to the upstream
	Cause      error
	Meta       schema.Object // additional _meta of a tool result
	Result     bool          // send as a tool result, so that the model can read it

	extra  []byte // additional members of data, as JSON without braces
	status int    // overrides the table
	code   int    // overrides the table
}

func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return table[p.Type].message
}

func (p *Problem) Unwrap() error { return p.Cause }

// Status returns the HTTP status of p. request is true if p answers a request.
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

// Vendor is the prefix of members of _meta that the gate adds and no specification defines.
const Vendor = "thoughtgate/"

// AppendResponse appends p as the response to the request with the given id, which may be nil,
// for a client of era e.
func (p *Problem) AppendResponse(dst []byte, e Era, id []byte, correlationID string) []byte {
	if p.Result && id != nil {
		d := mcptask.Dialect{Era: mcptask.Era(e), Gate: gatedialect.Options{Proxy: true, Vendor: Vendor, Correlation: correlationID}}
		return jsonrpc.AppendResult(dst, id, d.ToolError(p.Error(), table[p.Type].legacy, string(p.Type), p.Meta))
	}
	return jsonrpc.AppendErrorResponse(dst, id, p.RPCError(e, correlationID))
}

// RPCError returns p as a JSON-RPC error for a client of era e.
func (p *Problem) RPCError(e Era, correlationID string) *jsonrpc.Error {
	t := table[p.Type]
	code := t.legacy
	if e == Modern {
		code = t.modern
	}
	code = cmp.Or(p.code, code)
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
	if p.Connect != "" {
		data = jsonrpc.AppendString(append(data, `,"connect_url":`...), p.Connect)
	}
	if p.extra != nil {
		data = append(append(data, ','), p.extra...)
	}
	return &jsonrpc.Error{Code: code, Message: p.Error(), Data: append(data, '}')}
}

// NoResource returns the problem of a request about a resource that does not exist.
func NoResource(e Era, uri, detail string) *Problem {
	p := &Problem{Type: InvalidParams, Detail: detail, extra: jsonrpc.AppendString([]byte(`"uri":`), uri)}
	if e == Legacy {
		p.code = codeNoResource
	}
	return p
}

// Elicits returns the problem for a client of 2025-11-25 that can ask its user to open p.Connect. The client
// may repeat its request then.
func (p Problem) Elicits() *Problem {
	p.code = codeURLElicitation
	p.extra = append([]byte(`"elicitations":[`), ElicitURL(p.Connect, p.Error(), rand.Text())...)
	p.extra = append(p.extra, ']')
	return &p
}

// ElicitURL returns the params of an elicitation that asks a user to open a URL. The id is that of the
// elicitation in 2025-11-25, and empty in other versions.
func ElicitURL(at, message, id string) []byte {
	params := []byte(`{"mode":"url","url":`)
	if id != "" {
		params = append(jsonrpc.AppendString([]byte(`{"mode":"url","elicitationId":`), id), `,"url":`...)
	}
	params = jsonrpc.AppendString(params, at)
	params = jsonrpc.AppendString(append(params, `,"message":`...), message)
	return append(params, '}')
}

// StoreProblem returns the problem of a call that could not be stored.
func StoreProblem(e Era, cause error) *Problem {
	p := &Problem{Type: StoreUnavailable, Cause: cause, RetryAfter: 5}
	if e == Modern {
		p.status = http.StatusServiceUnavailable
	}
	return p
}

// TaskRequiredProblem returns the problem of a call without a task to a tool that requires one.
func TaskRequiredProblem(e Era, tool string) *Problem {
	p := &Problem{Type: TaskRequired, Tool: tool}
	if e == Modern {
		p.status = http.StatusBadRequest
		p.extra = append([]byte(`"requiredCapabilities":`), nest("{}", []string{"extensions", mcpname.ExtensionTasks})...)
		return p
	}
	p.Hint = `send a task with the call, such as {"ttl": 600000}`
	return p
}

// FromParse returns the problem for an error of [jsonrpc.Parse].
func FromParse(err *jsonrpc.ParseError) *Problem {
	if err.Code == jsonrpc.CodeInvalidRequest {
		return &Problem{Type: InvalidRequest, Detail: err.Reason}
	}
	return &Problem{Type: ParseError, Detail: err.Reason}
}
