package demo

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A reply is the HTTP answer to one POST: a single JSON response, or an event stream after
// [reply.stream]. After a failed write, it writes nothing.
type reply struct {
	w         http.ResponseWriter
	id        jsontext.Value // of the request; empty if it is not known
	era       era
	streaming bool
	err       error
}

// result answers the request with these members and those of the era.
func (r *reply) result(members string) {
	r.send(http.StatusOK, `"result":{`+strings.TrimSuffix(r.era.members()+members, ",")+`}}`)
}

// refuse answers the request with f. A status other than 200 is possible only before the answer has
// begun.
func (r *reply) refuse(f *fault) {
	text := fmt.Sprintf(`"error":{"code":%d,"message":%s`, f.code, quote(f.message))
	if f.data != "" {
		text += `,"data":` + f.data
	}
	r.send(max(f.status, http.StatusOK), text+`}}`)
}

// send answers with a response. It writes the beginning of the response.
func (r *reply) send(status int, rest string) {
	r.begin(status)
	r.write(r.head() + rest)
	r.end()
}

// head returns the beginning of a response.
func (r *reply) head() string {
	if len(r.id) == 0 {
		return `{"jsonrpc":"2.0",`
	}
	return `{"jsonrpc":"2.0","id":` + string(r.id) + `,`
}

// toolError answers a tools/call that ran and failed, in words for a model.
func (r *reply) toolError(err error) {
	r.result(`"isError":true,"content":[{"type":"text","text":` + quote(err.Error()) + `}]`)
}

// text begins the answer to a tools/call with a text that is written piece by piece. It returns
// false if the client has disconnected before the last piece; otherwise [reply.endText] completes
// the answer.
func (r *reply) text(ctx context.Context, pieces iter.Seq[string]) bool {
	r.begin(http.StatusOK)
	r.write(r.head() + `"result":{` + r.era.members() + `"isError":false,"content":[{"type":"text","text":"`)
	var quoted []byte // reused, so that a text of any length takes little memory
	for piece := range pieces {
		if quoted != nil && (r.err != nil || ctx.Err() != nil) {
			return false
		}
		quoted = jsonrpc.AppendString(quoted[:0], piece)
		if r.err == nil {
			_, r.err = r.w.Write(quoted[1 : len(quoted)-1])
		}
	}
	return true
}

func (r *reply) endText() {
	r.write(`"}]}}`)
	r.end()
}

// progress sends a progress notification. Without a token, it sends a comment that keeps the stream
// alive.
func (r *reply) progress(token jsontext.Value, members string) {
	r.stream()
	if len(token) == 0 {
		r.write(": still at it\n\n")
		r.flush()
		return
	}
	r.begin(http.StatusOK)
	r.write(`{"jsonrpc":"2.0","method":"` + mcpname.NotifyProgress + `","params":{"progressToken":` + string(token) + `,` + members + `}}`)
	r.end()
}

// stream turns the answer into an event stream, if it is not one yet.
func (r *reply) stream() {
	if r.streaming {
		return
	}
	r.streaming = true
	r.w.Header().Set("Content-Type", "text/event-stream")
	r.w.Header().Set("Cache-Control", "no-cache, no-transform")
	r.w.Header().Set("X-Accel-Buffering", "no")
	r.w.WriteHeader(http.StatusOK)
	r.flush()
}

// begin begins a message: an event of the stream, or the whole body.
func (r *reply) begin(status int) {
	if r.streaming {
		r.write("event: message\ndata: ")
		return
	}
	r.w.Header().Set("Content-Type", "application/json")
	r.w.WriteHeader(status)
}

func (r *reply) end() {
	if r.streaming {
		r.write("\n\n")
		r.flush()
	}
}

func (r *reply) write(text string) {
	if r.err == nil {
		_, r.err = io.WriteString(r.w, text)
	}
}

func (r *reply) flush() {
	if r.err == nil {
		r.err = http.NewResponseController(r.w).Flush()
	}
}
