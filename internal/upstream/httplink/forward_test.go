package httplink

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A batch with a tool call has the timeouts of calls, and only a single request opens an event
// stream.
func TestUseOfPackets(t *testing.T) {
	const (
		ping   = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		call   = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`
		listen = `{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{}}`
		told   = `{"jsonrpc":"2.0","method":"subscriptions/listen","params":{}}`
	)
	for text, want := range map[string]struct {
		method string
		stream bool
	}{
		ping:                          {"ping", false},
		listen:                        {mcpname.SubscriptionsListen, true},
		told:                          {mcpname.SubscriptionsListen, false},
		"[" + ping + "," + call + "]": {"tools/call", false},
		"[" + listen + "]":            {mcpname.SubscriptionsListen, false},
	} {
		p, err := jsonrpc.Parse([]byte(text), jsonrpc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if method, stream := leading(p).Method, listens(p); method != want.method || stream != want.stream {
			t.Errorf("%s is sent as %s, as a stream: %t; want %s, %t", text, method, stream, want.method, want.stream)
		}
	}
}
