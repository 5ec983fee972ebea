package mcphttp_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// Every byte is forwarded, in both directions.
func TestMessagesAreForwardedVerbatim(t *testing.T) {
	var seen, answer atomic.Pointer[[]byte]
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen.Store(&body)
		w.Header().Set("Content-Type", "application/json")
		w.Write(*answer.Load())
	})
	g := startGate(t, up, nil)
	rapid.Check(t, func(rt *rapid.T) {
		request := message(rt, "request", `"method":"`+rapid.SampledFrom([]string{"tools/call", "x/y", "tools/list"}).Draw(rt, "method")+`","params":{"name":"n","arguments":`, "}")
		response := message(rt, "response", `"result":`, "")
		answer.Store(&response)

		_, got := g.call(t, string(request))

		if !bytes.Equal(*seen.Load(), request) {
			rt.Fatalf("the upstream got\n%s\nwant\n%s", *seen.Load(), request)
		}
		if got != string(response) {
			rt.Fatalf("the client got\n%s\nwant\n%s", got, response)
		}
	})
}

// message generates a message with unusual white space, literals and sizes.
func message(t *rapid.T, what, before, after string) []byte {
	space := rapid.SampledFrom([]string{"", " ", "\n", "\t\r\n"}).Draw(t, what+" space")
	value := rapid.SampledFrom([]string{
		`{}`, `{"b":1.0,"a":1e400}`, `{"n":9007199254740993,"z":-0}`, `{"é":"\u00e9\ud83d\ude00","":null}`,
		`{"big":"` + strings.Repeat("x", 200_000) + `"}`, `{ "a" : [ 1 , [ ] , { } ] }`,
	}).Draw(t, what+" value")
	id := rapid.SampledFrom([]string{"1", "1.0", `"a\/b"`, "-0", "1e3"}).Draw(t, what+" id")
	return []byte(space + `{"jsonrpc":"2.0",` + space + `"id":` + id + `,` + before + value + after + `,"future":true}` + space)
}
