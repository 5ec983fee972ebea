package api

import (
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A GrantList is the answer to a request for standing approvals.
type GrantList struct {
	Grants []casefile.Grant `json:"grants"`
}

// grants answers with standing approvals.
func (h *handler) grants(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
	all := false
	switch r.URL.Query().Get("state") {
	case "", "active":
	case "all":
		all = true
	default:
		h.refuse(w, r, badRequest("state must be active or all"))
		return
	}
	found, err := h.Cases.Grants(r.Context(), all)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.answer(w, r, http.StatusOK, GrantList{found})
}

// grant answers with one standing approval and its uses.
func (h *handler) grant(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
	g, err := h.Cases.Grant(r.Context(), task.GrantID(r.PathValue("id")))
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.answer(w, r, http.StatusOK, g)
}

// A grantWish is the standing approval that an approver gives with an approval.
type grantWish struct {
	Seconds int      `json:"seconds"`
	Uses    int      `json:"uses"`
	Free    []string `json:"free"`
}

// maxWish is more than any standing approval may be good for, in seconds.
const maxWish = 1 << 30

// terms returns the terms of a standing approval that is given now.
func (g *grantWish) terms(now time.Time) *task.GrantTerms {
	if g == nil {
		return nil
	}
	return &task.GrantTerms{Until: now.Add(time.Duration(min(g.Seconds, maxWish)) * time.Second), Uses: g.Uses, Free: g.Free}
}

// A revocation is the body of a request to revoke a standing approval.
type revocation struct {
	Reason string `json:"reason"`
}

// revoke ends a standing approval.
func (h *handler) revoke(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	var v revocation
	if err := readBody(w, r, &v); err != nil {
		h.refuse(w, r, err)
		return
	}
	g, err := h.Desk.Revoke(r.Context(), task.GrantID(r.PathValue("id")), Approver(who), v.Reason)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.answer(w, r, http.StatusOK, g)
}
