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

// closed matches the folded parts of a page.
var closed = regexp.MustCompile(`(?s)<details class="fold">.*?</details>`)

// unfolded returns the text of a page without its folded parts.
func unfolded(page string) string { return read(closed.ReplaceAllString(page, "")) }

// TestShortArgumentsUnfolded checks that short arguments are shown without folding, whatever
// their lines and nesting.
func TestShortArgumentsUnfolded(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	script := "echo 'nightly backup: read-only, safe'\\n\\n\\n\\n\\n\\n\\n\\n\\npsql -c 'DROP TABLE customers'\\n"
	nested := strings.Repeat(`{"in":`, 12) + `"rm -rf /"` + strings.Repeat("}", 12)
	list := strings.TrimSuffix(strings.Repeat(`"safe",`, 60), ",")
	id := o.hold(t, held{args: `{"command":"` + script + `","deep":` + nested + `,"list":[` + list + `,"format c:"],"line":"` + strings.Repeat("a", 900) + `; reboot"}`})
	page := alice.get("/approvals/" + string(id))
	mustHave(t, unfolded(page), "DROP TABLE customers", "rm -rf /", "format c:", "; reboot")
	mustLack(t, page, "<details>", `class="fold"`, `id="unread"`)
	if status, page := alice.decide(id, "approve", ""); status != http.StatusOK || !strings.Contains(page, "Approved by alice") {
		t.Errorf("approve: status %d, want 200", status)
	}
}

// TestLongNamesShownWhole checks that the name of a call is shown whole. If it does not fit,
// the approver must confirm to approve without reading it.
func TestLongNamesShownWhole(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
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
				t.Errorf("%s name with %s needs a confirmation: %t", name, args, noted)
			}
		}
	}
}

// TestUnreadConfirmationOnSmallCall checks that an approver can confirm to approve without
// reading the folded part of a small call.
func TestUnreadConfirmationOnSmallCall(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{args: `{"script":"` + strings.Repeat(`step\n`, 200) + `"}`})
	path := "/approvals/" + string(id)
	said := regexp.MustCompile(`name="unread" value="(\d+)"`).FindStringSubmatch(alice.get(path))
	if said == nil {
		t.Fatal("the page has no folded part")
	}
	status, answer := alice.decideSeeing(path, id, "approve", url.Values{"unread": {said[1]}})
	if status != http.StatusOK || !strings.Contains(answer, "Approved by alice") {
		t.Errorf("approve with the confirmation: status %d, want 200", status)
	}
}

// TestUnreadNeedsConfirmation checks that a long value shows its first and last lines. An
// approver must open the rest, or confirm to approve without reading it.
func TestUnreadNeedsConfirmation(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
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
		t.Errorf("approve without the confirmation: status %d, want 409", status)
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
	if a, err := o.approvals.Viewer().Show(t.Context(), id); err != nil || a.State != task.InputRequired {
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
		t.Errorf("approve in the view of everything: status %d, want 200", status)
	}
	if got := unreadOf(t, o, id); got != "0" {
		t.Errorf("the journal has %s bytes not read, want 0", got)
	}

	// A rejection needs no confirmation.
	id, _ = hold("c")
	if status, answer := alice.decide(id, "reject", ""); status != http.StatusOK || !strings.Contains(answer, "Rejected by alice") {
		t.Errorf("reject: status %d, want 200", status)
	}
}

// unreadOf returns the number of unread bytes in the journal entry of an approval.
func unreadOf(t *testing.T, o *fixture, id task.ID) string {
	t.Helper()
	story, err := o.approvals.Viewer().History(t.Context(), id)
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

// bytesOf returns a number of bytes as pages show it.
func bytesOf(text string) string {
	n, err := strconv.Atoi(text)
	if err != nil {
		return text
	}
	return fmt.Sprintf("%.1f KB", float64(n)/1000)
}

// decide decides with the digest of the whole call.
func decide(ctx context.Context, approvals *approval.Service, id task.ID, who approval.Approver, what approval.Decision, reason string) (task.Task, error) {
	r := approval.Ruling{Decision: what, Reason: reason}
	if shown, err := approvals.Viewer().ShowAll(ctx, id); err == nil {
		r.Shown = shown.ShownDigest
	}
	return approvals.Decide(ctx, id, who, r)
}

// TestUnreadInViewOfEverything checks a call that is too long for the view of everything: the
// approver must confirm the number of bytes that this view leaves out. The number of the
// default view does not count there.
func TestUnreadInViewOfEverything(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{args: `{"text":"` + strings.Repeat("p\u0430y ", 60_000) + `"}`})
	path := "/approvals/" + string(id)
	unread := regexp.MustCompile(`name="unread" value="(\d+)"`)
	short, whole := unread.FindStringSubmatch(alice.get(path)), unread.FindStringSubmatch(alice.get(path+"?view=all"))
	if short == nil || whole == nil || short[1] == whole[1] {
		t.Fatalf("unread: %v in the default view, %v in the view of everything", short, whole)
	}
	page := alice.get(path + "?view=all")
	mustHave(t, page, "The first part of what will be sent", "more are not on this page", `name="view" value="all"`, `name="read" value=""`)
	if len(page) > 16<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
	for _, form := range []url.Values{{"view": {"all"}}, {"view": {"all"}, "unread": {short[1]}}, {"unread": {whole[1]}}} {
		if status, _ := alice.decideSeeing(path, id, "approve", form); status != http.StatusConflict {
			t.Errorf("approved with %v: %d", form, status)
		}
	}
	status, answer := alice.decideSeeing(path, id, "approve", url.Values{"view": {"all"}, "unread": {whole[1]}})
	if status != http.StatusOK || !strings.Contains(answer, "Approved by alice") {
		t.Errorf("approved without reading %s: %d", whole[1], status)
	}
}
