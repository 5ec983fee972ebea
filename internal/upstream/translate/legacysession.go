package translate

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strconv"
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
	takesTasks   bool     // the client knows tasks, and so does the server
	tasks        []string // the ids of the client's tasks
	cancelled    []string // those that the client has cancelled
}

// encode returns the session for the store.
func (s *legacySession) encode() []byte {
	return jsonrpc.AppendObject(nil,
		jsonrpc.Member{Name: "capabilities", JSON: s.capabilities},
		jsonrpc.Member{Name: "info", JSON: s.info},
		jsonrpc.Member{Name: "level", JSON: jsonrpc.AppendString(nil, s.level)},
		jsonrpc.Member{Name: "uris", JSON: stringsJSON(s.uris)},
		jsonrpc.Member{Name: "takesTasks", JSON: strconv.AppendBool(nil, s.takesTasks)},
		jsonrpc.Member{Name: "tasks", JSON: stringsJSON(s.tasks)},
		jsonrpc.Member{Name: "cancelled", JSON: stringsJSON(s.cancelled)})
}

func stringsJSON(texts []string) []byte {
	var all [][]byte
	for _, text := range texts {
		all = append(all, jsonrpc.AppendString(nil, text))
	}
	return jsonrpc.Array(all)
}

func stringsIn(v jsonrpc.Value) (texts []string) {
	for e := range v.Elements() {
		text, _ := e.Text()
		texts = append(texts, text)
	}
	return texts
}

// decode reads a session as encode returns it.
func (s *legacySession) decode(text []byte) {
	v := jsonrpc.Value{Bytes: text}
	s.capabilities, s.info = v.Member("capabilities").Bytes, v.Member("info").Bytes
	s.level, _ = v.Member("level").Text()
	s.takesTasks = v.Member("takesTasks").IsTrue()
	s.uris, s.tasks, s.cancelled = stringsIn(v.Member("uris")), stringsIn(v.Member("tasks")), stringsIn(v.Member("cancelled"))
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
	version, _ := x.m.Params.Member("protocolVersion").Text()
	if !slices.Contains(mcp.Versions(), version) || version >= mcp.Version20260728 {
		version = mcp.Version20251125
	}
	s := &legacySession{id: x.sessionID(ownSession + rand.Text()), capabilities: capabilities, info: info}
	s.takesTasks = version == mcp.Version20251125 &&
		found.Result.Member("capabilities").Member("extensions").Member(mcpname.ExtensionTasks).IsObject()
	x.t.cfg.Sessions.Begin(x.http.Context(), s.id, s.encode())
	resp := x.answerResult(s.initializeResult(version, found.Result))
	resp.Header.Set("Mcp-Session-Id", s.id.ID)
	return resp, nil
}

// initializeResult returns the result of initialize for what a server says about itself.
func (s *legacySession) initializeResult(version string, discovered jsonrpc.Value) []byte {
	capabilities := objectOr(discovered.Member("capabilities")).Without("extensions", "tasks")
	if s.takesTasks {
		tasks := jsonrpc.Member{Name: "tasks", JSON: []byte(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)}
		capabilities = withMembers(jsonrpc.Value{Bytes: capabilities}, []jsonrpc.Member{tasks})
	}
	server := discovered.Member("_meta").Member(mcpname.MetaServerInfo).Bytes
	if server == nil {
		server = []byte(unknownPeer)
	}
	members := []jsonrpc.Member{
		{Name: "protocolVersion", JSON: jsonrpc.AppendString(nil, version)},
		{Name: "capabilities", JSON: capabilities},
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
		return x.changed(s, func(s *legacySession) string {
			s.level = level
			return ""
		})
	case mcpname.ResourcesSubscribe, mcpname.ResourcesUnsubscribe:
		return x.subscription(s)
	}
	isTask := strings.HasPrefix(x.m.Method, "tasks/")
	switch {
	case isTask && s.takesTasks:
		return x.aboutModernTask(s)
	case isTask, x.m.Method == mcpname.ServerDiscover:
		return x.answerUnknown(http.StatusOK), nil
	}
	wants := s.takesTasks && x.m.Method == mcpname.ToolsCall && x.m.Params.Task.IsObject()
	return x.ask(&modernCall{x: x, s: s, wants: wants, declares: wants})
}

// subscription changes the resources to which a session subscribes.
func (x *exchange) subscription(s *legacySession) (*http.Response, error) {
	uri, ok := x.m.Params.URI.Text()
	if !ok {
		return x.answerInvalid("uri is missing"), nil
	}
	return x.changed(s, func(s *legacySession) string {
		s.uris = slices.DeleteFunc(s.uris, func(u string) bool { return u == uri })
		if x.m.Method == mcpname.ResourcesSubscribe {
			s.uris = append(s.uris, uri)
		}
		if len(s.uris) > maxURIs {
			return "the session subscribes to too many resources"
		}
		return ""
	})
}

// changed changes a session, and answers the request for that.
func (x *exchange) changed(s *legacySession, by func(s *legacySession) (refusal string)) (*http.Response, error) {
	refusal, err := x.change(s.id, by)
	switch {
	case err != nil:
		return nil, err
	case refusal != "":
		return x.answerInvalid(refusal), nil
	}
	return x.answerResult([]byte("{}")), nil
}

// change changes a session in the store, unless by returns a refusal. Other requests may change it at the
// same time, so by may be called again.
func (x *exchange) change(id upstream.Session, by func(s *legacySession) (refusal string)) (refusal string, err error) {
	err = x.t.cfg.Sessions.Change(x.http.Context(), id, func(value []byte) []byte {
		s := &legacySession{id: id}
		s.decode(value)
		refusal = by(s)
		changed := s.encode()
		if refusal == "" && len(changed) > maxSession {
			refusal = "the session is too large"
		}
		if refusal != "" {
			return nil
		}
		return changed
	})
	x.t.rounds.wake(id)
	return refusal, err
}

func (x *exchange) answerInvalid(why string) *http.Response {
	return answer(http.StatusOK, jsonrpc.AppendErrorResponse(nil, x.m.ID.Bytes, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: " + why}))
}
