package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// Sessions remembers the principal of each session of a server. The store has a record of each
// session, so that all replicas know it. Requests are checked against a cache. If the store fails
// when a session begins, this replica remembers the session and tries again to store it. A nil
// *Sessions admits every request.
type Sessions struct {
	records func() gatestore.Records
	log     *slog.Logger

	mu                 sync.Mutex
	known              map[string]knownSession // by record name
	namedCount         map[string]int          // number of sessions of named principals, by record name prefix
	begunSinceEviction int                     // sessions that began since evictExcess ran

	refusals refusals
}

// NewSessions returns sessions whose records are in the store that records returns.
func NewSessions(records func() gatestore.Records, log *slog.Logger) *Sessions {
	return &Sessions{records: records, log: log, known: make(map[string]knownSession), namedCount: make(map[string]int)}
}

// A Session is a session of a principal with a server.
type Session struct {
	Upstream  string
	Principal string // see [catalog.PrincipalIn]; empty for an anonymous client
	ID        string // as the server chose it
}

// A knownSession is a session in the cache.
type knownSession struct {
	used    time.Time
	renewal time.Time // when to write the record next
	unsaved []byte    // the value to store, if isLocal
	isLocal bool      // the store does not have the record
}

const (
	sessionRecords = "session/"

	// sessionTTL is how long an unused session is remembered.
	sessionTTL = 24 * time.Hour
	// sessionRetry is the pause after a failure of the store.
	sessionRetry = 10 * time.Second
	// sessionTimeout limits the write when a session begins or ends.
	sessionTimeout = 5 * time.Second

	// maxSessions limits all sessions, and maxSessionsPerPrincipal those of one principal. The
	// limits are enforced after every sessionsPerEviction new sessions.
	maxSessions             = 50_000
	maxSessionsPerPrincipal = 1000
	sessionsPerEviction     = 500
)

// prefix returns the beginning of the record names of all owners of a session id. It has a digest
// in place of the id, so that a reader of the store cannot use the session.
func (s Session) prefix() string {
	//mutate:swap "s.Upstream + " "" TestSessionHasOneOwnerAtOneUpstream a session belongs to its owner at every upstream
	sum := sha256.Sum256([]byte(s.Upstream + "\x00" + s.ID))
	return sessionRecords + hex.EncodeToString(sum[:]) + "/"
}

// name returns the record name of s.
//
//mutate:swap "s.Principal" `""` TestSessionHasOneOwnerAtOneUpstream a session belongs to every principal
func (s Session) name() string { return s.prefix() + principalDigest(s.Principal) }

// principalDigest returns the part of a record name that identifies the principal.
func principalDigest(principal string) string {
	sum := sha256.Sum256([]byte(principal))
	return hex.EncodeToString(sum[:16])
}

// Begin remembers a session that its server has just begun, together with value, which must not be
// empty. A session whose value is too large for the store is known to this replica only.
func (ss *Sessions) Begin(ctx context.Context, s Session, value []byte) {
	if ss == nil {
		return
	}
	now, name := time.Now(), s.name()
	k := knownSession{used: now, renewal: now.Add(sessionRetry), isLocal: true}
	if len(value) <= gatestore.MaxRecordValue {
		k.unsaved = value
	}
	ss.mu.Lock()
	ss.remember(name, k)
	ss.begunSinceEviction++
	count := ss.begunSinceEviction >= sessionsPerEviction
	if count {
		ss.begunSinceEviction = 0
	}
	ss.mu.Unlock()
	// Write the record before the client gets the session id: its next request may reach
	// another replica.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), sessionTimeout)
	defer stop()
	ss.renew(ctx, name, k)
	if count {
		ss.evictExcess(ctx)
	}
}

// remember adds a session to the cache. The caller holds the lock.
func (ss *Sessions) remember(name string, k knownSession) {
	for old := range ss.known {
		if len(ss.known) < maxSessions {
			break
		}
		ss.drop(old)
	}
	ss.drop(name)
	ss.known[name] = k
	if prefix, named := splitRecordName(name); named {
		ss.namedCount[prefix]++
	}
}

// drop removes a session from the cache. The caller holds the lock.
func (ss *Sessions) drop(name string) {
	if _, ok := ss.known[name]; !ok {
		return
	}
	delete(ss.known, name)
	if prefix, named := splitRecordName(name); named {
		if ss.namedCount[prefix]--; ss.namedCount[prefix] == 0 {
			delete(ss.namedCount, prefix)
		}
	}
}

var anonymousDigest = principalDigest("")

// splitRecordName returns the prefix of a record name (see [Session.prefix]) and whether the
// session belongs to a named principal.
func splitRecordName(name string) (prefix string, named bool) {
	at := strings.LastIndexByte(name, '/') + 1
	return name[:at], name[at:] != anonymousDigest
}

// cached returns a session from the cache.
func (ss *Sessions) cached(name string) (knownSession, bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	k, ok := ss.known[name]
	return k, ok && time.Since(k.used) < sessionTTL
}

// Owned reports whether a session belongs to its principal, and marks it as used. The error is a
// [*mcp.Problem] if only the store would know, and it fails.
func (ss *Sessions) Owned(ctx context.Context, s Session) (bool, error) {
	if ss == nil {
		return true, nil
	}
	name := s.name()
	k, due, ok := ss.use(name)
	if !ok {
		found, err := ss.find(ctx, name)
		return found != nil, err
	}
	return !due || ss.renew(ctx, name, k), nil
}

// use marks a session in the cache as used. It reports whether its record is due to be written.
func (ss *Sessions) use(name string) (k knownSession, due, ok bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	now := time.Now()
	k, ok = ss.known[name]
	if !ok || now.Sub(k.used) >= sessionTTL {
		return k, false, false
	}
	due = !now.Before(k.renewal)
	if k.used = now; due {
		k.renewal = now.Add(sessionRetry) // keeps concurrent requests from renewing, too
	}
	ss.known[name] = k
	return k, due, true
}

// stored remembers that the store has a session as it was in the cache. If it has changed there
// meanwhile, the next request stores it.
func (ss *Sessions) stored(name string, was knownSession, renewal time.Time) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	k, ok := ss.known[name]
	switch {
	case !ok:
	case k.isLocal && !bytes.Equal(k.unsaved, was.unsaved):
		k.renewal = time.Time{}
		ss.known[name] = k
	default:
		k.renewal, k.isLocal, k.unsaved = renewal, false, nil
		ss.known[name] = k
	}
}

// Confirmed is like [Sessions.Owned] but asks the store first, because another replica may have
// ended the session. If the store fails, the cache decides.
func (ss *Sessions) Confirmed(ctx context.Context, s Session) (bool, error) {
	if ss == nil {
		return true, nil
	}
	if k, ok := ss.cached(s.name()); ok && !k.isLocal {
		//mutate:false TestSessionEndsOnOtherReplicas calls are held in a session that another replica has ended
		if _, err := ss.records().GetRecord(ctx, s.name()); errors.Is(err, task.ErrNotFound) {
			ss.forget(s.name())
		}
	}
	return ss.Owned(ctx, s)
}

// find returns the value that the store has for a session, or nil if the store does not have the
// session.
func (ss *Sessions) find(ctx context.Context, name string) ([]byte, error) {
	found, err := ss.records().GetRecord(ctx, name)
	now := time.Now()
	switch {
	case errors.Is(err, task.ErrNotFound), err == nil && !now.Before(found.Expires):
		return nil, nil
	case err != nil:
		return nil, sessionProblem(err)
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.remember(name, knownSession{used: now, renewal: found.Expires.Add(-sessionTTL * 3 / 4)})
	return found.Value, nil
}

// renew extends the record of a session. It returns false if the session has ended, because its
// record was deleted.
func (ss *Sessions) renew(ctx context.Context, name string, k knownSession) bool {
	if k.isLocal && k.unsaved == nil {
		return true
	}
	now := time.Now()
	r, err := ss.records().GetRecord(ctx, name)
	switch {
	case errors.Is(err, task.ErrNotFound) && !k.isLocal:
		ss.forget(name)
		return false
	case errors.Is(err, task.ErrNotFound):
		r, err = gatestore.Record{Name: name}, nil
	}
	if err == nil {
		r.Version++
		r.Expires = now.Add(sessionTTL)
		if k.isLocal {
			r.Value = k.unsaved
		}
		err = ss.records().PutRecord(ctx, r)
	}
	if err != nil && !errors.Is(err, task.ErrConcurrentModification) { // that error: another request has renewed it
		ss.log.WarnContext(ctx, "session could not be stored; other replicas may refuse it, and so may this one after a restart", "err", err)
		return true
	}
	ss.stored(name, k, now.Add(sessionTTL/4))
	return true
}

// Value returns the value of a session, or nil if its principal does not have the session.
func (ss *Sessions) Value(ctx context.Context, s Session) ([]byte, error) {
	if ss == nil {
		return nil, nil
	}
	if k, ok := ss.cached(s.name()); ok && k.isLocal {
		return k.unsaved, nil
	}
	return ss.find(ctx, s.name())
}

// Change changes the value of a session to what f returns for it, unless that is nil. f is called again
// if another request has changed the session meanwhile.
func (ss *Sessions) Change(ctx context.Context, s Session, f func(value []byte) []byte) error {
	if ss == nil || ss.changeUnsaved(s.name(), f) {
		return nil
	}
	for {
		r, err := ss.records().GetRecord(ctx, s.name())
		switch {
		case errors.Is(err, task.ErrNotFound), err == nil && !time.Now().Before(r.Expires):
			return &mcp.Problem{Type: mcp.SessionGone}
		case err != nil:
			return sessionProblem(err)
		}
		if r.Value = f(r.Value); r.Value == nil {
			return nil
		}
		r.Version++
		r.Expires = time.Now().Add(sessionTTL)
		err = ss.records().PutRecord(ctx, r)
		switch {
		case errors.Is(err, task.ErrConcurrentModification) && ctx.Err() == nil:
		case err != nil:
			return sessionProblem(err)
		default:
			return nil
		}
	}
}

// changeUnsaved is [Sessions.Change] for a session that the store does not have yet.
func (ss *Sessions) changeUnsaved(name string, f func(value []byte) []byte) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	k, ok := ss.known[name]
	if !ok || !k.isLocal || k.unsaved == nil {
		return false
	}
	if value := f(k.unsaved); value != nil {
		k.unsaved = value
		ss.known[name] = k
	}
	return true
}

// sessionProblem returns the problem of a session about which the store cannot be asked.
func sessionProblem(err error) *mcp.Problem {
	return &mcp.Problem{
		Type: mcp.StoreUnavailable, RetryAfter: 5, Cause: err, Detail: "the owner of this session cannot be checked at the moment; nothing was run, try again",
	}
}

// End removes a session.
func (ss *Sessions) End(ctx context.Context, s Session) {
	if ss == nil {
		return
	}
	ss.forget(s.name())
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), sessionTimeout)
	defer stop()
	if err := ss.records().DeleteRecord(ctx, s.name()); err != nil {
		ss.log.WarnContext(ctx, "ended session could not be removed; it expires later", "upstream", s.Upstream, "err", err)
	}
}

// forget removes a session from the cache.
func (ss *Sessions) forget(name string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.drop(name)
}

// Unclaimed reports whether an anonymous client may use a session: no named principal has it, or
// the server gave the same id to an anonymous client, too. The error is that of [Sessions.Owned].
// Unknown ids are not cached, because any replica may begin a session with an id that was tried
// before.
func (ss *Sessions) Unclaimed(ctx context.Context, upstream, id string) (bool, error) {
	if ss == nil {
		return true, nil
	}
	s := Session{Upstream: upstream, ID: id}
	if _, ok := ss.cached(s.name()); ok {
		if owned, err := ss.Owned(ctx, s); owned || err != nil {
			return owned, err
		}
	}
	//mutate:swap "ss.isNamed(s.prefix())" "false" TestSessionWithoutRecordIsClaimed anonymous agents use sessions that the store could not keep
	claimed := ss.isNamed(s.prefix())
	if !claimed {
		found, err := ss.records().ListRecords(ctx, gatestore.RecordQuery{Prefix: s.prefix(), Limit: 2})
		if err == nil && len(found) == 0 {
			return true, nil
		}
		//mutate:swap "return r.Name" "return false && r.Name" TestGuessedSessionIDStaysUnusable anonymous agents use the sessions of others
		claimed = err != nil || slices.ContainsFunc(found, func(r gatestore.Record) bool { return r.Name != s.name() })
	}
	owned, err := ss.Owned(ctx, s)
	return owned || err == nil && !claimed, err
}

// isNamed reports whether a named principal has a session in the cache with this record name
// prefix. The store may not have it yet.
func (ss *Sessions) isNamed(prefix string) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.namedCount[prefix] > 0
}

// sessionPage is the page size for listing records.
const sessionPage = 1000

// evictExcess removes the sessions that expire first if a principal, or all principals together,
// have too many. So a client that only begins sessions cannot fill the store.
func (ss *Sessions) evictExcess(ctx context.Context) {
	type kept struct {
		name    string
		expires time.Time
	}
	var all []kept
	for r, err := range gatestore.EachRecord(ctx, ss.records(), gatestore.RecordQuery{Prefix: sessionRecords, Limit: sessionPage}) {
		if err != nil {
			return // the next eviction tries again
		}
		all = append(all, kept{r.Name, r.Expires})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].expires.After(all[j].expires) })
	left, own := 0, make(map[string]int)
	for _, r := range all {
		principal := r.name[strings.LastIndexByte(r.name, '/'):]
		if left < maxSessions && own[principal] < maxSessionsPerPrincipal {
			left++
			own[principal]++
			continue
		}
		ss.forget(r.name)
		_ = ss.records().DeleteRecord(ctx, r.name) // the next eviction tries again
	}
}
