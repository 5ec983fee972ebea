package api

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/replay"
)

// calls answers with entries of the record of calls, one per line.
func (h *handler) calls(w http.ResponseWriter, r *http.Request, _ operator.Operator) (any, error) {
	q := r.URL.Query()
	f := callrecord.Filter{
		ID: q.Get("id"), Upstream: q.Get("upstream"), Name: q.Get("name"), Principal: q.Get("principal"),
		Action: q.Get("action"), Outcome: q.Get("outcome"), Event: callrecord.Event(q.Get("event")), By: q.Get("by"), Text: q.Get("text"), After: q.Get("after"), Ref: q.Get("ref"),
	}
	if len(f.Text) > callrecord.MaxText {
		return nil, badRequest("text must have at most 200 bytes")
	}
	err := times(q, &f.Since, &f.Until)
	if err == nil {
		f.Limit, err = limit(q, 1000)
	}
	if err != nil {
		return nil, err
	}
	f.Limit = cmp.Or(f.Limit, 100)
	page, err := callrecord.Find(r.Context(), h.Viewer.Records(), f)
	if errors.Is(err, callrecord.ErrCursor) {
		return nil, badRequest("after must be the cursor of an earlier answer")
	}
	if errors.Is(err, callrecord.ErrRef) {
		return nil, badRequest("ref must be the ref of an entry")
	}
	var lines bytes.Buffer
	for i := range page.Entries {
		if err == nil {
			err = page.Entries[i].Write(&lines)
		}
	}
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if page.Next != "" {
		w.Header().Set(callrecord.NextHeader, page.Next)
	}
	h.send(w, r, http.StatusOK, lines.Bytes())
	return nil, nil
}

// verifyCalls verifies the record of calls.
func (h *handler) verifyCalls(_ http.ResponseWriter, r *http.Request, _ operator.Operator) (any, error) {
	var known []callrecord.Link
	if text := r.URL.Query().Get("head"); text != "" {
		l, err := callrecord.ParseLink(text)
		if err != nil {
			return nil, badRequest("head must be CHAIN:SEQ:HASH")
		}
		known = append(known, l)
	}
	return callrecord.Verify(r.Context(), h.Viewer.Records(), known...)
}

// explainCall explains recorded calls under the running policy.
func (h *handler) explainCall(_ http.ResponseWriter, r *http.Request, _ operator.Operator) (any, error) {
	all, err := h.Explain(r.Context(), r.URL.Query().Get("id"))
	switch {
	case errors.Is(err, callrecord.ErrRef):
		return nil, badRequest("id must be the id or the ref of an entry")
	case errors.Is(err, callrecord.ErrNoCall):
		return nil, &problem{http.StatusNotFound, "not_found", err.Error()}
	case errors.Is(err, replay.ErrNoPolicy):
		return nil, &problem{http.StatusConflict, "no_policy", err.Error()}
	}
	return map[string][]replay.Explanation{"explanations": all}, err
}
