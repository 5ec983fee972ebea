package jsonrpc

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// The error codes of JSON-RPC 2.0.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// An Error is the error member of a response.
type Error struct {
	Code    int
	Message string
	Data    []byte // JSON, or empty
}

func (e *Error) Error() string { return e.Message }

// AppendErrorResponse appends an error response. An empty id is written as null, as for an
// unreadable request.
func AppendErrorResponse(dst, id []byte, e *Error) []byte {
	dst = appendHead(dst, id)
	dst = append(dst, `"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Code), 10)
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, e.Message)
	if len(e.Data) > 0 {
		dst = append(dst, `,"data":`...)
		dst = append(dst, e.Data...)
	}
	return append(dst, "}}"...)
}

// AppendResult appends a response with a result, which must be JSON.
func AppendResult(dst, id, result []byte) []byte {
	dst = appendHead(dst, id)
	dst = append(dst, `"result":`...)
	dst = append(dst, result...)
	return append(dst, '}')
}

func appendHead(dst, id []byte) []byte {
	if len(id) == 0 {
		id = []byte("null")
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	return append(dst, ',')
}

// AppendString appends s as a JSON string. It replaces invalid UTF-8.
func AppendString(dst []byte, s string) []byte {
	// The error reports invalid UTF-8, which AppendQuote has already replaced.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
