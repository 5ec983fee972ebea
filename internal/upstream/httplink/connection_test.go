package httplink_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A connection is used again after an answer to the request, and not after one to another request.
func TestConnectionEndsAtStrayAnswer(t *testing.T) {
	calls := make(chan string, 10) // the connections on which calls came
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, err := jsonrpc.ParseMessage(body, jsonrpc.Limits{})
		if err != nil {
			t.Error(err)
			return
		}
		id, name := string(m.ID.Bytes), string(m.Params.Name.Bytes)
		if name == `"stray"` {
			id = `"of another"`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"tools":[]}}`, id)
		if m.Method == "tools/call" {
			calls <- r.RemoteAddr
		}
	}))
	defer up.Close()
	s := open(t, up.URL, "")
	var on []string
	for i, tool := range []string{"echo", "echo", "stray", "echo"} {
		id := fmt.Sprint(i + 1)
		s.say(modernCall(id, tool))
		s.hear(`"id":` + id)
		on = append(on, <-calls)
	}
	if on[0] != on[1] || on[1] != on[2] || on[3] == on[2] {
		t.Errorf("calls came on %v; want another connection after the stray answer, and only then", on)
	}
}
