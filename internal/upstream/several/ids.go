package several

import (
	"strings"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Servers choose the ids and progress tokens of their requests without knowing of each other, and
// the ids of events. Clients get them with the name of the server in front, as in "crm:7" for an event.
// An id of a request also has a secret of the session, as in "crm:SECRET:7": a server that sent it in some
// message that the gate does not read could otherwise have its question answered to another server.

const idEnd = ":"

// wrapID returns a server's id or token for the client of a session, which is nil if it has none.
func (s *Server) wrapID(in *Session, id []byte) []byte {
	secret := ""
	if in != nil {
		secret = in.secret
	}
	return jsonrpc.AppendString(nil, s.Name()+idEnd+secret+idEnd+string(id))
}

// Unwrap returns the server of an id that the client of a session got, and the server's own id.
func (e *Endpoint) Unwrap(in *Session, id jsonrpc.Value) (s *Server, own []byte, ok bool) {
	if in == nil {
		return nil, nil, false
	}
	text, _ := id.Text()
	s, rest, ok := e.UnwrapEvent(text)
	if !ok {
		return nil, nil, false
	}
	if rest, ok = strings.CutPrefix(rest, in.secret+idEnd); !ok {
		return nil, nil, false
	}
	// Only what a server could have sent may be put into a message.
	if _, err := jsonrpc.ParseMessage([]byte(`{"jsonrpc":"2.0","method":"a","id":`+rest+`}`), jsonrpc.Limits{}); err != nil {
		return nil, nil, false
	}
	return s, []byte(rest), true
}

// UnwrapEvent returns the server of the id of an event, and the server's own id.
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

// ForClient returns a message of a server as the client of a session gets it, which is nil if it has none.
func (s *Server) ForClient(in *Session, m *jsonrpc.Message) []byte {
	var patch jsonrpc.Patch
	switch {
	case m.Kind == jsonrpc.Request:
		patch.Replace(m.ID, s.wrapID(in, m.ID.Bytes))
		if token := m.Params.Meta.Member("progressToken"); token.Present() {
			patch.Replace(token, s.wrapID(in, token.Bytes))
		}
	case m.Method == mcpname.NotifyCancelled:
		if id := m.Params.Member("requestId"); id.Present() {
			patch.Replace(id, s.wrapID(in, id.Bytes))
		}
	}
	if patch.Empty() {
		return m.Raw
	}
	return patch.Apply(m.Raw)
}

// WrapEvent returns the id of a server's event for clients.
func (s *Server) WrapEvent(id string) string { return s.Name() + idEnd + id }
