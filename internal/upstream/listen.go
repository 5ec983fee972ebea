package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// ErrRefused reports that the upstream does not let anybody listen.
var ErrRefused = errors.New("the upstream refuses notification streams")

// CanListen reports whether t has become a task of a modern upstream that works
// on it.
func CanListen(t task.Task) bool {
	if t.State != task.Executing || t.Execution.UpstreamTask == "" || t.Execution.Upstream.Ended() {
		return false
	}
	call, err := outgoing(t)
	return err == nil && wire.EraOf(call) == wire.Modern
}

// Listen returns the stream of events on which the upstream speaks of its task
// that t has become. It must be closed.
func (c *Caller) Listen(ctx context.Context, t task.Task) (io.ReadCloser, error) {
	call, err := outgoing(t)
	if err != nil {
		return nil, err
	}
	m, err := request("subscriptions/listen",
		`"notifications":{"taskIds":[`+string(jsonrpc.AppendString(nil, t.Execution.UpstreamTask))+`]}`, metaMember(call))
	if err != nil {
		return nil, err
	}
	resp, err := c.upstream.cfg.Server.Send(ctx, Request{Message: m, Body: m.Raw, As: c.as, Stream: true})
	if err != nil {
		return nil, err
	}
	switch {
	case resp.Status >= http.StatusInternalServerError:
		err = fmt.Errorf("the upstream answered with status %d", resp.Status)
	case resp.Status != http.StatusOK || !resp.Events:
		err = ErrRefused
	default:
		return resp.Body, nil
	}
	_ = resp.Body.Close()
	return nil, err
}
