package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

// pushKey returns the key with which the browser of who can subscribe to notifications,
// and a name for the login. Both are empty if it cannot.
func (i *Inbox) pushKey(r *http.Request, who operator.Operator) (key, device string) {
	p := i.cfg.Push()
	if p == nil || who.Login() == "" || !who.Role.Includes(operator.Approver) {
		return "", ""
	}
	key, err := p.Key(r.Context())
	if err != nil {
		i.cfg.Log.WarnContext(r.Context(), "the key for push messages cannot be read", "error", err)
		return "", ""
	}
	sum := sha256.Sum256([]byte("device " + who.Login()))
	return key, hex.EncodeToString(sum[:8])
}

// subscribe has a browser be sent notifications.
func (i *Inbox) subscribe(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	i.changePush(w, r, func(p *push.Push) error {
		return p.Subscribe(r.Context(), who, push.Subscription{
			Endpoint: r.PostFormValue("endpoint"), Key: r.PostFormValue("key"), Auth: r.PostFormValue("auth"),
		})
	})
}

// unsubscribe ends that.
func (i *Inbox) unsubscribe(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	i.changePush(w, r, func(p *push.Push) error { return p.Unsubscribe(r.Context(), who) })
}

func (i *Inbox) changePush(w http.ResponseWriter, r *http.Request, change func(*push.Push) error) {
	p := i.cfg.Push()
	if p == nil {
		http.NotFound(w, r)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxSubscription)
	switch err := change(p); {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, push.ErrNoLogin), errors.Is(err, push.ErrEndpoint):
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		i.cfg.Log.ErrorContext(r.Context(), "inbox: push", "error", err)
		http.Error(w, "the gate's store cannot be reached at the moment", http.StatusServiceUnavailable)
	}
}

// maxSubscription is the size of the largest form about a subscription.
const maxSubscription = 8 << 10
