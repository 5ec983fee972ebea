package mcphttp

import (
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// passedOn are the headers of an upstream's answer that clients get. Besides
// what MCP says, clients need the challenge of OAuth, and when to come again.
// All else, such as cookies or rules for browsers, would be taken for the gate's.
var passedOn = [...]string{"Allow", "Cache-Control", "Content-Type", "Mcp-Protocol-Version", "Retry-After", "Www-Authenticate"}

// copyReplyHeader sets the headers that the client gets of the upstream's answer.
func (x *exchange) copyReplyHeader(from http.Header) {
	to := x.w.Header()
	for _, name := range passedOn {
		if values := from[name]; values != nil {
			to[name] = values
		}
	}
	const session = "Mcp-Session-Id"
	if given := from[session]; len(given) == 1 && (x.label == "initialize" && x.era == wire.Legacy || given[0] == x.r.Header.Get(session)) {
		to[session] = given
	}
}
