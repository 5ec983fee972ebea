package mcptask

import (
	"encoding/json"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// quote returns s as a JSON string.
func quote(s string) json.RawMessage { return jsonrpc.AppendString(nil, s) }
