package conversation

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A sender is the client of one request. It knows which tasks the client owns, and seals texts
// for it.
type sender struct {
	gateway  *Gateway
	client   Client
	envelope Envelope
}

// peer names the client; see [catalog.Client.Peer].
func (s *sender) peer() string { return s.client.Identity().Peer() }

// upstream returns the name of the upstream.
func (s *sender) upstream() string { return s.client.Identity().Upstream }

// gone reports whether the client has left.
func (s *sender) gone() bool { return s.envelope.Gone() }

// clientInfo returns the program and protocol version that m names: in the params of initialize,
// and in the metadata of modern requests.
func (s *sender) clientInfo(m *jsonrpc.Message) policy.Session {
	info, protocol := m.Params.Meta.Member(mcpname.MetaClientInfo), m.Params.Meta.Member(mcpname.MetaProtocolVersion)
	if m.Method == mcpname.Initialize {
		info, protocol = m.Params.Member("clientInfo"), m.Params.Member("protocolVersion")
	}
	var session policy.Session
	session.Client, _ = info.Member("name").Text()
	session.Version, _ = info.Member("version").Text()
	var named bool
	if session.Protocol, named = protocol.Text(); !named {
		session.Protocol = s.client.Transport().Version
	}
	return session
}

// owner returns the owner of this client's tasks; see [catalog.Client.Owner]. All sessions of one
// host on the user's machine have the same owner.
func (s *sender) owner() (owner string, shared bool) {
	client := s.client.Identity()
	if name := s.localHost(); name != "" {
		client.Key = catalog.ClientKey(client.Principal, "", catalog.LocalHost(name))
	}
	return client.Owner()
}

// ref returns the reference to a task of this client.
func (s *sender) ref(id task.ID) task.Ref {
	owner, _ := s.owner()
	return task.OwnedBy(owner).Ref(id)
}

// ownsBySession reports whether only the session identifies the owner of this client's tasks.
func (s *sender) ownsBySession() bool {
	_, session := catalog.SessionIn(s.client.Identity().Key)
	return session && s.client.Identity().Principal.Anonymous && s.localHost() == ""
}

// An anonymous agent host on the user's machine is identified by its name. After a restart it
// has another session, and the calls that it repeats attach to its earlier calls. The name comes
// with initialize. The gate stores it when a call of the session is held, because the gate may
// restart while the session goes on.

const (
	// Records with this prefix store the host name of a session, for hostRecordTTL.
	hostRecordPrefix = "local-host/"
	hostRecordTTL    = 30 * 24 * time.Hour
)

// localHost returns the name of the anonymous host on the user's machine that has this session.
// It returns "" for all other clients.
func (s *sender) localHost() string {
	client := s.client.Identity()
	if _, session := catalog.SessionIn(client.Key); !session || !client.Principal.Anonymous || !s.gateway.Holds() || !s.client.Local() {
		return ""
	}
	if name := s.gateway.cfg.Catalog.Handshake(client).Session.Client; name != "" {
		return name
	}
	if name, known := s.gateway.hosts.get(s.peer()); known || s.gateway.cfg.Records == nil {
		return name
	}
	found, err := s.gateway.cfg.Records.GetRecord(s.envelope.Context(), hostRecord(s.peer()))
	if err == nil || errors.Is(err, task.ErrNotFound) {
		s.gateway.hosts.set(s.peer(), string(found.Value))
	}
	return string(found.Value)
}

// rememberHost stores the host name of this session, before the first of its calls is stored.
func (s *sender) rememberHost(ctx context.Context) {
	name := s.localHost()
	if stored, _ := s.gateway.hosts.get(s.peer()); name == "" || stored == name || s.gateway.cfg.Records == nil {
		return
	}
	err := s.gateway.cfg.Records.PutRecord(ctx, gatestore.Record{
		Name: hostRecord(s.peer()), Version: 1, Value: []byte(name), Expires: time.Now().Add(hostRecordTTL),
	})
	if err != nil && !errors.Is(err, task.ErrConcurrentModification) { // the record exists already
		s.gateway.cfg.Log.WarnContext(ctx, "if the gate is restarted, it will not know this host's calls again", "err", err)
		return
	}
	s.gateway.hosts.set(s.peer(), name)
}

// hostRecord returns the name of the record with the host name of a session.
func hostRecord(peer string) string {
	sum := sha256.Sum256([]byte(peer))
	return hostRecordPrefix + hex.EncodeToString(sum[:])
}

// identify sets the fields of c that identify the owner of the call, and the certainty of that.
func (s *sender) identify(c *approval.Call) {
	c.Owner, c.SharedOwner = s.owner()
	c.Peer, c.Principal = s.client.Identity().Key, s.client.Identity().Principal
	if !s.client.Identity().Principal.Anonymous {
		return
	}
	c.Network, c.OwnerByName = s.client.Network(), catalog.KnownByName(c.Owner)
	session, has := catalog.SessionIn(c.Peer)
	switch {
	case has && s.gateway.sessions.has(s.peer()):
		c.Assurance = approval.Proven
	case has:
		c.Assurance = approval.Unknown
		c.Prove = func(ctx context.Context) bool { return s.upstreamKnows(ctx, session) }
	case c.Peer != "":
		c.Assurance = approval.Claimed
	default:
		c.Assurance = approval.Unknown
	}
}

// upstreamKnows reports whether the upstream knows a session that this process did not see begin:
// the session may be older, or come from another replica. An upstream that also accepts an
// invented session proves nothing.
func (s *sender) upstreamKnows(ctx context.Context, session string) bool {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	if caller := s.client.Caller(); !caller.Ping(ctx, session) || caller.Ping(ctx, "tg-"+rand.Text()) {
		return false
	}
	s.gateway.sessions.set(s.peer(), struct{}{})
	return true
}

const (
	// maxSessions is how many sessions are cached. The upstream can be asked again for others.
	maxSessions = 100_000
	// proofTimeout bounds the question to an upstream whether it knows a session.
	proofTimeout = 5 * time.Second
)

// sealedPrefix marks texts that the gate has sealed, to tell them from texts of upstreams.
const sealedPrefix = "tg1."

// A use is the purpose of a sealed text, which is valid for no other purpose.
type use string

const (
	useWait   use = "wait"   // the state with which a modern client repeats its request
	useResume use = "resume" // the event id with which a client resumes the stream of a held call
	useList   use = "list"   // the cursor of a page of tasks
	useInvite use = "invite" // the id of an invitation
)

// seal returns a text that is encrypted and bound to this client's owner and one use.
func (s *sender) seal(ctx context.Context, u use, text string) (string, error) {
	owner, _ := s.owner()
	sealed, err := s.gateway.texts.Seal(ctx, text, string(u), owner)
	return sealedPrefix + sealed, err
}

// unseal returns the text that was sealed for the same use and owner, or [keyring.ErrForeign].
func (s *sender) unseal(ctx context.Context, u use, sealed string) (string, error) {
	encoded, ok := strings.CutPrefix(sealed, sealedPrefix)
	if !ok {
		return "", keyring.ErrForeign
	}
	owner, _ := s.owner()
	return s.gateway.texts.Open(ctx, encoded, string(u), owner)
}

// IsSealed reports whether text looks like a text sealed by the gate.
func IsSealed(text string) bool { return strings.HasPrefix(text, sealedPrefix) }

// withdrawal returns the request of this client to cancel a call.
func (s *sender) withdrawal(reason string) approval.Withdrawal {
	owner, _ := s.owner()
	return approval.Withdrawal{By: owner, Reason: reason, Send: s.send()}
}

// delivered records that the client was sent the outcome of t.
func (s *sender) delivered(ctx context.Context, t *task.Task) {
	//mutate:swap "gone()" "envelope.Context().Err() != nil" internal/app.TestOutcomeForPollerThatLeft an outcome counts as delivered to a client that left
	if s.gone() {
		return // the outcome has probably not arrived
	}
	if err := s.gateway.cfg.Approvals.Delivered(context.WithoutCancel(ctx), *t); err != nil {
		s.gateway.cfg.Log.WarnContext(approval.LogContext(ctx, *t), "delivery not noted", "err", err)
	}
}

// collect runs t if it is approved, for a client that does not wait for the outcome, and returns
// the current state of t.
func (s *sender) collect(ctx context.Context, t task.Task) task.Task {
	if _, shared := s.owner(); shared || t.State != task.Approved {
		return t // the client could not get the result later
	}
	started, err := s.gateway.cfg.Approvals.Collect(ctx, s.ref(t.ID), s.send())
	if err != nil {
		s.gateway.cfg.Log.WarnContext(approval.LogContext(ctx, t), "approved call not started", "err", err)
		return t
	}
	return started
}

// leaveTimeout bounds recording that a client no longer waits.
const leaveTimeout = 5 * time.Second

// noteLeft records that the owner of tasks no longer waits for them on this stream.
func (s *sender) noteLeft(ctx context.Context, ids []task.ID) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer stop()
	for _, id := range ids {
		if err := s.gateway.cfg.Approvals.StopAttending(ctx, s.ref(id)); err != nil {
			s.gateway.cfg.Log.DebugContext(ctx, "the end of a stream was not noted", "task_id", id, "err", err)
		}
	}
}

// repeatable returns a context for log lines that the client can cause at will.
func (s *sender) repeatable(ctx context.Context, reason string) context.Context {
	return logging.Limited(ctx, reason, s.client.Network())
}

// read parses a message.
func (s *sender) read(data []byte) (*jsonrpc.Message, error) {
	return jsonrpc.ParseMessage(data, s.gateway.cfg.Parse)
}
