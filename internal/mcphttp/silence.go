package mcphttp

import (
	"bytes"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A silenceLimit limits the upstream's silence in an event stream. It is lifted once the
// upstream has asked the client something, because the client may take any time to answer. The
// zero value has no limit.
type silenceLimit struct {
	body  *httpclient.TimeoutBody // the upstream's stream; nil if there is no limit
	depth int                     // maximum nesting of messages
}

// lookForQuestion lifts the limit if events contain a request to the client.
func (l *silenceLimit) lookForQuestion(events []byte) {
	if l.body == nil || !mayAsk(events) || !bytes.Contains(events, []byte(`"id"`)) {
		return
	}
	reader := jsonrpc.NewEventReader(bytes.NewReader(events), len(events))
	for {
		event, err := reader.Next()
		if err != nil {
			return
		}
		if upstream.AsksClient(upstream.ReadLine(bytes.TrimSpace(event.Data), l.depth).Packet) {
			l.lift()
			return
		}
	}
}

// mayAsk reports whether text may be part of a request.
func mayAsk(text []byte) bool { return bytes.Contains(text, []byte(`"method"`)) }

// lift removes the limit.
func (l *silenceLimit) lift() {
	if l.body != nil {
		l.body.SetReadTimeout(0)
		l.body = nil
	}
}
