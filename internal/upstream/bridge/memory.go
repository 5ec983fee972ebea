package bridge

import (
	"bytes"
	"io"
	"net/http"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// An answerMemory is the share of Config.Unread that one answer takes from when the
// server has written it until its client has read it. A small answer takes none.
type answerMemory struct {
	bridge *Bridge
	client admission.Client
	once   sync.Once
	taken  int64
}

// memoryFor returns the memory for the answer to a request.
func (b *Bridge) memoryFor(r *request) *answerMemory {
	return &answerMemory{bridge: b, client: roomOf(r.by)}
}

// take takes the memory for an answer. It does not wait: the answer is in memory by now.
// The error is a [*wire.Problem].
func (m *answerMemory) take(size int) error {
	if size <= upstream.PieceSize {
		return nil
	}
	n := int64(size)
	if share := m.bridge.cfg.Unread.Client; share > 0 {
		n = min(n, share) // a single answer always fits
	}
	if err := m.bridge.unread.Try(m.client, n); err != nil {
		return &wire.Problem{Type: wire.UpstreamInvalid, Detail: "too many large answers at once: this one was dropped; the call may have run", Cause: err}
	}
	m.taken = n
	return nil
}

// leave gives the memory back. Nothing is taken after that. Safe to repeat.
func (m *answerMemory) leave() {
	m.once.Do(func() {
		if m.taken > 0 {
			m.bridge.unread.Release(m.client, m.taken)
		}
	})
}

// whole returns the response with an answer that has taken its memory.
func (m *answerMemory) whole(text []byte) *http.Response {
	resp := answer(text)
	resp.Body = &memoryBody{Reader: bytes.NewReader(text), memory: m}
	return resp
}

// A memoryBody gives the memory of its answer back when it is closed.
type memoryBody struct {
	io.Reader

	memory *answerMemory
}

// Close implements [io.Closer].
func (b *memoryBody) Close() error {
	b.memory.leave()
	return nil
}
