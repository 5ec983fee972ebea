package gosdktask

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// maxEdited is the largest size of an HTTP request in which a client can ask for a task.
const maxEdited = 16 << 20

// wrapped is the header with which [Tasks.Handler] marks requests.
const wrapped = "Thoughtgate-Tasks"

// Handler adds to next, a handler of the SDK, the parts that tasks need. Wrap the SDK's handler
// with it, inside the handler that authenticates.
func (t *Tasks) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := &eventWriter{ResponseWriter: w}
		r.Header.Set(wrapped, "1")
		switch r.Method {
		case http.MethodGet:
			if session := r.Header.Get("Mcp-Session-Id"); session != "" {
				defer to.end()
				defer t.lines.add(session, to)()
				w = to
			}
		case http.MethodPost:
			body, err := io.ReadAll(io.LimitReader(r.Body, maxEdited))
			if err == nil && len(body) < maxEdited {
				if misnamed := headerError(r.Header, body); misnamed != nil {
					refuse(w, misnamed)
					return
				}
				body = moved(body)
				r.ContentLength = int64(len(body))
			}
			r.Body = &joined{io.MultiReader(bytes.NewReader(body), failing{err}, r.Body), r.Body}
			if bytes.Contains(body, []byte(metaListen)) {
				defer to.end()
				w, r = to, r.WithContext(context.WithValue(r.Context(), lineKey{}, line(to)))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// errNotWrapped is the error for all clients of 2025-11-25 if the SDK would drop what they say
// about tasks.
var errNotWrapped = errors.New("gosdktask: wrap the handler of the SDK with Tasks.Handler, and a transport with Tasks.Transport")

// checkWrapped returns an error if a request of 2025-11-25 has not passed [Tasks.Handler] or
// [Tasks.Transport].
func (t *Tasks) checkWrapped(method string, r mcp.Request) error {
	version := ""
	if hello, ok := r.GetParams().(*mcp.InitializeParams); ok && method == mcpname.Initialize {
		version = hello.ProtocolVersion
	}
	if extra := r.GetExtra(); extra != nil && extra.Header != nil {
		version = cmp.Or(version, extra.Header.Get("Mcp-Protocol-Version"))
		if version != version2025 || extra.Header.Get(wrapped) != "" {
			return nil
		}
	} else if version != version2025 || t.lines.to("") != nil {
		return nil
	}
	t.opts.Log.Error("tasks", "err", errNotWrapped)
	return errNotWrapped
}

// joined is a body of which a part was already read.
type joined struct {
	io.Reader
	io.Closer
}

// failing returns a reader that ends with the error of the body, if there is one.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// moved returns the message with params that the SDK does not drop.
func moved(message []byte) []byte {
	if !bytes.Contains(message, []byte("task")) {
		return message
	}
	var r struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.Unmarshal(message, &r) != nil || r.Method != mcpname.ToolsCall && r.Method != mcpname.SubscriptionsListen {
		return message // the SDK reports what is wrong with it
	}
	changed, err := edited(message, func(m object) (err error) {
		m["params"], err = movedParams(r.Method, r.ID, m["params"])
		return err
	})
	if err != nil {
		return message
	}
	return changed
}

func movedParams(method string, id json.RawMessage, params []byte) ([]byte, error) {
	switch method {
	case mcpname.ToolsCall:
		return moveTask(params)
	case mcpname.SubscriptionsListen:
		return moveListen(id, params)
	default:
		return params, nil
	}
}

// headerError returns the error for a request of 2026-07-28 whose header Mcp-Name does not name
// its task. The SDK does not check this.
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
	case mcpname.TasksGet, mcpname.TasksCancel, mcpname.TasksUpdate:
	default:
		return nil
	}
	//mutate:swap `strings.TrimSpace(h.Get("Mcp-Name")) == r.Params.TaskID` `strings.TrimSpace("") == ""` TestTaskForSupportingClient2026 a header may name a different task than the request
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
	_, _ = w.Write(message) // an error means that the client has gone
}

// Transport wraps a transport with the parts that tasks need. It is for a transport with one
// client, such as [mcp.StdioTransport].
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
	piped := &conn{Connection: c}
	piped.remove = t.tasks.lines.add("", piped)
	return piped, nil
}

type conn struct {
	mcp.Connection
	acknowledging

	remove func()
}

// Read implements [mcp.Connection].
func (c *conn) Read(ctx context.Context) (sdk.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*sdk.Request); ok && len(r.Params) > 0 {
		id, failed := json.Marshal(r.ID.Raw())
		if params, wrong := movedParams(r.Method, id, r.Params); failed == nil && wrong == nil {
			r.Params = params
		}
	}
	return m, err
}

// Write implements [mcp.Connection].
func (c *conn) Write(ctx context.Context, m sdk.Message) error {
	r, ok := m.(*sdk.Request)
	if !ok || r.Method != mcpname.NotifySubscriptionsAcknowledged {
		return c.Connection.Write(ctx, m)
	}
	text, err := sdk.EncodeMessage(r)
	if err != nil {
		return err
	}
	text, sent := c.edit(text)
	if m, err = sdk.DecodeMessage(text); err != nil {
		return err
	}
	if err := c.Connection.Write(ctx, m); err != nil {
		return err
	}
	sent()
	return nil
}

// Close implements [mcp.Connection].
func (c *conn) Close() error {
	c.remove()
	return c.Connection.Close()
}

// send implements [line].
func (c *conn) send(message []byte) error {
	m, err := sdk.DecodeMessage(message)
	if err != nil {
		return err
	}
	return c.Connection.Write(context.Background(), m)
}
