package stdioclient

import (
	"bytes"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// FuzzPendingRequests checks that a request of the gate is sent unchanged except for its id, that
// its answer is returned unchanged except for the id, and that no other message is taken for the
// answer.
func FuzzPendingRequests(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"result":{"tools":[]}`)
	f.Add(` {"id":"call-\u0061","jsonrpc":"2.0","method":"tools/call","params":{"name":"x","_meta":{"id":1}}} `, `"error":{"code":-1,"message":"x"}`)
	f.Add(`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]`, `"result":{}`)
	f.Fuzz(func(t *testing.T, request, outcome string) {
		p, err := jsonrpc.Parse([]byte(request), jsonrpc.Limits{})
		if err != nil || len(p.Messages) != 1 || p.Messages[0].Kind != jsonrpc.Request {
			return
		}
		var o pendingRequests
		q, body := o.add(p, nil)
		sent, err := jsonrpc.Parse(body, jsonrpc.Limits{})
		if err != nil {
			t.Fatalf("the sent text is not a message: %v", err)
		}
		id := string(sent.Messages[0].ID.Bytes)
		if back := bytes.Replace(sent.Messages[0].Raw, []byte(id), p.Messages[0].ID.Bytes, 1); !bytes.Equal(back, p.Messages[0].Raw) {
			t.Errorf("sent %s for %s", body, request)
		}
		answer := `{"jsonrpc":"2.0","id":` + id + `,` + outcome + `}`
		line := upstream.ReadLine([]byte(answer), 0)
		if foreign := upstream.ReadLine([]byte(`{"jsonrpc":"2.0","id":`+string(p.Messages[0].ID.Bytes)+`,`+outcome+`}`), 0); foreign.Err == nil {
			if rest := o.take(foreign, 0); len(rest) != 1 {
				t.Errorf("an answer to another request was taken: %s", foreign.Text)
			}
		}
		if line.Err != nil || line.Packet.Batch || line.Packet.Messages[0].Kind != jsonrpc.Response {
			return
		}
		if rest := o.take(line, 0); len(rest) != 0 {
			t.Fatalf("the answer was not taken: %s", answer)
		}
		got, err := q.wait(t.Context())
		if want := `{"jsonrpc":"2.0","id":` + string(p.Messages[0].ID.Bytes) + `,` + outcome + `}`; err != nil || string(got) != string(bytes.TrimSpace([]byte(want))) {
			t.Errorf("the answer is %s (%v); want %s", got, err, want)
		}
		if o.remove(q); o.any() {
			t.Error("the request is still there")
		}
	})
}
