package mcptask

import "github.com/thoughtgate/thoughtgate-go/jsonrpc"

func isTrue(v jsonrpc.Value) bool { return string(v.Bytes) == "true" }

// isEmpty reports whether v is an object without members.
func isEmpty(v jsonrpc.Value) bool {
	for range v.Members() {
		return false
	}
	return v.IsObject()
}
