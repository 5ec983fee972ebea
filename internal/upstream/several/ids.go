package several

import (
	"strings"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Servers choose the ids and progress tokens of their requests without knowing of each other, and
// the ids of events. Clients get them with the name of the server in front, as in "crm:7". So
// the answer of a client finds its server in any replica, also after a restart.

const idEnd = ":"

// wrapID returns a server's id or token for clients.
func (s *Server) wrapID(id []byte) []byte {
	return jsonrpc.AppendString(nil, s.Name()+idEnd+string(id))
}

// Unwrap returns the server of an id that a client got, and the server's own id.
func (e *Endpoint) Unwrap(id jsonrpc.Value) (s *Server, own []byte, ok bool) {
	text, _ := id.Text()
	s, rest, ok := e.UnwrapEvent(text)
	if !ok {
		return nil, nil, false
	}
	// Only what a server could have sent may be put into a message.
	if _, err := jsonrpc.ParseMessage([]byte(`{"jsonrpc":"2.0","method":"a","id":`+rest+`}`), jsonrpc.Limits{}); err != nil {
		return nil, nil, false
	}
	return s, []byte(rest), true
}

// UnwrapEvent is [Endpoint.Unwrap] for the id of an event.
func (e *Endpoint) UnwrapEvent(id string) (s *Server, own string, ok bool) {
	name, own, ok := strings.Cut(id, idEnd)
	if !ok {
		return nil, "", false
	}
	for _, s := range e.Servers {
		if s.Name() == name {
			return s, own, true
		}
	}
	return nil, "", false
}

// ForClient returns a message of a server as clients get it.
func (s *Server) ForClient(m *jsonrpc.Message) []byte {
	var patch jsonrpc.Patch
	switch {
	case m.Kind == jsonrpc.Request:
		patch.Replace(m.ID, s.wrapID(m.ID.Bytes))
		if token := m.Params.Meta.Member("progressToken"); token.Present() {
			patch.Replace(token, s.wrapID(token.Bytes))
		}
	case m.Method == mcpname.NotifyCancelled:
		if id := m.Params.Member("requestId"); id.Present() {
			patch.Replace(id, s.wrapID(id.Bytes))
		}
	}
	if patch.Empty() {
		return m.Raw
	}
	return patch.Apply(m.Raw)
}

// WrapEvent returns the id of a server's event for clients.
func (s *Server) WrapEvent(id string) string { return s.Name() + idEnd + id }
