package peer

import (
	"io"
	"net/http"
	"strconv"

	"github.com/thoughtgate/thoughtgate-go/bench/workload"
)

// Upstream returns an MCP server that supports only the calls of package workload. It answers
// like servers built with an SDK: JSON with a length, or an event stream that is flushed after
// every event.
func Upstream() http.Handler {
	u := &upstream{calls: workload.NewUpstream()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mcp", u.call)
	mux.HandleFunc("GET /mcp", stream)
	return mux
}

type upstream struct {
	calls *workload.Upstream
}

func (u *upstream) call(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kind, answer, err := u.answer(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", kind.ContentType())
	var out io.Writer = w
	if kind.ContentType() == workload.TypeSSE {
		w.Header().Set("Cache-Control", "no-cache, no-transform")
		out = flushing{w, http.NewResponseController(w)}
	} else {
		w.Header().Set("Content-Length", strconv.FormatInt(answer.Len(), 10))
	}
	if _, err := answer.WriteTo(out); err != nil {
		panic(http.ErrAbortHandler) // the client has disconnected
	}
}

// answer returns the answer to a request of the benchmark, or of the gate.
func (u *upstream) answer(body []byte) (workload.Kind, workload.Body, error) {
	call, err := u.calls.Read(body)
	if err == nil {
		return call.Kind, u.calls.Answer(call), nil
	}
	answer, err := u.calls.Own(body)
	return workload.BigJSON, answer, err
}

// stream opens an event stream with one event, and then stays silent.
func stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", workload.TypeSSE)
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	out := flushing{w, http.NewResponseController(w)}
	if _, err := io.WriteString(out, workload.FirstEvent); err != nil {
		return
	}
	<-r.Context().Done()
}

// flushing flushes after every write.
type flushing struct {
	io.Writer
	control *http.ResponseController
}

// Write implements [io.Writer].
func (f flushing) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err != nil {
		return n, err
	}
	return n, f.control.Flush()
}
