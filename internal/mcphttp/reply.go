package mcphttp

import (
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// passedOn are the headers of an upstream's answer that clients get. Besides
// what MCP says, clients need the challenge of OAuth, and when to come again.
// All else, such as cookies or rules for browsers, would be taken for the gate's.
var passedOn = [...]string{"Allow", "Cache-Control", "Content-Type", "Mcp-Protocol-Version", "Retry-After", "Www-Authenticate"}

// copyHeader sets the headers that the client gets of the upstream's answer.
func (a relay) copyHeader() {
	from, to := a.resp.Header, a.x.out.header()
	for _, name := range passedOn {
		if values := from[name]; values != nil {
			to[name] = values
		}
	}
	const session = "Mcp-Session-Id"
	if given := from[session]; len(given) == 1 && (a.x.label == "initialize" && a.x.client.era == wire.Legacy || given[0] == a.x.r.Header.Get(session)) {
		to[session] = given
	}
}

// plainType sets the Content-Type of an answer to the kind as which the gate has
// read it, without parameters by which a client may read it as another one. There
// are clients that look for a kind anywhere in the header, and some that decode a
// message as the header says.
func (a relay) plainType() {
	kind, header := a.kind, a.x.out.header()
	given := header["Content-Type"]
	message := kind == "application/json" || kind == "text/event-stream"
	switch {
	case len(given) == 1 && (given[0] == kind || strings.EqualFold(strings.ReplaceAll(given[0], " ", ""), kind+";charset=utf-8")):
	case message:
		header.Set("Content-Type", kind)
	case slices.ContainsFunc(given, namesMessages):
		header.Set("Content-Type", "application/octet-stream")
	}
}

// namesMessages reports whether some client takes a Content-Type for that of
// messages.
func namesMessages(contentType string) bool {
	contentType = strings.ToLower(contentType)
	return strings.Contains(contentType, "application/json") || strings.Contains(contentType, "text/event-stream")
}
