package translate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A session is a session with a legacy server, which the translator has begun for modern clients
// of one owner that have the same credentials, capabilities and name.
type session struct {
	t      *Translator
	key    string
	by     httpclient.Peer
	header http.Header   // those of the client that began it, and of the session
	result jsonrpc.Value // of initialize

	lastID  atomic.Int64
	level   logLevel
	support taskSupport
	stream  listeners
	current atomic.Int64 // requests and listeners that use the session
	used    atomic.Int64 // when it was last used, in Unix seconds

	hasTasks atomic.Bool // the server has made a task in it
}

const (
	sessionIdle      = 30 * time.Minute
	maxSessions      = 2000
	sessionTimeout   = 30 * time.Second
	maxOwnerSessions = 16
)

// sessions has the sessions with a legacy server.
type sessions struct {
	t         *Translator
	beginning singleflight.Group

	mu    sync.Mutex
	byKey map[string]*session
}

func newSessions(t *Translator) *sessions { return &sessions{t: t, byKey: make(map[string]*session)} }

// sessionKey returns the key of the session for a request.
func (x *exchange) sessionKey() string {
	var key []byte
	for _, name := range slices.Concat(httpclient.DefaultCredentials(), x.t.cfg.Client.Credentials()) {
		key = fmt.Appendf(key, "%q", x.http.Header[name])
	}
	meta := x.m.Params.Meta
	for _, name := range []string{mcpname.MetaClientCapabilities, mcpname.MetaClientInfo} {
		// The gate adds the extension for tasks to some requests of a client.
		canonical, _ := meta.Member(name).AppendCanonical(nil, "extensions", "tasks")
		key = fmt.Appendf(key, "%d:%s", len(canonical), canonical)
	}
	sum := sha256.Sum256(key)
	return x.by.Owner + " " + string(sum[:])
}

// get returns the session for a request, and begins it if necessary. The caller must release it. A
// refusal is the server's answer if it begins none.
func (ss *sessions) get(x *exchange) (s *session, refusal *http.Response, err error) {
	key := x.sessionKey()
	if s := ss.find(key); s != nil {
		return s, nil, nil
	}
	// Other clients may wait for the session, so it begins even if this one leaves.
	begun := ss.beginning.DoChan(key, func() (any, error) { return nil, ss.begin(x, key) })
	select {
	case result := <-begun:
		err = result.Err
	case <-x.http.Context().Done():
		err = context.Cause(x.http.Context())
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return nil, refused.status.response(), nil
	}
	if err != nil {
		return nil, nil, err
	}
	if s := ss.find(key); s != nil {
		return s, nil, nil
	}
	return nil, nil, &mcp.Problem{Type: mcp.Overloaded, Detail: "too many sessions with the server"}
}

// A refusedError reports a server that does not let a client in.
type refusedError struct{ status answerStatus }

// Error implements error.
func (e *refusedError) Error() string {
	return "the server refuses with status " + strconv.Itoa(e.status.code)
}

// find returns the session with a key, or nil.
func (ss *sessions) find(key string) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byKey[key]
	if s != nil {
		s.current.Add(1)
	}
	return s
}

// release ends the use of a session by a request.
func (s *session) release() {
	s.used.Store(time.Now().Unix())
	s.current.Add(-1)
}

// begin begins a session for the client of x. If the server refuses, the error is a [*refusedError].
func (ss *sessions) begin(x *exchange, key string) error {
	ctx, stop := own(ss.t.ctx, sessionTimeout)
	defer stop()
	s := &session{t: ss.t, key: key, by: x.plain(), header: x.credentials()}
	s.used.Store(time.Now().Unix())
	m := x.introduction()
	resp, err := ss.t.post(ctx, s.by, s.header, m.Raw)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if status := statusIn(resp); status.code != http.StatusOK {
		if !status.saysNothing() {
			ss.t.server.forget()
		}
		return &refusedError{status}
	}
	got, err := newSource(resp, ss.t.cfg.MaxMessage).response(m.ID)
	if err == nil {
		err = s.accept(got.Result)
	}
	if err != nil {
		ss.t.server.forget()
		return brokenAnswer(err)
	}
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		s.header.Set("Mcp-Session-Id", id)
	}
	if err := s.notify(ctx, mcpname.NotifyInitialized); err != nil {
		return err
	}
	ss.add(s)
	return nil
}

// introduction returns the initialize request for the modern client of x.
func (x *exchange) introduction() jsonrpc.Message {
	meta := x.m.Params.Meta
	info := meta.Member(mcpname.MetaClientInfo).Bytes
	if info == nil {
		info = []byte(unknownPeer)
	}
	return jsonrpc.NewRequest(newID(), mcpname.Initialize, jsonrpc.NewParams(
		jsonrpc.Member{Name: "protocolVersion", JSON: jsonrpc.AppendString(nil, mcp.Version20251125)},
		jsonrpc.Member{Name: "capabilities", JSON: objectOr(meta.Member(mcpname.MetaClientCapabilities)).Without("extensions", "tasks")},
		jsonrpc.Member{Name: "clientInfo", JSON: info},
	))
}

// unknownPeer stands for a client or server that does not say who it is.
const unknownPeer = `{"name":"unknown","version":"0"}`

// accept keeps the result of initialize.
func (s *session) accept(result jsonrpc.Value) error {
	version, _ := result.Member("protocolVersion").Text()
	if version == "" || version >= mcp.Version20260728 {
		return errBrokenAnswer
	}
	s.result = result.Clone()
	s.header.Set("Mcp-Protocol-Version", version)
	return nil
}

// response returns the response with an id, and skips other messages.
func (s *source) response(id jsonrpc.Value) (*jsonrpc.Message, error) {
	for {
		m, err := s.next()
		if err != nil {
			return nil, err
		}
		if isAnswer(m, id.Bytes) {
			return m, nil
		}
	}
}

// isAnswer reports whether m answers the request with an id.
func isAnswer(m *jsonrpc.Message, id []byte) bool {
	return m.Kind == jsonrpc.Response && jsonrpc.SameID(m.ID.Bytes, id)
}

// add adds a session, and ends those that were not used for long, or are too many.
func (ss *sessions) add(s *session) {
	ss.mu.Lock()
	ss.byKey[s.key] = s
	ended := ss.evict(s)
	ss.mu.Unlock()
	for _, old := range ended {
		ss.t.following.Go(func() { old.end(ss.t.ctx) })
	}
}

// evict removes sessions besides the new one, and returns them. The caller holds the lock.
func (ss *sessions) evict(added *session) (ended []*session) {
	var free []*session // the longest unused first
	ofOwner := 0
	for _, s := range ss.byKey {
		if s.by.Owner == added.by.Owner {
			ofOwner++
		}
		if s != added && s.current.Load() == 0 {
			free = append(free, s)
		}
	}
	slices.SortFunc(free, func(a, b *session) int { return cmp.Compare(a.used.Load(), b.used.Load()) })
	old := time.Now().Add(-sessionIdle).Unix()
	for _, s := range free {
		excess := len(ss.byKey) > maxSessions || s.by.Owner == added.by.Owner && ofOwner > maxOwnerSessions
		if !excess && s.used.Load() > old {
			continue
		}
		if s.by.Owner == added.by.Owner {
			ofOwner--
		}
		delete(ss.byKey, s.key)
		ended = append(ended, s)
	}
	return ended
}

// lose forgets a session that the server has ended.
func (ss *sessions) lose(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byKey[s.key] == s {
		delete(ss.byKey, s.key)
	}
}

// closeTimeout limits how long the end of all sessions may take.
const closeTimeout = 2 * time.Second

// close ends all sessions.
func (ss *sessions) close() {
	ctx, stop := context.WithTimeout(ss.t.ctx, closeTimeout)
	defer stop()
	ss.mu.Lock()
	all := ss.byKey
	ss.byKey = make(map[string]*session)
	ss.mu.Unlock()
	var ended sync.WaitGroup
	for _, s := range all {
		ended.Go(func() { s.end(ctx) })
	}
	ended.Wait()
}

// end tells the server that a session is not needed any more. One with tasks may be: the tasks may run,
// and any replica can ask for them. The server decides how long it keeps it.
func (s *session) end(ctx context.Context) {
	if s.header.Get("Mcp-Session-Id") == "" || s.hasTasks.Load() {
		return
	}
	ctx, stop := context.WithTimeout(ctx, probeTimeout)
	defer stop()
	resp, err := s.t.cfg.Client.Do(ctx, s.by, &http.Request{Method: http.MethodDelete, URL: newURL(), Header: s.header.Clone()}, nil)
	if err == nil {
		_ = resp.Body.Close()
	}
}

// newID returns an id that no other request in the session has.
func (s *session) newID() []byte { return strconv.AppendInt(nil, s.lastID.Add(1), 10) }

// headersIn returns the headers of a request of the client in a session. The session may have begun with
// other headers that are not credentials, such as one that selects a tenant.
func (x *exchange) headersIn(s *session) http.Header {
	header := x.credentials()
	for _, name := range sessionHeaders {
		if values := s.header[name]; values != nil {
			header[name] = values
		}
	}
	return header
}

// send sends a notification or an answer.
func (s *session) send(ctx context.Context, message []byte) error {
	return s.sendAs(ctx, s.by, s.header, message)
}

func (s *session) sendAs(ctx context.Context, by httpclient.Peer, header http.Header, message []byte) error {
	resp, err := s.t.post(ctx, by, header, message)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return brokenAnswer(fmt.Errorf("status %d", resp.StatusCode))
	}
	return nil
}

func (s *session) notify(ctx context.Context, method string, params ...jsonrpc.Member) error {
	m := jsonrpc.NewRequest(nil, method, jsonrpc.NewParams(params...))
	return s.send(ctx, m.Raw)
}

// ask sends a request of the translator itself, such as logging/setLevel.
func (s *session) ask(ctx context.Context, method string, params ...jsonrpc.Member) (jsonrpc.Value, error) {
	ctx, stop := own(ctx, sessionTimeout)
	defer stop()
	m := jsonrpc.NewRequest(s.newID(), method, jsonrpc.NewParams(params...))
	resp, err := s.t.post(ctx, s.by, s.header, m.Raw)
	if err != nil {
		return jsonrpc.Value{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := newSource(resp, s.t.cfg.MaxMessage).response(m.ID)
	if err == nil && got.Error.Present() {
		err = errors.New("the server refuses " + method)
	}
	if err != nil {
		return jsonrpc.Value{}, err
	}
	return got.Result, nil
}

// hasTaskTools reports whether the server runs tools as tasks.
func (s *session) hasTaskTools() bool {
	return s.capability("tasks", "requests", "tools", "call").IsObject()
}

// tasksExtension is the member extensions of capabilities with support for tasks.
const tasksExtension = `{"` + mcpname.ExtensionTasks + `":{}}`

// capability returns what the server has declared about itself.
func (s *session) capability(path ...string) jsonrpc.Value {
	v := s.result.Member("capabilities")
	for _, name := range path {
		v = v.Member(name)
	}
	return v
}

// A logLevel is the level of log messages that a session was asked for. Clients of a session share
// it, so it is the most verbose of theirs.
type logLevel struct {
	mu    sync.Mutex
	asked int // 0 if none
}

var levels = []string{"", "emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"}

// verbosity returns the place of a level, or 0 if there is no such level.
func verbosity(level string) int { return max(0, slices.Index(levels, level)) }

// ensureLevel makes the server send log messages of this level, unless it does.
func (s *session) ensureLevel(ctx context.Context, wanted int) {
	if wanted == 0 || !s.capability("logging").Present() {
		return
	}
	s.level.mu.Lock()
	defer s.level.mu.Unlock()
	if wanted <= s.level.asked {
		return
	}
	if _, err := s.ask(ctx, mcpname.LoggingSetLevel, jsonrpc.Member{Name: "level", JSON: jsonrpc.AppendString(nil, levels[wanted])}); err == nil {
		s.level.asked = wanted
	}
}

// brokenAnswer returns the problem of an answer that cannot be read because of err.
func brokenAnswer(err error) error {
	if known, ok := errors.AsType[*mcp.Problem](err); ok {
		return known
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &mcp.Problem{Type: mcp.UpstreamInvalid, Cause: err}
}

// isOwnKey reports whether a member of _meta belongs to the protocol of one era, so that it is not
// passed to the other.
func isOwnKey(name string) bool {
	switch name {
	case mcpname.MetaProtocolVersion, mcpname.MetaClientCapabilities, mcpname.MetaClientInfo, metaLogLevel:
		return true
	default:
		return strings.HasPrefix(name, "io.modelcontextprotocol/subscription")
	}
}
