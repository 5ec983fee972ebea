package inbox_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// closed finds what a page shows only when it is asked for.
var closed = regexp.MustCompile(`(?s)<details class="fold">.*?</details>`)

// unfolded returns the text of a page without what is folded.
func unfolded(page string) string { return read(closed.ReplaceAllString(page, "")) }

// A short script is shown whole: nothing of it is folded while Approve can be
// pressed, however many lines it has.
func TestNothingHidden(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
	script := "echo 'nightly backup: read-only, safe'\\n\\n\\n\\n\\n\\n\\n\\n\\npsql -c 'DROP TABLE customers'\\n"
	nested := strings.Repeat(`{"in":`, 12) + `"rm -rf /"` + strings.Repeat("}", 12)
	list := strings.TrimSuffix(strings.Repeat(`"safe",`, 60), ",")
	id := o.hold(t, held{args: `{"command":"` + script + `","deep":` + nested + `,"list":[` + list + `,"format c:"],"line":"` + strings.Repeat("a", 900) + `; reboot"}`})
	page := alice.get("/approvals/" + string(id))
	mustHave(t, unfolded(page), "DROP TABLE customers", "rm -rf /", "format c:", "; reboot")
	mustLack(t, page, "<details>", `class="fold"`, `id="unread"`)
	if status, page := alice.decide(id, "approve", ""); status != http.StatusOK || !strings.Contains(page, "Approved by alice") {
		t.Errorf("approve: %d", status)
	}
}

// The name of a call is shown whole, whatever letters it has. If there is no room for one,
// the approver has to say that it was not read.
func TestLongNames(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
	for name, c := range map[string]struct {
		tool  string
		whole bool
	}{
		"Cyrillic":           {strings.Repeat("я", 990) + "_drop_all", true},
		"invisible":          {strings.Repeat("\x01", 1990) + "_drop_all", true},
		"longer than a page": {strings.Repeat("a", 300<<10) + "_drop_all", false},
	} {
		for _, args := range []string{`null`, `{"a":1}`} {
			id := o.hold(t, held{tool: c.tool, args: args})
			_, page, _ := strings.Cut(alice.get("/approvals/"+string(id)), "<body")
			if whole := strings.Contains(read(page), "_drop_all"); whole != c.whole {
				t.Errorf("%s name with %s is shown whole: %t", name, args, whole)
			}
			if noted := strings.Contains(page, `id="unread"`); noted == c.whole {
				t.Errorf("%s name with %s is not read: %t", name, args, noted)
			}
		}
	}
}

// Folded arguments need not be read if the approver says so, also if the call is
// small enough for one view.
func TestUnreadSmall(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
	id := o.hold(t, held{args: `{"script":"` + strings.Repeat(`step\n`, 200) + `"}`})
	path := "/approvals/" + string(id)
	said := regexp.MustCompile(`name="unread" value="(\d+)"`).FindStringSubmatch(alice.get(path))
	if said == nil {
		t.Fatal("nothing is folded")
	}
	status, answer := alice.decideSeeing(path, id, "approve", url.Values{"unread": {said[1]}})
	if status != http.StatusOK || !strings.Contains(answer, "Approved by alice") {
		t.Errorf("approved unread on purpose: %d", status)
	}
}

// A long value shows its first and last lines. It is approved only by somebody
// who opened the rest, or says that it need not be read.
func TestUnread(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
	var lines []string
	for i := range 200 {
		lines = append(lines, fmt.Sprintf("step %d", i+1))
	}
	args := `{"script":"` + strings.Join(lines, `\n`) + `","big":"` + strings.Repeat("word ", 200_000) + `"}`
	hold := func(by string) (task.ID, string) {
		id := o.hold(t, held{args: args, by: by})
		return id, "/approvals/" + string(id)
	}
	id, path := hold("a")
	page := alice.get(path)
	mustHave(t, unfolded(page), "step 1\n", "step 40\n", "step 191\n", "step 200", "I approve without reading 9")
	mustLack(t, unfolded(page), "step 41\n", "step 190\n")
	mustHave(t, read(page), "step 41\n", "step 190\n", "150 lines folded") // on the page, when it is opened

	status, answer := alice.decide(id, "approve", "looks fine")
	if status != http.StatusConflict {
		t.Errorf("approved unread: %d", status)
	}
	mustHave(t, answer, "Your approval was not recorded", "still folded", ">looks fine</textarea>")
	for name, form := range map[string]url.Values{
		"another number": {"unread": {"1"}}, "nothing shown": {"read": {"all"}, "shown": {""}},
		"another call": {"read": {"all"}, "shown": {strings.Repeat("0", 64)}},
	} {
		if status, _ := alice.decideSeeing(path, id, "approve", form); status != http.StatusConflict {
			t.Errorf("%s: %d", name, status)
		}
	}
	if a, err := o.desk.Cases().Show(t.Context(), id); err != nil || a.State != task.InputRequired {
		t.Fatalf("%s, %v", a.State, err)
	}
	said := regexp.MustCompile(`name="unread" value="(\d+)"`).FindStringSubmatch(page)
	if status, answer := alice.decideSeeing(path, id, "approve", url.Values{"unread": {said[1]}}); status != http.StatusOK || !strings.Contains(answer, "Approved by alice") {
		t.Errorf("approved unread on purpose: %d", status)
	}

	mustHave(t, read(alice.get(path)), "without reading everything ("+bytesOf(said[1])+" not read)")
	if got := unreadOf(t, o, id); got != said[1] {
		t.Errorf("the journal has %s bytes not read; want %s", got, said[1])
	}

	// An approver who was shown everything on one page need not confirm anything.
	id, path = hold("b")
	whole := alice.get(path + "?view=all")
	mustHave(t, unfolded(whole), `step 41\n`, strings.Repeat("word ", 200_000))
	mustLack(t, whole, `id="unread"`)
	if status, answer := alice.decideSeeing(path+"?view=all", id, "approve", url.Values{}); status != http.StatusOK || !strings.Contains(answer, "Approved by alice") {
		t.Errorf("approved after reading: %d", status)
	}
	if got := unreadOf(t, o, id); got != "0" {
		t.Errorf("the journal has %s bytes not read of a call that was read", got)
	}

	// A rejection needs nothing.
	id, _ = hold("c")
	if status, answer := alice.decide(id, "reject", ""); status != http.StatusOK || !strings.Contains(answer, "Rejected by alice") {
		t.Errorf("rejected: %d", status)
	}
}

// unreadOf returns how much of a call the journal says was not read by the one who
// approved it.
func unreadOf(t *testing.T, o *office, id task.ID) string {
	t.Helper()
	story, err := o.desk.Cases().Story(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range story {
		if e.Step == string(approval.Decided) {
			return strconv.FormatInt(e.UnreadBytes, 10)
		}
	}
	return "no decision"
}

// bytesOf returns a number of bytes as pages say it.
func bytesOf(text string) string {
	n, err := strconv.Atoi(text)
	if err != nil {
		return text
	}
	return fmt.Sprintf("%.1f KB", float64(n)/1000)
}

// decide looks at a call and then decides, as an approver does.
func decide(ctx context.Context, desk *approval.Desk, id task.ID, who approval.Approver, what approval.Decision, reason string) (task.Task, error) {
	r := approval.Ruling{Decision: what, Reason: reason}
	if shown, err := desk.Cases().ShowAll(ctx, id); err == nil {
		r.Shown = shown.ShownDigest
	}
	return desk.Decide(ctx, id, who, r)
}
