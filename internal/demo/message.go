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

// params are the members of params that any method here uses.
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

// paramsOf parses the parameters of m. Missing parameters count as an empty object.
func paramsOf(m jsonrpc.Message) (params, *fault) {
	var p params
	if !m.Params.Present() {
		return p, nil
	}
	if !m.Params.IsObject() || json.Unmarshal(m.Params.Bytes, &p) != nil {
		return p, &fault{code: jsonrpc.CodeInvalidParams, message: "the parameters are malformed"}
	}
	return p, nil
}

// parse parses a body.
func parse(body []byte) (jsonrpc.Packet, *fault) {
	in, err := jsonrpc.Parse(body, jsonrpc.Limits{})
	if refused := new(jsonrpc.ParseError); errors.As(err, &refused) {
		return in, &fault{status: http.StatusBadRequest, code: refused.Code, message: refused.Reason}
	}
	return in, nil
}

// A fault is the error of a response.
type fault struct {
	status  int // HTTP status; 200 if zero
	code    int
	message string
	data    string // JSON, or empty
}

// self is the server's description in JSON.
const self = `{"name":"thoughtgate-demo","version":"1.0.0"}`

// members returns the members that an era adds to every result.
func (e era) members() string {
	if e == legacy {
		return ""
	}
	return `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":` + self + `},`
}

// cached returns the members that an era adds to lists.
func (e era) cached() string {
	if e == legacy {
		return ""
	}
	return `"ttlMs":300000,"cacheScope":"public",`
}
