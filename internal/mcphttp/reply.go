package mcphttp

import (
	"fmt"
	"net/http"
	"strings"

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

// improper returns the problem of an answer that is none that a client of MCP
// can be given: one that sends it elsewhere, changes the protocol, has no valid
// status, or is encoded though the gate did not ask for that.
func improper(resp *http.Response) *wire.Problem {
	switch encoding := resp.Header.Get("Content-Encoding"); {
	case isRedirect(resp.StatusCode):
		return &wire.Problem{Type: wire.UpstreamRedirect, Cause: fmt.Errorf("status %d", resp.StatusCode)}
	case resp.StatusCode < http.StatusOK || resp.StatusCode > 599:
		return &wire.Problem{Type: wire.UpstreamInvalid, Cause: fmt.Errorf("status %d", resp.StatusCode)}
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		return &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the upstream's answer is encoded, and nobody asked for that"}
	default:
		return nil
	}
}

func isRedirect(status int) bool {
	return status >= http.StatusMultipleChoices && status < http.StatusBadRequest
}
