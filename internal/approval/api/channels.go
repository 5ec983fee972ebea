package api

import (
	"errors"
	"io"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

// A System is an approver that is no person: it signs its decisions.
type System struct {
	Key      webhook.Key
	Approver approval.Approver
}

// signedRoute is where systems decide. A signature stands for a login there.
const signedRoute = "POST /api/channels/{channel}/decisions"

// maxAnswer is the size of the largest signed decision.
const maxAnswer = 64 << 10

// answered takes the decision of a system.
func (h *handler) answered(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAnswer))
	if err != nil {
		h.refuse(w, r, errTooLarge)
		return
	}
	system, known := h.Systems[r.PathValue("channel")]
	answer, err := webhook.ReadAnswer(system.Key, r.Header, body, h.Now())
	if !known || errors.Is(err, webhook.ErrUnsigned) {
		h.refuse(w, r, &problem{http.StatusUnauthorized, "unauthorized", "the message is not signed with the key of this channel, or was signed more than five minutes ago"})
		return
	}
	if err != nil {
		h.refuse(w, r, badRequest(err.Error()))
		return
	}
	h.rule(w, r, answer.ID, system.Approver, approval.Ruling{
		Decision: approval.Decision(answer.Decision), Reason: answer.Reason, Shown: answer.ShownDigest, Unread: answer.UnreadBytes,
	})
}

// channelList is the answer to a request for the channels.
type channelList struct {
	Channels []channel.Status `json:"channels"`
}

// channels answers with the status of each channel.
func (h *handler) channels(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
	list := channelList{Channels: []channel.Status{}}
	if h.Channels != nil {
		list.Channels = append(list.Channels, h.Channels()...)
	}
	h.answer(w, r, http.StatusOK, list)
}
