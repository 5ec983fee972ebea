package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// ErrRefused reports that the upstream refuses notification streams.
var ErrRefused = errors.New("the upstream refuses notification streams")

// CanListen reports whether t is a running task of a modern upstream.
func CanListen(t task.Task) bool {
	if t.State != task.Executing || t.Execution.UpstreamTask == "" || t.Execution.Upstream.Ended() {
		return false
	}
	out, err := approval.NewUpstreamRequest(t)
	return err == nil && mcp.EraOf(&out.Messages[0]) == mcp.Modern
}

// Listen opens the stream of the upstream's notifications about the upstream task of t. The stream
// must be closed.
func (c *Caller) Listen(ctx context.Context, t task.Task) (io.ReadCloser, error) {
	out, err := approval.NewUpstreamRequest(t)
	if err != nil {
		return nil, err
	}
	ids := jsonrpc.Array([][]byte{jsonrpc.AppendString(nil, t.Execution.UpstreamTask)})
	m := request(&out.Messages[0], mcpname.SubscriptionsListen,
		jsonrpc.Member{Name: "notifications", JSON: jsonrpc.AppendObject(nil, jsonrpc.Member{Name: "taskIds", JSON: ids})})
	resp, err := c.upstream.cfg.Server.Send(ctx, Request{Message: m, Body: m.Raw, Credentials: c.credentials, Stream: true})
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
