package bridge

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A pendingAnswer is what the server says to a request until it has answered it. It is
// the body of the response if that is a stream.
type pendingAnswer struct {
	p       *process
	answers *stdioclient.Answers
	memory  *answerMemory
	leave   func()
	rest    []byte // of the event that is being read
	ended   bool   // the answer has been read
	once    sync.Once
}

// respond waits for the first thing that the server says of the request. The
// response is JSON if that is the answer, and otherwise a stream of events.
func (c *pendingAnswer) respond() (*http.Response, error) {
	text, final, err := c.answers.Next()
	switch {
	case err != nil:
		c.close()
		return nil, err
	case final:
		c.close()
		return c.memory.whole(text), nil
	default:
		c.rest = appendEvent(nil, text)
		return events(c), nil
	}
}

// respondWhole waits for the answer. The response is JSON.
func (c *pendingAnswer) respondWhole() (*http.Response, error) {
	defer c.close()
	text, err := c.final()
	if err != nil {
		return nil, err
	}
	return c.memory.whole(text), nil
}

// final waits for the answer, and drops what comes before it.
func (c *pendingAnswer) final() ([]byte, error) {
	for {
		text, final, err := c.answers.Next()
		if err != nil || final {
			return text, err
		}
	}
}

// Read implements [io.Reader].
func (c *pendingAnswer) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.ended {
			return 0, io.EOF
		}
		text, final, err := c.answers.Next()
		if err != nil {
			return 0, broken(err)
		}
		c.rest, c.ended = appendEvent(nil, text), final
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// broken returns the error of a stream that ends before the answer.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Close implements [io.Closer].
func (c *pendingAnswer) Close() error {
	c.close()
	c.memory.leave()
	return nil
}

func (c *pendingAnswer) close() {
	c.once.Do(func() {
		c.p.answered(c.answers)
		c.answers.Close()
		c.leave()
	})
}

func appendEvent(dst, message []byte) []byte {
	return jsonrpc.AppendEvent(dst, jsonrpc.Event{Name: "message", Data: message})
}

func respond(status int, kind string, body io.ReadCloser) *http.Response {
	header := make(http.Header)
	if kind != "" {
		header.Set("Content-Type", kind)
	}
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: body, ContentLength: -1,
	}
}

// answer returns the response with one message, or an array of them.
func answer(message []byte) *http.Response {
	resp := respond(http.StatusOK, "application/json", io.NopCloser(bytes.NewReader(message)))
	resp.ContentLength = int64(len(message))
	return resp
}

func events(body io.ReadCloser) *http.Response {
	resp := respond(http.StatusOK, "text/event-stream", body)
	resp.Header.Set("Cache-Control", "no-store")
	return resp
}

func accepted() *http.Response { return respond(http.StatusAccepted, "", http.NoBody) }

func notAllowed() *http.Response {
	resp := refused(http.StatusMethodNotAllowed, "the method is not allowed here")
	resp.Header.Set("Allow", http.MethodPost)
	return resp
}

func noSession() *http.Response {
	return refused(http.StatusNotFound, "there is no such session: begin with initialize")
}

// refused returns the response to a request that no process was given. Its body is no
// message: there may be no request that it could answer.
func refused(status int, why string) *http.Response {
	return respond(status, "text/plain; charset=utf-8", io.NopCloser(strings.NewReader(why+"\n")))
}
