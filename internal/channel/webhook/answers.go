package webhook

import (
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// An Answer is what a system decides.
type Answer struct {
	ID          task.ID `json:"id"`
	Decision    string  `json:"decision"` // approve or reject
	Reason      string  `json:"reason,omitzero"`
	ShownDigest string  `json:"shownDigest,omitzero"`
	UnreadBytes int     `json:"unreadBytes,omitzero"`
}

// A SignedAnswer is the body of a message with an answer.
type SignedAnswer struct {
	Type string `json:"type"` // approval.decision
	Data Answer `json:"data"`
}

// errShape says what an answer must look like.
var errShape = errors.New(`the body must be {"type": "approval.decision", "data": {"id": "…", "decision": "approve" or "reject", "shownDigest": "…"}}`)

// ReadAnswer returns the answer in a signed message. The error is [ErrUnsigned], or
// says what the body must be.
//
// The key is another than that of the questions, so that nothing the gate sends can
// be taken for an answer. A message that is sent again is read again: a call is
// decided once, and an approver counts once.
func ReadAnswer(k Key, h http.Header, body []byte, now time.Time) (Answer, error) {
	if err := k.Verify(h, body, now); err != nil {
		return Answer{}, err
	}
	var a SignedAnswer
	if err := json.Unmarshal(body, &a, json.RejectUnknownMembers(true)); err != nil {
		return Answer{}, errShape
	}
	valid := a.Data.Decision == "approve" || a.Data.Decision == "reject"
	if a.Type != "approval.decision" || a.Data.ID == "" || !valid {
		return Answer{}, errShape
	}
	return a.Data, nil
}
