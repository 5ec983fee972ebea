package upstream

import (
	"bytes"
	"context"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// ContinueTrace returns the body of the request m with the span in ctx, if any, as its trace
// parent. Only modern requests have a member for it.
func ContinueTrace(ctx context.Context, m *jsonrpc.Message, body []byte) []byte {
	parent := tracing.Traceparent(ctx)
	if parent == "" || mcp.EraOf(m) != mcp.Modern || !bytes.Equal(body, m.Raw) {
		return body
	}
	var patch jsonrpc.Patch
	patch.Set(m.Params.Meta, mcp.MetaTraceparent, jsonrpc.AppendString(nil, parent))
	return patch.Apply(body)
}
