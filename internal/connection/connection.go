// Package connection keeps the tokens with which the gate uses MCP servers that want OAuth. A person connects
// the gate to a server by signing in there; see [Connections.Begin]. The tokens are sealed records of the store,
// so all replicas use and renew the same ones. [Connections.Tokens] gives them to the client of the server.
package connection

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/sync/singleflight"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Mode says whose tokens a server gets.
type Mode string

// The modes.
const (
	Shared            Mode = "shared"             // those of one sign-in, by an administrator, for all agents
	Principal         Mode = "principal"          // those of the person behind each agent
	ClientCredentials Mode = "client_credentials" // those of the gate itself, without a person
	TokenExchange     Mode = "token_exchange"     // those that the authorization server gives for the token of the agent
)

// A Server is an MCP server that wants OAuth.
type Server struct {
	Name   string // of the upstream
	Mode   Mode
	Client oauth.Client
}

// A Config configures [New].
type Config struct {
	Servers []Server
	// Person returns the name of the operator who is the person behind a principal.
	Person func(principal string) string
	Now    func() time.Time
	Log    *slog.Logger
}

// A Store has the records and the journal of a gate.
type Store interface {
	gatestore.Records
	auditlog.Journal
}

// Connections keeps the connections of a gate.
type Connections struct {
	cfg    Config
	page   string // where people connect
	store  Store
	sealer keyring.Sealer

	renewing singleflight.Group

	mu      sync.Mutex
	known   map[string]cached      // by record name
	direct  map[string]directGrant // tokens that no person has signed in for
	invited map[string]time.Time   // when the agent of a record name was last told to connect
	failed  map[string]failure     // to get a token, by record name or key of direct
	waits   map[string]int         // how many calls wait for a connection, by record name
}

// New returns the connections of cfg, which must be opened before they are used.
func New(cfg Config) *Connections {
	return &Connections{cfg: cfg, known: make(map[string]cached), direct: make(map[string]directGrant), invited: make(map[string]time.Time), failed: make(map[string]failure), waits: make(map[string]int)}
}

// Callback is the path to which authorization servers send browsers back, below that of the page on which people
// connect. Some servers have a path of their own below it.
const Callback = "/callback"

// Document is the path of the gate's metadata as a client of authorization servers, also below that of the page.
const Document = "/client.json"

// Open sets the store, which has the connections, and the address of the page on which people connect.
func (c *Connections) Open(s Store, ring *keyring.Ring, page string) {
	c.store, c.sealer, c.page = s, ring.Sealer(keyring.Connections), page
	for i := range c.cfg.Servers {
		if s := &c.cfg.Servers[i]; s.connects() {
			s.Client.Redirect, s.Client.Document, s.Client.Separate = page+Callback, page+Document, true
		}
	}
}

// ServeDocument answers with the gate's metadata as a client. It has no secret: authorization servers read it.
func (c *Connections) ServeDocument(w http.ResponseWriter, r *http.Request) {
	all := c.Servers()
	if len(all) == 0 {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=3600")
	_ = json.MarshalWrite(w, struct {
		ID string `json:"client_id"`
		oauthex.ClientRegistrationMetadata
	}{c.page + Document, all[0].Client.Metadata()})
}

// Keeps reports whether connections are stored.
func (c *Connections) Keeps() bool {
	return slices.ContainsFunc(c.cfg.Servers, func(s Server) bool { return s.connects() })
}

// A Connection is the right of a person, or of the whole gate, to use a server.
type Connection struct {
	ID       string    `json:"id"`
	Upstream string    `json:"upstream"`
	Person   string    `json:"person,omitzero"` // empty if all agents share it
	By       string    `json:"by"`              // the operator who has connected
	At       time.Time `json:"at"`
	Scopes   []string  `json:"scopes,omitempty"`
	// Ended means that the server or its authorization server does not accept the tokens any more, so the
	// person must connect again.
	Ended time.Time `json:"ended,omitzero"`
}

// A record is the stored form of a connection.
type record struct {
	About     Connection `json:"about"`
	Challenge []string   `json:"challenge,omitempty"` // of the server, with which it has asked for more scopes
	Renewing  time.Time  `json:"renewing,omitzero"`   // until when a replica renews the token
	Refused   time.Time  `json:"refused,omitzero"`    // when the token was renewed because the server had refused the one before
	Sealed    string     `json:"sealed"`              // the oauth.Grant

	version int64
	grant   oauth.Grant
}

// A cached record was read at some time.
type cached struct {
	record record
	at     time.Time
}

// Errors of this package.
var (
	// ErrNotFound means that there is no such connection or server.
	ErrNotFound = errors.New("there is no such connection")
	// ErrForbidden means that the operator may not change the connection.
	ErrForbidden = errors.New("only an administrator may do this")
	// ErrSignIn means that a sign-in is not valid: it was used, is too old, or another browser has begun it.
	ErrSignIn = errors.New("this sign-in is not valid any more: begin again, in this browser")
)

const (
	connections = "connection/"
	signIns     = "signin/"
	// maxReason is the maximum length of the reason for a removal.
	maxReason = 500
	// maxConnections is how many connections are listed.
	maxConnections = 10_000
)

// idOf returns the id of the connection of a person, or of all if person is empty.
func idOf(upstream, person string) string {
	//mutate:swap "+ person" `+ ""` internal/app.TestPeopleHaveTheirOwnConnections a person uses the connection of another
	return digestOf(upstream + "\x00" + person)
}

// digestOf returns a short digest, which is unique.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// server returns the server of an upstream with connections, or nil.
func (c *Connections) server(upstream string) *Server {
	i := slices.IndexFunc(c.cfg.Servers, func(s Server) bool { return s.Name == upstream && s.connects() })
	if i < 0 {
		return nil
	}
	return &c.cfg.Servers[i]
}

// connects reports whether people connect the server.
func (s *Server) connects() bool { return s.Mode == Shared || s.Mode == Principal }

// mayConnect reports whether an operator may connect the server now. Only a browser can sign in.
func (s *Server) mayConnect(who Actor) bool {
	//mutate:swap "(s.Mode != Shared || who.Admin)" "true" Test(OnlyAdminsConnectForAll|RoleCountsAtTheEndOfSignIn) an approver connects for all agents
	return (s.Mode != Shared || who.Admin) && who.Session != ""
}

// Owner returns the person of the connection that an operator makes.
func (s *Server) Owner(operator string) string {
	if s.Mode == Shared {
		return ""
	}
	return operator
}

// Servers returns the servers that people connect.
func (c *Connections) Servers() []Server {
	return slices.DeleteFunc(slices.Clone(c.cfg.Servers), func(s Server) bool { return !s.connects() })
}

// Visible returns the connections that an operator may see, by server and person: all of them for an
// administrator, and otherwise the own ones and the shared ones.
func (c *Connections) Visible(ctx context.Context, who Actor) ([]Connection, error) {
	all, err := c.list(ctx)
	return slices.DeleteFunc(all, func(one Connection) bool {
		//mutate:false internal/app.TestOnlyOwnersRemoveConnections an operator sees the connections of others
		return !who.Admin && one.Person != "" && one.Person != who.Name
	}), err
}

// list returns all connections, by server and person.
func (c *Connections) list(ctx context.Context) ([]Connection, error) {
	var all []Connection
	for r, err := range gatestore.EachRecord(ctx, c.store, gatestore.RecordQuery{Prefix: connections, Limit: 200}) {
		if err != nil {
			return nil, err
		}
		found, err := c.decode(ctx, r)
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return nil, err
		case found.About.ID == "" || len(all) == maxConnections: // it cannot be read
		default:
			if found.About.Ended.IsZero() && (err != nil || !c.accepts(&found)) {
				found.About.Ended = c.cfg.Now().UTC()
			}
			all = append(all, found.About)
		}
	}
	slices.SortFunc(all, func(a, b Connection) int {
		return cmp.Or(cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(a.Person, b.Person))
	})
	return all, nil
}

// An Actor is the operator who changes a connection.
type Actor struct {
	Name    string
	Admin   bool
	Session string // of the browser; empty for a program
}

// Remove deletes a connection and revokes its tokens. A failed revocation is only logged: the gate does not use
// the tokens any more.
func (c *Connections) Remove(ctx context.Context, id string, who Actor, reason string) (Connection, error) {
	ctx = context.WithoutCancel(ctx)
	found, err := c.delete(ctx, id, who, reason)
	if err != nil {
		return Connection{}, err
	}
	c.forget(id)
	about := found.About
	if s := c.server(about.Upstream); s != nil && found.grant.Access != "" {
		c.revoke(ctx, s, &found)
	}
	c.cfg.Log.InfoContext(ctx, "connection removed", "upstream", about.Upstream, "person", about.Person, "by", who.Name)
	return about, nil
}

// delete replaces a record by an empty one, which keeps its version until no renewal runs any more: otherwise the
// end of a renewal could bring the connection back, or replace the next one. It returns the last record, without
// its grant if its key is gone.
func (c *Connections) delete(ctx context.Context, id string, who Actor, reason string) (record, error) {
	for noted := false; ; {
		found, err := c.read(ctx, id)
		about := found.About
		switch {
		case err != nil && (about.ID == "" || !errors.Is(err, ErrNotFound)):
			return record{}, err
		//mutate:false internal/app.TestOnlyOwnersRemoveConnections a person removes the connection of another
		case !who.Admin && (about.Person == "" || about.Person != who.Name):
			return record{}, ErrForbidden
		}
		if !noted {
			if err := c.note(ctx, auditlog.Disconnected, about, who.Name, reason); err != nil {
				return record{}, err
			}
			noted = true
		}
		empty := gatestore.Record{Name: connections + id, Version: found.version + 1, Value: []byte("{}"), Expires: c.cfg.Now().Add(10 * renewTime)}
		if err := c.store.PutRecord(ctx, empty); !errors.Is(err, task.ErrConcurrentModification) {
			return found, err
		}
	}
}

// revoke revokes the tokens of a connection.
func (c *Connections) revoke(ctx context.Context, s *Server, r *record) {
	if err := s.Client.Revoke(ctx, &r.grant); err != nil {
		c.cfg.Log.WarnContext(ctx, "the tokens of a removed connection may still be valid", "upstream", r.About.Upstream, "person", r.About.Person, "err", err)
	}
}

// note adds an entry about a connection to the journal.
func (c *Connections) note(ctx context.Context, step string, about Connection, actor, reason string) error {
	return c.store.Append(ctx, task.Note{At: c.cfg.Now(), Step: step, Actor: actor, Approver: about.Person, Upstream: about.Upstream, Reason: safetext.Text(reason, maxReason), Outcome: strings.Join(about.Scopes, " ")})
}

// accepts reports whether the tokens of r are for the server as it is configured now.
func (c *Connections) accepts(r *record) bool {
	s := c.server(r.About.Upstream)
	//mutate:true internal/app.TestTokensStayWithTheirServer tokens are sent to another server than that of the sign-in
	return s != nil && r.grant.IsFor(&s.Client)
}

// read returns a record from the store.
func (c *Connections) read(ctx context.Context, id string) (record, error) {
	stored, err := c.store.GetRecord(ctx, connections+id)
	if errors.Is(err, task.ErrNotFound) {
		return record{}, ErrNotFound
	}
	if err != nil {
		return record{}, err
	}
	return c.decode(ctx, stored)
}

// decode returns a record in its stored form. The error is [ErrNotFound] if nobody can use it.
func (c *Connections) decode(ctx context.Context, stored gatestore.Record) (record, error) {
	found := record{version: stored.Version}
	if json.Unmarshal(stored.Value, &found) != nil {
		return record{}, ErrNotFound
	}
	text, err := c.sealer.Open(ctx, found.Sealed, strings.TrimPrefix(stored.Name, connections))
	if err == nil && json.Unmarshal([]byte(text), &found.grant) != nil || errors.Is(err, keyring.ErrForeign) {
		return found, ErrNotFound // its key is gone
	}
	return found, err
}

// write stores the next version of a record. The error is [task.ErrConcurrentModification] if it has changed, and
// [errTooLarge] if it does not fit.
func (c *Connections) write(ctx context.Context, r *record) error {
	value, err := c.encode(ctx, r)
	if err != nil {
		return err
	}
	if err := c.store.PutRecord(ctx, gatestore.Record{Name: connections + r.About.ID, Version: r.version + 1, Value: value}); err != nil {
		return err
	}
	r.version++
	c.remember(*r)
	return nil
}

// errTooLarge means that a connection does not fit into a record.
var errTooLarge = errors.New("the tokens of the server are too large to be kept")

// encode returns the stored form of a record.
func (c *Connections) encode(ctx context.Context, r *record) ([]byte, error) {
	text, err := json.Marshal(&r.grant)
	if err != nil {
		return nil, err
	}
	r.About.Scopes = r.grant.Scopes
	if r.Sealed, err = c.sealer.Seal(ctx, string(text), r.About.ID); err != nil {
		return nil, err
	}
	value, err := json.Marshal(r)
	if len(value) > gatestore.MaxRecordValue {
		err = errTooLarge
	}
	return value, err
}

// The limits of the caches.
const (
	cacheTime  = 5 * time.Second
	maxCached  = 10_000
	inviteTime = 2 * time.Minute

	failurePause = 5 * time.Second
	// refusalPause is how long another refusal by the server does not lead to another token.
	refusalPause = 30 * time.Second
)

func (c *Connections) remember(r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	evictOne(c.known)
	c.known[r.About.ID] = cached{r, c.cfg.Now()}
}

// evictOne removes an entry from a cache that is full, any one.
func evictOne[K comparable, V any](cache map[K]V) {
	for old := range cache {
		if len(cache) < maxCached {
			return
		}
		delete(cache, old)
	}
}

func (c *Connections) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, id)
}

// A failure is one to get a token. It counts for a while, so that agents which call again and again do not make the
// gate ask each time.
type failure struct {
	err   error
	until time.Time
}

// failure returns the error that counts now, or nil.
func (c *Connections) failure(key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.failed[key]; c.cfg.Now().Before(f.until) {
		return f.err
	}
	return nil
}

// noteFailure lets err count for a while.
func (c *Connections) noteFailure(key string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	evictOne(c.failed)
	c.failed[key] = failure{err, c.cfg.Now().Add(failurePause)}
}

// useAWhile lets a new token be used for a few seconds at least. Otherwise the gate would renew tokens that are valid
// for less than [oauth.RenewBefore] before each request.
func (c *Connections) useAWhile(g *oauth.Grant) {
	if least := c.cfg.Now().Add(oauth.RenewBefore + 10*time.Second); !g.Expires.IsZero() && g.Expires.Before(least) {
		g.Expires = least
	}
}

// load returns a record that is at most cacheTime old. If the store is not available, it returns the last one.
func (c *Connections) load(ctx context.Context, id string) (record, error) {
	c.mu.Lock()
	last, ok := c.known[id]
	c.mu.Unlock()
	if ok && c.cfg.Now().Sub(last.at) < cacheTime {
		return last.record, nil
	}
	found, err := c.read(ctx, id)
	switch {
	case err == nil:
		c.remember(found)
	case errors.Is(err, ErrNotFound):
		c.forget(id)
	case ok:
		return last.record, nil
	default:
		return record{}, fmt.Errorf("read a connection: %w", err)
	}
	return found, err
}
