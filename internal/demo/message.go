package demo

import (
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// The error codes of MCP 2026-07-28 that this server uses.
const (
	codeHeaderMismatch     = -32020
	codeUnsupportedVersion = -32022
)

// params are the members of params that some method here looks at.
type params struct {
	Name            string         `json:"name"`
	Arguments       jsontext.Value `json:"arguments"`
	Cursor          *string        `json:"cursor"`
	ProtocolVersion string         `json:"protocolVersion"`
	RequestID       jsontext.Value `json:"requestId"`
	Meta            meta           `json:"_meta"`
}

type meta struct {
	ProtocolVersion *string        `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities    jsontext.Value `json:"io.modelcontextprotocol/clientCapabilities"`
	ProgressToken   jsontext.Value `json:"progressToken"`
}

// paramsOf reads the parameters of m; a missing object is an empty one.
func paramsOf(m jsonrpc.Message) (params, *fault) {
	var p params
	if !m.Params.Present() {
		return p, nil
	}
	if !m.Params.IsObject() || json.Unmarshal(m.Params.Bytes, &p) != nil {
		return p, &fault{Code: jsonrpc.CodeInvalidParams, Message: "the parameters are malformed"}
	}
	return p, nil
}

// parse reads a body.
func parse(body []byte) (jsonrpc.Packet, *fault) {
	in, err := jsonrpc.Parse(body, jsonrpc.Limits{})
	if refused := new(jsonrpc.ParseError); errors.As(err, &refused) {
		return in, &fault{status: http.StatusBadRequest, Code: refused.Code, Message: refused.Reason}
	}
	return in, nil
}

// A fault is the error member of a response.
type fault struct {
	status  int    // of the HTTP answer, 200 if zero
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

type response struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"` // absent when the request was unreadable
	Error   *fault         `json:"error,omitempty"`
	Result  any            `json:"result,omitzero"` // last, see [endOfText]
}

type notification struct {
	JSONRPC string `json:"jsonrpc"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

// extras are what an era adds to every result.
type extras struct {
	ResultType string      `json:"resultType,omitempty"`
	Meta       *resultMeta `json:"_meta,omitempty"`
}

type resultMeta struct {
	Server implementation `json:"io.modelcontextprotocol/serverInfo"`
}

// caching is what the modern era adds to lists.
type caching struct {
	TTL   int    `json:"ttlMs,omitzero"`
	Scope string `json:"cacheScope,omitempty"`
}

type implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type capabilities struct {
	Tools struct{} `json:"tools"`
}

type listResult struct {
	extras
	caching
	Tools []tool `json:"tools"`
}

type callResult struct {
	extras
	IsError bool          `json:"isError"`
	Content []textContent `json:"content"` // last, see [endOfText]
}

type textContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type progress struct {
	Token    jsontext.Value `json:"progressToken"`
	Progress int            `json:"progress"`
	Total    int            `json:"total"`
	Message  string         `json:"message"`
}
