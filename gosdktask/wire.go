package gosdktask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	sdk "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

// metaTask is the name in _meta that carries the member task of a call's params. The SDK would
// drop it elsewhere.
const metaTask = "io.thoughtgate/task"

// Params of a request about tasks, as received.
type rawParams struct {
	mcp.ParamsBase

	text json.RawMessage
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *rawParams) UnmarshalJSON(text []byte) error {
	p.text = append(json.RawMessage(nil), text...)
	var meta struct {
		Meta mcp.Meta `json:"_meta"`
	}
	err := json.Unmarshal(text, &meta)
	p.Meta = meta.Meta
	return err
}

// A rawResult is the result for the client, without the members that the SDK adds to its _meta.
type rawResult struct {
	mcp.ResultBase

	text json.RawMessage
}

// MarshalJSON implements [json.Marshaler].
func (r *rawResult) MarshalJSON() ([]byte, error) {
	if len(r.Meta) == 0 {
		return r.text, nil
	}
	return edited(r.text, func(result object) error {
		return result.edit("_meta", func(meta object) error {
			for name, value := range r.Meta {
				if meta[name] != nil {
					continue
				}
				if err := meta.set(name, value); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// unreached is registered for methods that the middleware answers first.
func unreached(context.Context, *mcp.ServerSession, *rawParams) (*rawResult, error) {
	return nil, &sdk.Error{Code: sdk.CodeInternalError, Message: "Internal error"}
}

// An object is a JSON object that can be changed.
type object map[string]json.RawMessage

// edited applies change to a JSON object.
func edited(text []byte, change func(object) error) ([]byte, error) {
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	if o == nil {
		o = object{}
	}
	if err := change(o); err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// edit applies change to the member called name, which is an object or absent.
func (o object) edit(name string, change func(object) error) error {
	text := o[name]
	if text == nil {
		text = json.RawMessage("{}")
	}
	changed, err := edited(text, change)
	o[name] = changed
	return err
}

func (o object) set(name string, value any) error {
	text, err := json.Marshal(value)
	o[name] = text
	return err
}

// moveTask moves the member task of a call's params into _meta, which the SDK keeps.
func moveTask(params []byte) ([]byte, error) {
	return edited(params, func(p object) error {
		asked := p["task"]
		delete(p, "task")
		if p["_meta"] == nil && asked == nil {
			return nil
		}
		return p.edit("_meta", func(meta object) error {
			delete(meta, metaTask) // only moveTask may set it
			if asked != nil {
				meta[metaTask] = asked
			}
			return nil
		})
	})
}

// objectOf returns the JSON object of v.
func objectOf(v any) (schema.Object, error) {
	var o schema.Object
	text, err := json.Marshal(v)
	if err == nil {
		err = jsonv2.Unmarshal(text, &o)
	}
	return o, err
}

// toClient returns err as an error that the SDK can send.
func toClient(d mcptask.Dialect, err error) error {
	if err == nil {
		return nil
	}
	e := d.Error(err)
	wire := &sdk.Error{Code: int64(e.Code), Message: e.Message, Data: json.RawMessage(e.Data)}
	if e.Code == sdk.CodeMethodNotFound {
		return &methodError{wire}
	}
	return wire
}

// A methodError is an error with the code for unknown methods. The SDK replaces the text of such an
// error if errors.Is finds it.
type methodError struct{ wire *sdk.Error }

// Error implements error.
func (e *methodError) Error() string { return e.wire.Message }

// As is for errors.As, with which the SDK finds the code.
func (e *methodError) As(target any) bool {
	to, ok := target.(**sdk.Error)
	if ok {
		*to = e.wire
	}
	return ok
}

// fromTool returns the error of a tool. A JSON-RPC error of the SDK stays a JSON-RPC error.
func fromTool(err error) error {
	own, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return err
	}
	e := &jsonrpc.Error{Code: int(own.Code), Message: err.Error()}
	if len(own.Data) > 0 {
		e.Data = []byte(own.Data)
	}
	return e
}

func invalid(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}
