package bridge

import (
	"bytes"
	"net/http"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// An answerMemory is the share of Config.Unread that one answer has from its arrival until the
// client has read it. Small answers have none.
type answerMemory struct {
	bridge *Bridge
	client admission.Client
	once   sync.Once
	taken  int64
}

// memoryFor returns the memory for the answer to a request.
func (b *Bridge) memoryFor(r *request) *answerMemory {
	return &answerMemory{bridge: b, client: shareOf(r.by)}
}

// take reserves the memory for an answer. It does not wait, because the answer has arrived. The
// error is a [*mcp.Problem].
func (m *answerMemory) take(size int) error {
	if size <= upstream.PieceSize {
		return nil
	}
	n := int64(size)
	if share := m.bridge.cfg.Unread.Client; share > 0 {
		n = min(n, share) // a single answer always fits
	}
	if err := m.bridge.unread.TryAcquire(m.client, n); err != nil {
		return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "too many large answers at once: this one was dropped; the call may have run", Cause: err}
	}
	m.taken = n
	return nil
}

// release gives the memory back. It may be called repeatedly; nothing is reserved after that.
func (m *answerMemory) release() {
	m.once.Do(func() {
		if m.taken > 0 {
			m.bridge.unread.Release(m.client, m.taken)
		}
	})
}

// response returns the HTTP response with an answer that has reserved its memory.
func (m *answerMemory) response(text []byte) *http.Response {
	resp := answer(text)
	resp.Body = body{bytes.NewReader(text), closeFunc(m.release)}
	return resp
}
