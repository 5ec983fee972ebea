package translate

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A follower is the stream of a legacy client that listens to a modern server. It implements conversion.
type follower struct {
	x      *exchange
	source *source
	s      *legacySession
	woken  atomic.Bool // the subscriptions have changed
	leave  func()      // stops to learn of changed subscriptions

	latest closer
	mu     sync.Mutex         // guards the rest
	cancel context.CancelFunc // of the request at the server
	closed bool
}

// follow serves a GET.
func (x *exchange) follow(s *legacySession) (*http.Response, error) {
	f := &follower{x: x}
	f.leave = x.t.rounds.follow(s.id, f.wake)
	status, err := f.open(s)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	if status != http.StatusOK || f.source.events == nil {
		_ = f.Close()
		return nothing(http.StatusMethodNotAllowed), nil
	}
	return events(&stream{from: f}), nil
}

// wake ends the current stream of the server, so that next opens one with the new subscriptions.
func (f *follower) wake() {
	f.woken.Store(true)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancel != nil {
		f.cancel()
	}
}

// open subscribes to what the session subscribes to, and returns the status of the server's answer.
func (f *follower) open(s *legacySession) (status int, err error) {
	wanted := []jsonrpc.Member{
		{Name: "toolsListChanged", JSON: []byte("true")},
		{Name: "promptsListChanged", JSON: []byte("true")},
		{Name: "resourcesListChanged", JSON: []byte("true")},
		{Name: "resourceSubscriptions", JSON: stringsJSON(s.uris)},
	}
	capabilities := s.capabilities
	if len(s.tasks) > 0 {
		wanted = append(wanted, jsonrpc.Member{Name: "taskIds", JSON: stringsJSON(s.tasks)})
		capabilities = declaringTasks(capabilities)
	}
	m := jsonrpc.NewRequest(newID(), mcpname.SubscriptionsListen, jsonrpc.NewParams(
		jsonrpc.Member{Name: "notifications", JSON: jsonrpc.AppendObject(nil, wanted...)},
		jsonrpc.Member{Name: "_meta", JSON: jsonrpc.AppendObject(nil, modernMeta(capabilities, s.info, "")...)}))
	ctx, cancel := context.WithCancel(f.x.http.Context())
	f.mu.Lock()
	f.cancel = cancel
	if f.closed {
		cancel()
	}
	f.mu.Unlock()
	f.s = s
	resp, err := f.x.t.post(ctx, f.x.by, f.x.modernHeader(&m), m.Raw)
	if err != nil {
		return 0, err
	}
	f.source = newSource(resp, f.x.t.cfg.MaxMessage)
	f.latest.set(resp)
	return resp.StatusCode, nil
}

// openAgain opens the stream with the subscriptions of now. It returns false if that fails: the client
// tries again.
func (f *follower) openAgain() bool {
	_ = f.source.body.Close()
	s, err := f.x.legacySession()
	if err != nil || s == nil {
		return false
	}
	status, err := f.open(s)
	return err == nil && status == http.StatusOK
}

// modernHeader returns the headers of a modern request.
func (x *exchange) modernHeader(m *jsonrpc.Message) http.Header {
	header := x.credentials()
	header.Set("Mcp-Protocol-Version", mcp.Version20260728)
	header.Set("Mcp-Method", m.Method)
	subject := m.Params.Name
	if m.Method == mcpname.ResourcesRead {
		subject = m.Params.URI
	}
	takesName := mcp.TakesInput(m.Method)
	if strings.HasPrefix(m.Method, "tasks/") {
		subject, takesName = m.Params.TaskID, true
	}
	if name, ok := subject.Text(); ok && takesName {
		header.Set("Mcp-Name", mcp.EncodeHeader(name))
	}
	return header
}

// next implements conversion. The end of the server's stream ends that of the client, which opens it
// again.
func (f *follower) next() (text []byte, final bool, err error) {
	for {
		m, _ := f.source.next()
		switch {
		case m == nil && f.woken.Swap(false) && f.openAgain():
		case m == nil || m.Kind == jsonrpc.Response:
			return nil, true, nil
		case m.Method == mcpname.NotifyTasks:
			id, _ := m.Params.TaskID.Text()
			if !slices.Contains(f.s.tasks, id) || !legacyStatus(m.Params.Value).Valid() {
				continue
			}
			n := jsonrpc.NewRequest(nil, mcpname.NotifyTasksStatus, jsonrpc.NewParams(f.s.legacyTask(m.Params.Value, id)...))
			return n.Raw, false, nil
		case m.Kind == jsonrpc.Notification && m.Method != mcpname.NotifySubscriptionsAcknowledged:
			return withoutMeta(m), false, nil
		}
	}
}

// withoutMeta returns a notification without the member of _meta that names the subscription.
func withoutMeta(m *jsonrpc.Message) []byte {
	n := jsonrpc.NewRequest(nil, m.Method, jsonrpc.Params{Value: jsonrpc.Value{Bytes: objectOr(m.Params.Value).Without("_meta")}})
	return n.Raw
}

// Close implements conversion.
func (f *follower) Close() error {
	f.leave()
	f.latest.close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.cancel != nil {
		f.cancel()
	}
	return nil
}
