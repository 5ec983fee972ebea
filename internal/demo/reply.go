package demo

import (
	"context"
	"iter"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A reply is the HTTP answer to one POST: a single JSON response, or, once
// [reply.stream] was called, an event stream. The first write that fails ends
// it; later ones do nothing.
type reply struct {
	w         http.ResponseWriter
	id        jsontext.Value // of the request being answered, empty if it was unreadable
	era       era
	streaming bool
	err       error
}

// result answers the request.
func (r *reply) result(result any) { r.send(http.StatusOK, response{ID: r.id, Result: result}) }

// refuse answers the request with f. A status other than 200 needs an answer
// that has not begun.
func (r *reply) refuse(f *fault) {
	r.send(max(f.status, http.StatusOK), response{ID: r.id, Error: f})
}

func (r *reply) send(status int, resp response) {
	resp.JSONRPC = "2.0"
	data, err := json.Marshal(resp)
	if err != nil {
		r.err = err
		return
	}
	r.begin(status)
	r.write(data)
	r.end()
}

// toolError answers a tools/call that ran and went wrong, in words for a model.
func (r *reply) toolError(err error) {
	r.result(callResult{extras: r.era.onResult(), IsError: true, Content: []textContent{{"text", err.Error()}}})
}

// endOfText closes the response that [reply.text] leaves open.
const endOfText = `"}]}}`

// text begins the answer to a tools/call with a text that is never held as a
// whole: the response is encoded with an empty text at its very end, and the
// pieces are written into the gap. It reports false if the client left before
// the last piece; otherwise [reply.endText] completes the answer.
func (r *reply) text(ctx context.Context, pieces iter.Seq[string]) bool {
	data, err := json.Marshal(response{
		JSONRPC: "2.0",
		ID:      r.id,
		Result:  callResult{extras: r.era.onResult(), Content: []textContent{{"text", ""}}},
	})
	if err != nil {
		return false
	}
	r.begin(http.StatusOK)
	r.write(data[:len(data)-len(endOfText)])
	var quoted []byte
	first := true
	for piece := range pieces {
		if !first && (r.err != nil || ctx.Err() != nil) {
			return false
		}
		first = false
		if quoted, err = jsontext.AppendQuote(quoted[:0], piece); err != nil {
			return false
		}
		r.write(quoted[1 : len(quoted)-1])
	}
	return true
}

func (r *reply) endText() {
	r.write([]byte(endOfText))
	r.end()
}

// progress sends the client how far its call has come. Without a token it
// sends a comment, which keeps the stream alive and means nothing.
func (r *reply) progress(token jsontext.Value, p progress) {
	r.stream()
	if len(token) == 0 {
		r.write([]byte(": still at it\n\n"))
		r.flush()
		return
	}
	p.Token = token
	data, err := json.Marshal(notification{JSONRPC: "2.0", Method: "notifications/progress", Params: p})
	if err != nil {
		r.err = err
		return
	}
	r.begin(http.StatusOK)
	r.write(data)
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

// begin starts one message: an event of the stream, or the whole body.
func (r *reply) begin(status int) {
	if r.streaming {
		r.write([]byte("event: message\ndata: "))
		return
	}
	r.w.Header().Set("Content-Type", "application/json")
	r.w.WriteHeader(status)
}

func (r *reply) end() {
	if r.streaming {
		r.write([]byte("\n\n"))
		r.flush()
	}
}

func (r *reply) write(data []byte) {
	if r.err == nil {
		_, r.err = r.w.Write(data)
	}
}

func (r *reply) flush() {
	if r.err == nil {
		r.err = http.NewResponseController(r.w).Flush()
	}
}
