package mcphttp

import (
	"bytes"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// plainEvent returns an event in a form that all clients take apart in the same way: its
// data on one line, for line breaks in JSON are white space, and no name or id with a
// character at which some clients end a line.
func plainEvent(event jsonrpc.Event) []byte {
	for _, end := range []string{"\r", "\n"} {
		event.Data = bytes.ReplaceAll(event.Data, []byte(end), []byte(" "))
	}
	if !isPrintable(event.Name) {
		event.Name = ""
	}
	if !isPrintable(event.ID) {
		event.ID, event.HasID = "", false
	}
	return jsonrpc.AppendEvent(nil, event)
}

// isPrintable reports whether a text is printable ASCII.
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}
