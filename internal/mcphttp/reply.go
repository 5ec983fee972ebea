package mcphttp

import (
	"strings"
)

// passedOn are the headers of an upstream's answer that clients get. Besides
// what MCP says, clients need the challenge of OAuth, and when to come again.
// All else, such as cookies or rules for browsers, would be taken for the gate's.
var passedOn = [...]string{"Allow", "Cache-Control", "Content-Type", "Mcp-Protocol-Version", "Retry-After", "Www-Authenticate"}

// namesMessages reports whether some client takes a Content-Type for that of
// messages.
func namesMessages(contentType string) bool {
	contentType = strings.ToLower(contentType)
	return strings.Contains(contentType, "application/json") || strings.Contains(contentType, "text/event-stream")
}
