package inbox_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// An admin sees numbers about all calls, for the last day, week or month. Names are shown as text,
// and the record is not read again for each look.
func TestOverview(t *testing.T) {
	o := open(t)
	at := func(ago time.Duration) time.Time { return o.now().Add(-ago) }
	o.record = []callrecord.Entry{
		{Time: at(8 * 24 * time.Hour), Event: callrecord.Judged, Upstream: "crm", Name: "oldest", Action: policy.Forward},
		{Time: at(3 * time.Hour), Event: callrecord.Judged, Upstream: "crm", Name: "read<b>\u202e", Principal: "ann", Action: policy.Forward},
		{Time: at(2 * time.Hour), Event: callrecord.Judged, Upstream: "crm", Name: "wipe", Principal: "ann", Action: policy.Forward, Observed: policy.Deny, Rule: "rule wipes"},
		{Time: at(2 * time.Hour), Event: callrecord.Judged, ID: "tg_1", Upstream: "crm", Name: "delete", Action: policy.Approve, Workflow: "ops"},
		{Time: at(time.Hour), Event: callrecord.Ended, ID: "tg_1", Upstream: "crm", Name: "delete", Action: policy.Approve, Workflow: "ops", Outcome: "completed", By: []string{"eve"}, Decided: at(110 * time.Minute)},
	}
	ada := o.signIn(t, "ada")
	day := ada.get("/overview")
	mustHave(t, day, "read&lt;b&gt;", "U+202E", "10 min", `class="bar-approved"`, "rule wipes", "anonymous", "<svg")
	mustLack(t, day, "oldest", "<b>", "\u202e", "style=")
	mustHave(t, ada.get("/overview?range=month"), "oldest")
	ada.get("/overview")
	if o.summaries != 2 {
		t.Errorf("the record was read %d times, want 2", o.summaries)
	}
	o.pass(time.Minute)
	ada.get("/overview?range=unknown") // the day
	if o.summaries != 3 {
		t.Errorf("the record was read %d times, want 3", o.summaries)
	}
	for _, other := range []string{"vera", "alice"} {
		v := o.signIn(t, other)
		mustLack(t, v.get("/"), `href="/overview"`)
		if status, _, _ := v.do(http.MethodGet, "/overview", ""); status != http.StatusForbidden {
			t.Errorf("%s sees the overview", other)
		}
	}
	if none := open(t).signIn(t, "ada").get("/overview"); !strings.Contains(none, "None in this time.") {
		t.Errorf("without calls: %.300s", none)
	}
}
