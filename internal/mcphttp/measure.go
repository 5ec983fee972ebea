package mcphttp

import (
	"bytes"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// upstreamOutcome returns how the upstream did its part of the exchange, given
// the status of its answer.
func (x *exchange) upstreamOutcome(status int) string {
	if x.problem != nil && x.problem.Type.Upstream() {
		return httpclient.OutcomeOf(x.problem)
	}
	return httpclient.OutcomeOfStatus(status)
}

// endless reports whether the answer is a stream that lasts as long as the
// client likes.
func (x *exchange) endless() bool { return x.request.Listens() || x.r.Method == http.MethodGet }

// noteAnswer notes whether the upstream answered the exchange's request with a
// JSON-RPC error.
func (a relay) noteAnswer(message []byte) {
	if a.x.id() == nil || !bytes.Contains(message, []byte(`"error"`)) {
		return
	}
	m, err := a.x.readMessage(message)
	a.x.failed = a.x.failed || err == nil && a.x.request.IsAnswer(m) && m.Error.Present()
}

// noteEvents is noteAnswer for the messages of complete events.
func (a relay) noteEvents(events []byte) {
	if a.x.id() == nil || !bytes.Contains(events, []byte(`"error"`)) {
		return
	}
	for r := jsonrpc.NewEventReader(bytes.NewReader(events), len(events)); ; {
		event, err := r.Next()
		if err != nil {
			return
		}
		a.noteAnswer(event.Data)
	}
}
