package wire_test

import (
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// BenchmarkScanAndRoute reads a request of 1 KiB and finds out of which generation it is.
func BenchmarkScanAndRoute(b *testing.B) {
	text := `"arguments":{"text":"` + strings.Repeat("the north bridge ", 55) + `"}`
	for name, in := range map[string]struct {
		message string
		headers wire.Headers
	}{
		"legacy": {
			message: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"measure",` + text + `}}`,
			headers: wire.Headers{Version: []string{"2025-11-25"}},
		},
		"modern": {
			message: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"measure",` + text + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
				`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`,
			headers: wire.Headers{Version: []string{"2026-07-28"}, Method: []string{"tools/call"}, Name: []string{"measure"}},
		},
	} {
		b.Run(name, func(b *testing.B) {
			data := []byte(in.message)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				packet, err := jsonrpc.Parse(data, jsonrpc.Limits{})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := wire.Classify(packet, in.headers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
