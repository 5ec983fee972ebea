package jsonrpc_test

import (
	"fmt"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func ExampleParse() {
	in := []byte(`{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"read","arguments":{"path":"/a"}}}`)
	packet, err := jsonrpc.Parse(in, jsonrpc.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	m := packet.Messages[0]
	tool, _ := m.Params.Name.Text()
	fmt.Printf("%s %s: %s %s\n", m.Kind, m.ID.Bytes, m.Method, tool)

	_, err = jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read","NAME":"drop"}}`), jsonrpc.Limits{})
	fmt.Println(err)
	// Output:
	// request 1.0: tools/call read
	// a member name differs from a known one only by case
}

func ExamplePatch() {
	in := []byte(`{ "jsonrpc":"2.0", "id":1, "method":"tools/call", "params":{ "name":"read" } }`)
	packet, err := jsonrpc.Parse(in, jsonrpc.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	m := packet.Messages[0]
	var p jsonrpc.Patch
	p.Replace(m.ID, []byte(`"tg_7"`))
	p.Set(m.Params.Value, "_meta", []byte(`{"progressToken":7}`))
	fmt.Printf("%s\n", p.Apply(in))
	// Output:
	// { "jsonrpc":"2.0", "id":"tg_7", "method":"tools/call", "params":{ "name":"read" ,"_meta":{"progressToken":7}} }
}
