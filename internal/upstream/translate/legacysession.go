package translate

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A legacySession is what a modern server must be told with each request of a legacy client. The store
// has it, so all replicas know it. Its JSON form is an object with these members.
type legacySession struct {
	id           upstream.Session
	capabilities []byte   // of the client
	info         []byte   // the client's name and version
	level        string   // of log messages
	uris         []string // of resources to which the client subscribes
}

// encode returns the session for the store.
func (s *legacySession) encode() []byte {
	var uris [][]byte
	for _, uri := range s.uris {
		uris = append(uris, jsonrpc.AppendString(nil, uri))
	}
	return jsonrpc.AppendObject(nil,
		jsonrpc.Member{Name: "capabilities", JSON: s.capabilities},
		jsonrpc.Member{Name: "info", JSON: s.info},
		jsonrpc.Member{Name: "level", JSON: jsonrpc.AppendString(nil, s.level)},
		jsonrpc.Member{Name: "uris", JSON: jsonrpc.Array(uris)})
}

// decode reads a session as encode returns it.
func (s *legacySession) decode(text []byte) {
	v := jsonrpc.Value{Bytes: text}
	s.capabilities, s.info = v.Member("capabilities").Bytes, v.Member("info").Bytes
	s.level, _ = v.Member("level").Text()
	for e := range v.Member("uris").Elements() {
		uri, _ := e.Text()
		s.uris = append(s.uris, uri)
	}
}

const (
	// maxURIs is how many resources one session, or one listening client, may subscribe to.
	maxURIs = 100
	// maxSession is how large the JSON form of a session may be. The store takes no larger values.
	maxSession      = 48 << 10
	maxIntroduction = 16 << 10
)

// sessionID returns the session that a request names.
func (x *exchange) sessionID(id string) upstream.Session {
	return upstream.Session{Upstream: x.t.cfg.Name, Principal: x.by.Principal, ID: id}
}

// legacyToModern serves a legacy client of a modern server.
func (x *exchange) legacyToModern() (*http.Response, error) {
	if x.m.Method == mcpname.Initialize {
		return x.initialize()
	}
	s, err := x.legacySession()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nothing(http.StatusNotFound), nil
	}
	switch x.m.Kind {
	case jsonrpc.Response:
		x.t.rounds.answered(s.id, x.m)
		return nothing(http.StatusAccepted), nil
	case jsonrpc.Notification:
		if x.m.Method == mcpname.NotifyCancelled {
			x.t.rounds.cancel(s.id, x.m.Params.Member("requestId"))
		}
		return nothing(http.StatusAccepted), nil
	default:
		return x.requestIn(s)
	}
}

// legacySession returns the client's session, or nil if it has none with this id.
func (x *exchange) legacySession() (*legacySession, error) {
	id := x.sessionID(x.http.Header.Get("Mcp-Session-Id"))
	value, err := x.t.cfg.Sessions.Value(x.http.Context(), id)
	if err != nil || value == nil {
		return nil, err
	}
	s := &legacySession{id: id}
	s.decode(value)
	return s, nil
}

// initialize begins a session.
func (x *exchange) initialize() (*http.Response, error) {
	capabilities := objectOr(x.m.Params.Member("capabilities")).Without("tasks", "extensions")
	info := objectOr(x.m.Params.Member("clientInfo")).Bytes
	if len(capabilities)+len(info) > maxIntroduction {
		return x.answerInvalid("the client says too much about itself"), nil
	}
	found, status, err := x.t.discover(x, capabilities, info)
	switch {
	case err != nil:
		return nil, err
	case found == nil || !found.Result.IsObject():
		x.t.server.forget()
		status.code = max(status.code, http.StatusBadRequest)
		return status.response(), nil
	}
	s := &legacySession{id: x.sessionID(ownSession + rand.Text()), capabilities: capabilities, info: info}
	x.t.cfg.Sessions.Begin(x.http.Context(), s.id, s.encode())
	resp := x.answerResult(initializeResult(x.m, found.Result))
	resp.Header.Set("Mcp-Session-Id", s.id.ID)
	return resp, nil
}

// initializeResult returns the result of initialize for what a server says about itself.
func initializeResult(m *jsonrpc.Message, discovered jsonrpc.Value) []byte {
	version, _ := m.Params.Member("protocolVersion").Text()
	if !slices.Contains(mcp.Versions(), version) || version >= mcp.Version20260728 {
		version = mcp.Version20251125
	}
	server := discovered.Member("_meta").Member(mcpname.MetaServerInfo).Bytes
	if server == nil {
		server = []byte(unknownPeer)
	}
	members := []jsonrpc.Member{
		{Name: "protocolVersion", JSON: jsonrpc.AppendString(nil, version)},
		{Name: "capabilities", JSON: objectOr(discovered.Member("capabilities")).Without("extensions", "tasks")},
		{Name: "serverInfo", JSON: server},
	}
	if instructions := discovered.Member("instructions"); instructions.Present() {
		members = append(members, jsonrpc.Member{Name: "instructions", JSON: instructions.Bytes})
	}
	return jsonrpc.AppendObject(nil, members...)
}

// besidesPosts serves the other methods of HTTP in a session: GET listens, and DELETE ends the session.
func (x *exchange) besidesPosts() (*http.Response, error) {
	s, err := x.legacySession()
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return nothing(http.StatusNotFound), nil
	case x.http.Method == http.MethodDelete:
		x.t.cfg.Sessions.End(x.http.Context(), s.id)
		return nothing(http.StatusOK), nil
	case x.http.Method == http.MethodGet && x.takesEvents:
		return x.follow(s)
	default:
		resp := nothing(http.StatusMethodNotAllowed)
		resp.Header.Set("Allow", "GET, POST, DELETE")
		return resp, nil
	}
}

// requestIn serves a request in a session.
func (x *exchange) requestIn(s *legacySession) (*http.Response, error) {
	switch x.m.Method {
	case mcpname.Ping:
		return x.answerResult([]byte("{}")), nil
	case mcpname.LoggingSetLevel:
		level, _ := x.m.Params.Member("level").Text()
		if verbosity(level) == 0 {
			return x.answerInvalid("there is no such level"), nil
		}
		s.level = level
		return x.changed(s)
	case mcpname.ResourcesSubscribe, mcpname.ResourcesUnsubscribe:
		return x.subscription(s)
	}
	if strings.HasPrefix(x.m.Method, "tasks/") || x.m.Method == mcpname.ServerDiscover {
		return x.answerUnknown(http.StatusOK), nil
	}
	return x.ask(s)
}

// subscription changes the resources to which a session subscribes.
func (x *exchange) subscription(s *legacySession) (*http.Response, error) {
	uri, ok := x.m.Params.URI.Text()
	if !ok {
		return x.answerInvalid("uri is missing"), nil
	}
	s.uris = slices.DeleteFunc(s.uris, func(u string) bool { return u == uri })
	if x.m.Method == mcpname.ResourcesSubscribe {
		s.uris = append(s.uris, uri)
	}
	if len(s.uris) > maxURIs || len(s.encode()) > maxSession {
		return x.answerInvalid("the session subscribes to too many resources"), nil
	}
	return x.changed(s)
}

// changed stores a changed session and answers the request that changed it.
func (x *exchange) changed(s *legacySession) (*http.Response, error) {
	x.t.cfg.Sessions.Begin(x.http.Context(), s.id, s.encode())
	x.t.rounds.wake(s.id)
	return x.answerResult([]byte("{}")), nil
}

func (x *exchange) answerInvalid(why string) *http.Response {
	return answer(http.StatusOK, jsonrpc.AppendErrorResponse(nil, x.m.ID.Bytes, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: " + why}))
}
