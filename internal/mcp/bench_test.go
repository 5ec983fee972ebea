package mcp_test

import (
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// BenchmarkScanAndRoute parses and classifies a request of 1 KiB.
func BenchmarkScanAndRoute(b *testing.B) {
	text := `"arguments":{"text":"` + strings.Repeat("the north bridge ", 55) + `"}`
	for name, in := range map[string]struct {
		message string
		headers mcp.Headers
	}{
		"legacy": {
			message: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"measure",` + text + `}}`,
			headers: mcp.Headers{Version: []string{"2025-11-25"}},
		},
		"modern": {
			message: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"measure",` + text + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
				`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`,
			headers: mcp.Headers{Version: []string{"2026-07-28"}, Method: []string{"tools/call"}, Name: []string{"measure"}},
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
				if _, err := mcp.Classify(packet, in.headers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
