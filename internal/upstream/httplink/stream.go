package httplink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A position is where a stream was when it broke off, and how long to wait before it
// is asked for again.
type position struct {
	id       string
	pause    time.Duration
	failures int
}

// maxResumes is how often in a row the rest of a stream is asked for in vain.
const maxResumes = 5

// wait waits before the next attempt.
func (p *position) wait(ctx context.Context) {
	pause := min(p.pause<<min(p.failures, 5), longPause)
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// follow takes the messages of a stream until it ends, or take reports false, and notes
// where it was. It closes the body. Without take, the receiver gets the messages.
func (l *Link) follow(body io.ReadCloser, place *position, take func([]byte) bool) error {
	defer func() { _ = body.Close() }()
	events := jsonrpc.NewEventReader(body, l.cfg.MaxLine)
	for {
		e, err := events.Next()
		if err != nil {
			if errors.Is(err, jsonrpc.ErrTooLarge) {
				return tooLarge()
			}
			return err
		}
		if e.HasID {
			place.id = e.ID
		}
		if e.Retry > 0 {
			place.pause = min(e.Retry, longPause)
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

// answerIn returns the answer to a request of the link's own.
func (l *Link) answerIn(resp *upstream.Response, id []byte) (text []byte, err error) {
	if resp.Status != http.StatusOK {
		return nil, refusal(resp.Status)
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

// brokenOff returns the problem of an answer that does not come.
func brokenOff(cause error) *wire.Problem {
	if known, ok := errors.AsType[*wire.Problem](cause); ok {
		return known
	}
	if isSilence(cause) {
		return &wire.Problem{Type: wire.UpstreamTimeout, Cause: cause}
	}
	return &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the server broke off before it answered; the call may have run", Cause: cause}
}

// isSilence reports whether an answer ended because the server said nothing for too long.
func isSilence(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

func tooLarge() *wire.Problem {
	return &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the server's answer is larger than the gate passes on (limits.max_line)"}
}

// refusal returns the problem of a request that the server answers with a status and
// no message.
func refusal(status int) *wire.Problem {
	detail := fmt.Sprintf("the server answered with status %d %s", status, http.StatusText(status))
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		detail += "; check the token"
	default:
	}
	return &wire.Problem{Type: wire.UpstreamInvalid, Detail: detail}
}
