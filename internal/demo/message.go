package demo

import (
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The error codes of JSON-RPC and of MCP 2026-07-28 that this server uses.
const (
	codeParse              = -32700
	codeInvalidRequest     = -32600
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeHeaderMismatch     = -32020
	codeUnsupportedVersion = -32022
)

// A message is a request, a notification or a response.
type message struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"` // as received; the answer repeats it
	Method  string         `json:"method"`
	Params  jsontext.Value `json:"params"`
	Result  jsontext.Value `json:"result"`
	Error   jsontext.Value `json:"error"`
}

func (m message) isRequest() bool  { return m.Method != "" && len(m.ID) > 0 }
func (m message) isResponse() bool { return m.Method == "" }

func (m message) valid() bool {
	if m.JSONRPC != "2.0" {
		return false
	}
	if k := m.ID.Kind(); len(m.ID) > 0 && k != '"' && k != '0' {
		return false
	}
	answer := len(m.Result) > 0 || len(m.Error) > 0
	return m.isResponse() == answer && (!answer || len(m.ID) > 0)
}

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

// params reads m's parameters; a missing object is an empty one.
func (m message) params() (params, *fault) {
	var p params
	if len(m.Params) == 0 {
		return p, nil
	}
	if m.Params.Kind() != '{' || json.Unmarshal(m.Params, &p) != nil {
		return p, &fault{Code: codeInvalidParams, Message: "the parameters are malformed"}
	}
	return p, nil
}

// incoming is what one POST carried.
type incoming struct {
	messages []message
	batch    bool // it was an array, however long
}

// parse reads a body. The decoder refuses duplicate names and invalid UTF-8.
func parse(body []byte) (incoming, *fault) {
	broken := &fault{status: http.StatusBadRequest, Code: codeParse, Message: "the body is not JSON"}
	invalid := &fault{status: http.StatusBadRequest, Code: codeInvalidRequest, Message: "the body is not a JSON-RPC message"}
	raw := jsontext.Value(body)
	if !raw.IsValid() {
		return incoming{}, broken
	}
	in := incoming{messages: make([]message, 1), batch: raw.Kind() == '['}
	into := any(&in.messages[0])
	if in.batch {
		into = &in.messages
	}
	if json.Unmarshal(raw, into) != nil || len(in.messages) == 0 {
		return incoming{}, invalid
	}
	for _, m := range in.messages {
		if !m.valid() {
			return incoming{}, invalid
		}
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
