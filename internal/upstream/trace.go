package upstream

import (
	"bytes"
	"context"

	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// ContinueTrace returns the body of the request m with the span in ctx, if there is
// one, as the parent of what the server does for it. Only modern requests have a place
// for that.
func ContinueTrace(ctx context.Context, m *jsonrpc.Message, body []byte) []byte {
	parent := tracing.Traceparent(ctx)
	if parent == "" || wire.EraOf(m) != wire.Modern || !bytes.Equal(body, m.Raw) {
		return body
	}
	var patch jsonrpc.Patch
	patch.Set(m.Params.Meta, wire.MetaTraceparent, jsonrpc.AppendString(nil, parent))
	return patch.Apply(body)
}
