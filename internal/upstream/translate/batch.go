package translate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A batch is a batch of a legacy client for a modern server, which gets the messages one by one. It
// implements conversion: a client that takes events gets each answer as soon as it is there.
type batch struct {
	texts  chan []byte // closed when all messages are answered
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	refused answerStatus // of an answer that concerns the credentials
	passed  bool         // a message got another answer
}

// batch serves a batch in a session of the translator.
func (x *exchange) batch(messages []jsonrpc.Message) (*http.Response, error) {
	if s, err := x.legacySession(); err != nil || s == nil {
		return nothing(http.StatusNotFound), err
	}
	b := &batch{texts: make(chan []byte)}
	b.ctx, b.cancel = context.WithCancel(x.http.Context())
	var asked sync.WaitGroup
	for i := range messages {
		one := *x
		one.http, one.m, one.body = x.http.WithContext(b.ctx), &messages[i], messages[i].Raw
		asked.Go(func() { b.ask(&one) })
	}
	go func() {
		asked.Wait()
		close(b.texts)
	}()
	return b.respond(x)
}

// respond returns the answers as an array, or as a stream if there is anything else for the client.
func (b *batch) respond(x *exchange) (*http.Response, error) {
	var answers [][]byte
	for text := range b.texts {
		m, err := jsonrpc.ParseMessage(text, jsonrpc.Limits{})
		switch {
		case err == nil && m.Kind == jsonrpc.Response:
			answers = append(answers, text)
		case x.takesEvents:
			return events(&stream{from: b, pending: asEvents(append(answers, text))}), nil
		}
	}
	defer b.cancel()
	switch {
	case x.http.Context().Err() != nil:
		return nil, context.Cause(x.http.Context())
	case b.refused.concernsCredentials() && !b.passed:
		return b.refused.response(), nil
	case len(answers) == 0:
		return nothing(http.StatusAccepted), nil
	default:
		return answer(http.StatusOK, jsonrpc.Array(answers)), nil
	}
}

func asEvents(texts [][]byte) (all []byte) {
	for _, text := range texts {
		all = jsonrpc.AppendEvent(all, jsonrpc.Event{Name: "message", Data: text})
	}
	return all
}

// next implements conversion.
func (b *batch) next() (text []byte, final bool, err error) {
	text, more := <-b.texts
	return text, !more, context.Cause(b.ctx)
}

// Close implements conversion.
func (b *batch) Close() error {
	b.cancel()
	return nil
}

// ask serves one message.
func (b *batch) ask(x *exchange) {
	if err := b.pass(x); err != nil && x.m.Kind == jsonrpc.Request {
		problem, ok := errors.AsType[*mcp.Problem](brokenAnswer(err))
		if !ok { // a time limit, unless the client has left
			problem = &mcp.Problem{Type: mcp.UpstreamInvalid, Cause: err}
		}
		b.send(problem.AppendResponse(nil, mcp.Legacy, x.m.ID.Bytes, ""))
	}
}

// pass passes the answers to one message on.
func (b *batch) pass(x *exchange) error {
	if x.m.Method == mcpname.Initialize {
		return &mcp.Problem{Type: mcp.InvalidRequest, Detail: "initialize cannot be part of a batch"}
	}
	resp, err := x.legacyToModern()
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if x.m.Kind != jsonrpc.Request {
		return nil
	}
	if b.note(resp); resp.StatusCode != http.StatusOK {
		return &refusedError{statusIn(resp)}
	}
	source := newSource(resp, x.t.cfg.MaxMessage)
	for {
		m, err := source.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		b.send(m.Raw)
	}
}

// note remembers an answer that concerns the credentials of the client.
func (b *batch) note(resp *http.Response) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if status := statusIn(resp); status.concernsCredentials() {
		b.refused = status
	} else {
		b.passed = true
	}
}

func (b *batch) send(text []byte) {
	select {
	case b.texts <- bytes.Clone(text):
	case <-b.ctx.Done():
	}
}
