package httplink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A position is the last event of an interrupted stream, and the pause before it is resumed.
type position struct {
	id       string
	pause    time.Duration
	failures int
}

// maxResumes limits the failed attempts in a row to resume a stream.
const maxResumes = 5

// wait waits before the next attempt.
func (p *position) wait(ctx context.Context) {
	pause := min(p.pause<<min(p.failures, 5), longPause)
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// follow passes the messages of a stream to take until the stream ends or take returns false. It
// updates resume and closes the body. If take is nil, the receiver gets the messages.
func (l *Link) follow(body io.ReadCloser, resume *position, take func([]byte) bool) error {
	defer func() { _ = body.Close() }()
	events := jsonrpc.NewEventReader(body, l.cfg.MaxLine)
	for {
		e, err := events.Next()
		if err != nil {
			if errors.Is(err, jsonrpc.ErrTooLarge) {
				return upstream.TooLarge()
			}
			return err
		}
		if e.HasID {
			resume.id = e.ID
		}
		if e.Retry > 0 {
			resume.pause = min(e.Retry, longPause)
		}
		switch {
		case len(e.Data) == 0 || e.Name != "" && e.Name != "message":
		case take == nil:
			l.received(e.Data, nil)
		case !take(e.Data):
			return nil
		}
	}
}

// answerIn returns the answer to a request of the link itself.
func (l *Link) answerIn(resp *upstream.Response, id []byte) (text []byte, err error) {
	if resp.Status != http.StatusOK {
		return nil, statusProblem(resp.Status)
	}
	if !resp.Events {
		return io.ReadAll(io.LimitReader(resp.Body, int64(l.cfg.MaxLine)))
	}
	err = l.follow(resp.Body, new(position), func(event []byte) bool {
		m, err := jsonrpc.ParseMessage(event, jsonrpc.Limits{})
		if err == nil && m.Kind == jsonrpc.Response && jsonrpc.SameID(m.ID.Bytes, id) {
			text = event
		}
		return text == nil
	})
	if text != nil {
		err = nil
	}
	return text, err
}

// incompleteProblem returns the problem of a request without an answer.
func incompleteProblem(cause error) *mcp.Problem {
	if known, ok := errors.AsType[*mcp.Problem](cause); ok {
		return known
	}
	if isTimeout(cause) {
		return &mcp.Problem{Type: mcp.UpstreamTimeout, Cause: cause}
	}
	return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the server's answer is incomplete; the call may have run", Cause: cause}
}

// isTimeout reports whether the server was silent for too long.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// statusProblem returns the problem of a request that was answered with a status and without a
// message.
func statusProblem(status int) *mcp.Problem {
	detail := fmt.Sprintf("the server answered with status %d %s", status, http.StatusText(status))
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		detail += "; check the token"
	default:
	}
	return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: detail}
}
