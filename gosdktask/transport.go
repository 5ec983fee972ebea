package gosdktask

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
)

// maxEdited is the size of the largest request over HTTP in which a client can ask
// for a task.
const maxEdited = 16 << 20

// HTTP returns a handler that gives next, a handler of the SDK, what it needs for
// tasks. Put it around the SDK's handler and inside of the one that authenticates.
func (t *Tasks) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.Body != nil {
			body, err := io.ReadAll(io.LimitReader(r.Body, maxEdited))
			if err == nil && len(body) < maxEdited {
				if misnamed := headerError(r.Header, body); misnamed != nil {
					refuse(w, misnamed)
					return
				}
				body = movedTask(body)
				r.ContentLength = int64(len(body))
			}
			r.Body = &joined{io.MultiReader(bytes.NewReader(body), failing{err}, r.Body), r.Body}
		}
		next.ServeHTTP(w, r)
	})
}

// joined is a body that was read in part.
type joined struct {
	io.Reader
	io.Closer
}

// failing returns the error that a body was read with, if there is one.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// movedTask returns a message whose params the SDK keeps.
func movedTask(message []byte) []byte {
	if !bytes.Contains(message, []byte(`task"`)) {
		return message
	}
	var method struct {
		Method string `json:"method"`
	}
	if json.Unmarshal(message, &method) != nil || method.Method != methodCall {
		return message // the SDK says what is wrong with it, if anything is
	}
	moved, err := edited(message, func(m object) error {
		params, err := moveTask(m["params"])
		m["params"] = params
		return err
	})
	if err != nil {
		return message
	}
	return moved
}

// headerError returns the answer to a request of 2026-07-28 about a task whose
// header Mcp-Name does not name the task, which the SDK does not check.
func headerError(h http.Header, message []byte) []byte {
	if h.Get("Mcp-Protocol-Version") < version2026 || !bytes.Contains(message, []byte("tasks/")) {
		return nil
	}
	var r struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			TaskID string `json:"taskId"`
		} `json:"params"`
	}
	if json.Unmarshal(message, &r) != nil {
		return nil
	}
	switch r.Method {
	case mcptask.MethodGet, mcptask.MethodCancel, mcptask.MethodUpdate:
	default:
		return nil
	}
	if strings.TrimSpace(h.Get("Mcp-Name")) == r.Params.TaskID {
		return nil
	}
	return jsonrpc.AppendErrorResponse(nil, r.ID, &jsonrpc.Error{
		Code: mcp.CodeHeaderMismatch, Message: "Mcp-Name does not name the task of the request",
	})
}

func refuse(w http.ResponseWriter, message []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(message) // a client that has gone needs no answer
}

// Transport returns a transport that gives the server what it needs for tasks. It
// is for a transport with one client, such as [mcp.StdioTransport].
func (t *Tasks) Transport(inner mcp.Transport) mcp.Transport { return &transport{inner, t} }

type transport struct {
	mcp.Transport

	tasks *Tasks
}

// Connect implements [mcp.Transport].
func (t *transport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{c, t.tasks}, nil
}

type conn struct {
	mcp.Connection

	tasks *Tasks
}

// Read implements [mcp.Connection].
func (c *conn) Read(ctx context.Context) (sdk.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*sdk.Request); ok && r.Method == methodCall {
		if params, failed := moveTask(r.Params); failed == nil {
			r.Params = params
		}
	}
	return m, err
}
