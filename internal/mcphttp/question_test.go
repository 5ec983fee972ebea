package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The upstream's silence is not limited after it has asked the client a question, or while it
// is asked for the result of a task.
func TestQuestionLiftsSilenceLimit(t *testing.T) {
	const (
		limit    = 2 * time.Second
		question = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"%s"}}`
	)
	result := `{"jsonrpc":"2.0","id":7,"method":"tasks/result","params":{"taskId":"theirs"}}`
	for name, tt := range map[string]struct{ message, event string }{
		"a question":            {toolCall("7", "get_x", ""), fmt.Sprintf(question, "sure?")},
		"a longer question":     {toolCall("7", "get_x", ""), fmt.Sprintf(question, strings.Repeat("sure? ", 7_000))},
		"a large question":      {toolCall("7", "get_x", ""), fmt.Sprintf(question, strings.Repeat("sure? ", 50_000))},
		"a question in a batch": {batch(ping, toolCall("7", "get_x", "")), fmt.Sprintf(question, "sure?")},
		"a result":              {result, ""},
		"a result in a batch":   {batch(ping, result), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answered := make(chan struct{})
			g := startGate(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(w, ": here\n\ndata: %s\n\n", tt.event)
				w.(http.Flusher).Flush()
				select {
				case <-answered:
					io.WriteString(w, `data: {"jsonrpc":"2.0","id":7,"result":{"content":[]}}`+"\n\n")
				case <-r.Context().Done():
				}
			}), func(s settings) { s.upstream.CallTimeout, s.upstream.ResponseTimeout = limit, limit })
			resp := g.post(t, tt.message)
			time.AfterFunc(3*limit/2, func() { close(answered) })
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			wantText(t, "answer", string(body), tt.event, `"result":{"content":[]}`)
		})
	}
}
