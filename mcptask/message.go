package mcptask

import (
	"encoding/json"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

func notification[P any](method string, params P) schema.Notification[P] {
	return schema.Notification[P]{JSONRPC: "2.0", Method: method, Params: params}
}

func encode(v any) (json.RawMessage, error) {
	text, err := jsonv2.Marshal(v)
	return text, err
}
