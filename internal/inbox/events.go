package inbox

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An event informs the pages that are open that something has changed, and
// enough of it to say so. They load the rest like any page.
type event struct {
	ID        task.ID   `json:"id"`
	Pending   bool      `json:"pending"`
	Tool      string    `json:"tool"`
	Requester string    `json:"requester"`
	CreatedAt time.Time `json:"createdAt"`
}

// events reports every call that waits, and then each change. It also ends with
// the session.
func (i *Inbox) events(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
	// A comment would be enough to keep the stream open, but scripts do not see
	// comments, and so could not distinguish a quiet stream from one that was cut off.
	beat := fmt.Sprintf("event: beat\ndata: %d\n\n", i.cfg.KeepAlive.Milliseconds())
	api.Stream{Cases: i.cfg.Cases, KeepAlive: i.cfg.KeepAlive, Quiet: beat, Event: eventText, Log: i.cfg.Log}.Serve(w, r)
}

func eventText(a casefile.Approval) (string, error) {
	text, err := json.Marshal(event{
		ID: a.ID, Pending: a.State == task.InputRequired, Tool: a.Tool, Requester: requester(a), CreatedAt: a.CreatedAt,
	})
	return "data: " + string(text) + "\n\n", err
}
