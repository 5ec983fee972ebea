package bridge

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A pendingAnswer is a request that the server has not answered.
type pendingAnswer struct {
	p       *process
	answers *stdioclient.Queue
	memory  *answerMemory
	release func()
	once    sync.Once
}

// respond waits for the first message about the request. The response is JSON if that is the
// answer, and otherwise an event stream.
func (c *pendingAnswer) respond() (*http.Response, error) {
	text, final, err := c.answers.Next()
	switch {
	case err != nil:
		c.close()
		return nil, err
	case final:
		c.close()
		return c.memory.response(text), nil
	default:
		first := jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: text})
		return events(body{io.MultiReader(bytes.NewReader(first), c.answers), c}), nil
	}
}

// respondWhole waits for the answer. The response is JSON.
func (c *pendingAnswer) respondWhole() (*http.Response, error) {
	defer c.close()
	text, err := c.final()
	if err != nil {
		return nil, err
	}
	return c.memory.response(text), nil
}

// final waits for the answer and drops earlier messages.
func (c *pendingAnswer) final() ([]byte, error) {
	for {
		text, final, err := c.answers.Next()
		if err != nil || final {
			return text, err
		}
	}
}

// A body is the body of a response.
type body struct {
	io.Reader
	io.Closer
}

// A closeFunc implements [io.Closer].
type closeFunc func()

// Close implements [io.Closer].
func (f closeFunc) Close() error {
	f()
	return nil
}

// Close implements [io.Closer].
func (c *pendingAnswer) Close() error {
	c.close()
	c.memory.release()
	return nil
}

func (c *pendingAnswer) close() {
	c.once.Do(func() {
		c.p.removePending(c.answers)
		_ = c.answers.Close()
		c.release()
	})
}

func newResponse(status int, kind string, body io.ReadCloser) *http.Response {
	header := make(http.Header)
	if kind != "" {
		header.Set("Content-Type", kind)
	}
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: body, ContentLength: -1,
	}
}

// answer returns the response with one message, or with an array of messages.
func answer(message []byte) *http.Response {
	resp := newResponse(http.StatusOK, "application/json", io.NopCloser(bytes.NewReader(message)))
	resp.ContentLength = int64(len(message))
	return resp
}

func events(body io.ReadCloser) *http.Response {
	resp := newResponse(http.StatusOK, "text/event-stream", body)
	resp.Header.Set("Cache-Control", "no-store")
	return resp
}

func accepted() *http.Response { return newResponse(http.StatusAccepted, "", http.NoBody) }

func notAllowed() *http.Response {
	resp := textResponse(http.StatusMethodNotAllowed, "the method is not allowed here")
	resp.Header.Set("Allow", http.MethodPost)
	return resp
}

// textResponse returns a response without a message, because there may be no request to answer.
func textResponse(status int, why string) *http.Response {
	return newResponse(status, "text/plain; charset=utf-8", io.NopCloser(strings.NewReader(why+"\n")))
}
