package conversation

import (
	"context"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A sender is the client of one request: whose tasks it may see, what is sealed
// for it, how long it waits, and how the gate calls the upstream in its name.
type sender struct {
	hub    *Hub
	client Client
	reply  Reply
	lookup *upstream.Lookup // see tools
}

// ref returns the name of a task of this client's.
func (s *sender) ref(id task.ID) task.Ref {
	owner, _ := s.owner()
	return task.OwnedBy(owner).Ref(id)
}

// peer names the client itself; see [gate.Client.Peer].
func (s *sender) peer() string { return s.client.From().Peer() }

// upstream returns the name of the upstream.
func (s *sender) upstream() string { return s.client.From().Upstream }

// gone reports whether the client has left.
func (s *sender) gone() bool { return s.reply.Gone() }

// repeatable returns a context for lines of the log that the client can cause as
// often as it likes.
func (s *sender) repeatable(ctx context.Context, reason string) context.Context {
	return logging.Limited(ctx, reason, s.client.Network())
}

// read reads a message. Offsets in it count from the start of its Raw.
func (s *sender) read(data []byte) (*jsonrpc.Message, error) {
	return jsonrpc.ParseMessage(data, s.hub.cfg.Parse)
}

// A clientSender makes a held call with the credentials of a request.
type clientSender struct {
	*upstream.Caller

	recognition Recognition
}

// Revoked implements [approval.Revocable].
func (s clientSender) Revoked() bool { return !s.recognition.Valid() }

// send returns what makes a held call in the name of this request: with its
// session and its credentials, which are those of a client that is there now.
func (s *sender) send() approval.Sender { return s.sendBy(s.client.Caller()) }

func (s *sender) sendBy(c *upstream.Caller) approval.Sender {
	return clientSender{Caller: c, recognition: s.client.Recognition()}
}

// delivered notes that the client was sent what became of t.
func (s *sender) delivered(ctx context.Context, t *task.Task) {
	if s.gone() {
		return // what was written has not arrived, as far as can be known
	}
	if err := s.hub.cfg.Desk.Delivered(context.WithoutCancel(ctx), s.ref(t.ID)); err != nil {
		s.hub.cfg.Log.WarnContext(approval.About(ctx, *t), "delivery not noted", "cause", err)
	}
}

// collect starts t, if it is approved, for a client that asks for its outcome and does not
// wait for it, and returns t as it is then.
func (s *sender) collect(ctx context.Context, t task.Task) task.Task {
	if _, shared := s.owner(); shared || t.State != task.Approved {
		return t // a client that cannot be recognised could not get the result
	}
	started, err := s.hub.cfg.Desk.Collect(ctx, s.ref(t.ID), s.send())
	if err != nil {
		s.hub.cfg.Log.WarnContext(approval.About(ctx, t), "approved call not started", "cause", err)
		return t
	}
	return started
}

// tools returns what asks the upstream for tools in the name of this request.
func (s *sender) tools() *upstream.Lookup {
	if s.lookup == nil {
		s.lookup = upstream.NewLookup(s.client.Caller())
	}
	return s.lookup
}

// maxLeave is how long it may take to note that a client no longer waits.
const maxLeave = 5 * time.Second

// noteLeft notes that the owner of tasks no longer waits for them on this stream.
func (s *sender) noteLeft(ctx context.Context, ids []task.ID) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), maxLeave)
	defer stop()
	for _, id := range ids {
		if err := s.hub.cfg.Desk.Leave(ctx, s.ref(id)); err != nil {
			s.hub.cfg.Log.DebugContext(ctx, "the end of a stream was not noted", "task_id", id, "cause", err)
		}
	}
}
