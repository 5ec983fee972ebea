package jsonrpc_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func TestNewRequestMatchesParsed(t *testing.T) {
	received := mustParse(t, ` [{"id":1,"method":"tools/call", "params": { "uri" : "u", "a":1,"name": "x","_meta":{"y":[1]} ,"task":null},"jsonrpc":"2.0"}]`)
	member := func(name, json string) jsonrpc.Member { return jsonrpc.Member{Name: name, JSON: []byte(json)} }
	for name, params := range map[string]jsonrpc.Params{
		"no params":    {},
		"no members":   jsonrpc.NewParams(),
		"all members":  jsonrpc.NewParams(member("name", `"n\u0061"`), member(`a"b`, `1`), member("arguments", `{"x":"é"}`), member("_meta", `{}`), member("taskId", `"t"`)),
		"received":     received.Messages[0].Params,
		"one unknown":  jsonrpc.NewParams(member("x", `[]`)),
		"one is known": jsonrpc.NewParams(member("task", `{"ttl":1}`)),
	} {
		for _, id := range []string{"", "7", `"call-\u0061"`} {
			var given []byte
			if id != "" {
				given = []byte(id)
			}
			made := jsonrpc.NewRequest(given, "tools/call", params)
			if diff := cmp.Diff(mustParse(t, string(made.Raw)).Messages[0], made); diff != "" {
				t.Errorf("%s, id %s: %s (-parsed +made):\n%s", name, id, made.Raw, diff)
			}
		}
	}
}
