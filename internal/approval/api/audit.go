package api

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// audit answers with entries of the journal, a line for each.
func (h *handler) audit(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
	f, err := auditFilter(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	page, err := h.Cases.Audit(r.Context(), f)
	var lines []byte
	for _, e := range page.Entries {
		if err == nil {
			lines, err = audit.AppendLine(lines, e)
		}
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/x-ndjson")
	if page.Next > 0 {
		header.Set(audit.NextHeader, strconv.FormatInt(page.Next, 10))
	}
	if _, err := w.Write(lines); err != nil {
		h.Log.DebugContext(r.Context(), "answer not sent", "error", err)
	}
}

// auditFilter reads what of the journal is asked for.
func auditFilter(r *http.Request) (audit.Filter, error) {
	q := r.URL.Query()
	f := audit.Filter{
		Task: task.ID(q.Get("task")), Tool: q.Get("tool"), Requester: cmp.Or(q.Get("requester"), q.Get("principal")), Approver: q.Get("approver"),
		Grant: task.GrantID(q.Get("grant")),
	}
	if q.Has("requester") && q.Has("principal") {
		return f, badRequest("requester and principal mean the same: give one of them")
	}
	for name, to := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if text := q.Get(name); text != "" {
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				return f, badRequest(name + " must be a time such as 2026-11-15T06:00:00Z")
			}
			*to = at
		}
	}
	if text := q.Get("after"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return f, badRequest("after must be the number of an entry")
		}
		f.After = n
	}
	var err error
	f.Limit, err = limit(q, 1000)
	return f, err
}

// auditEnds answers with the two ends of the journal.
func (h *handler) auditEnds(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
	ends, err := h.Cases.AuditEnds(r.Context())
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.answer(w, r, http.StatusOK, ends)
}
