package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/passkey"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/softkey"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// written returns a journal with n entries, one for each second.
func written(t *testing.T, n int) *memstore.Store {
	t.Helper()
	s := memstore.New(memstore.Options{MaxEntries: 100_000})
	t.Cleanup(func() { s.Close() })
	notes := make([]task.Note, n)
	for i := range notes {
		notes[i] = task.Note{
			At: epoch.Add(time.Duration(i) * time.Second), Task: task.ID(fmt.Sprint("tg_", i/10)), Step: "held",
			Tool: fmt.Sprint("tool", i%3), Requester: fmt.Sprint("ann", i%5), Approver: fmt.Sprint("bob", i%7), Grant: gatetask.GrantID(fmt.Sprintf("gr_%d%x", i%3, i%11)),
		}
	}
	if err := s.Append(t.Context(), notes...); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFindSelectsAndPages(t *testing.T) {
	s := written(t, 25_000)
	for name, c := range map[string]struct {
		filter audit.Filter
		want   func(i int) bool
	}{
		"everything":  {audit.Filter{Limit: 1000}, func(int) bool { return true }},
		"a task":      {audit.Filter{Task: "tg_7"}, func(i int) bool { return i/10 == 7 }},
		"a tool":      {audit.Filter{Tool: "tool1", Limit: 999}, func(i int) bool { return i%3 == 1 }},
		"a requester": {audit.Filter{Requester: "ann4"}, func(i int) bool { return i%5 == 4 }},
		"an approver": {audit.Filter{Approver: "bob2"}, func(i int) bool { return i%7 == 2 }},
		"a grant":     {audit.Filter{Grant: "gr_29"}, func(i int) bool { return i%3 == 2 && i%11 == 9 }},
		"a short id":  {audit.Filter{Grant: "gr_1", Limit: 999}, func(i int) bool { return i%3 == 1 }},
		"all of them": {audit.Filter{Task: "tg_7", Tool: "tool1", Requester: "ann3", Approver: "bob3"}, func(i int) bool { return i == 73 }},
		"times":       {audit.Filter{Since: epoch.Add(24_990 * time.Second), Until: epoch.Add(24_995 * time.Second)}, func(i int) bool { return i >= 24_990 && i < 24_995 }},
		"the rest":    {audit.Filter{After: 24_998}, func(i int) bool { return i >= 24_998 }},
		"nothing":     {audit.Filter{Tool: "none"}, func(int) bool { return false }},
	} {
		var want, got []int64
		for i := range 25_000 {
			if c.want(i) {
				want = append(want, int64(i)+1)
			}
		}
		pages := 0
		find := func(ctx context.Context, f audit.Filter) (audit.Page, error) {
			pages++
			page, err := audit.Find(ctx, s, f)
			if most := max(f.Limit, 100); len(page.Entries) > most {
				t.Errorf("%s: a page has %d entries", name, len(page.Entries))
			}
			return page, err
		}
		for e, err := range audit.All(t.Context(), find, c.filter) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Seq)
		}
		if !slices.Equal(want, got) {
			t.Errorf("%s: found %d entries; want %d", name, len(got), len(want))
		}
		if name == "nothing" && pages < 3 {
			t.Errorf("one page read the whole journal")
		}
	}
	s.Close()
	for _, err := range audit.All(t.Context(), func(ctx context.Context, f audit.Filter) (audit.Page, error) { return audit.Find(ctx, s, f) }, audit.Filter{}) {
		if !errors.Is(err, task.ErrClosed) {
			t.Errorf("err = %v", err)
		}
	}
}

// A forged source returns forged entries and ends.
type forged struct {
	entries []auditlog.Entry
	ends    auditlog.Ends
}

func (f *forged) Ends(context.Context) (auditlog.Ends, error) { return f.ends, nil }

func (f *forged) Entries(_ context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	var page []auditlog.Entry
	for _, e := range f.entries {
		if e.Seq > q.After && len(page) < 3 {
			page = append(page, e)
		}
	}
	return page, nil
}

func whole(t *testing.T, s auditlog.Journal) *forged {
	t.Helper()
	entries, err := s.Entries(t.Context(), auditlog.Query{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	ends, err := s.Ends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &forged{entries, ends}
}

// TestVerifyDetectsTampering tampers with a journal of ten entries of which two were trimmed.
func TestVerifyDetectsTampering(t *testing.T) {
	s := written(t, 12)
	beginning := whole(t, s).entries
	if n, err := s.Trim(t.Context(), epoch.Add(2*time.Second), 10); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	head := whole(t, s).ends.Head
	forge := func(at auditlog.Link) auditlog.Entry { return at.Next(task.Note{At: epoch, Step: "forged"}) }
	tests := map[string]struct {
		tamper func(f *forged)
		known  auditlog.Link
		want   []string
	}{
		"nothing":           {func(*forged) {}, auditlog.Link{}, nil},
		"nothing, with it":  {func(*forged) {}, head, nil},
		"an earlier head":   {func(*forged) {}, beginning[4].Link(), nil},
		"the anchor":        {func(*forged) {}, beginning[1].Link(), nil},
		"a trimmed head":    {func(*forged) {}, beginning[0].Link(), []string{"entry 1 cannot be compared with the given head: it was trimmed"}},
		"changed":           {func(f *forged) { f.entries[3].Reason = "x" }, auditlog.Link{}, []string{"entry 6 was changed"}},
		"changed, hash too": {func(f *forged) { f.entries[3] = forge(f.entries[2].Link()) }, auditlog.Link{}, []string{"entry 7 does not follow"}},
		"removed":           {func(f *forged) { f.entries = slices.Delete(f.entries, 3, 5) }, auditlog.Link{}, []string{"entries 6 to 7 are missing"}},
		"removed, first":    {func(f *forged) { f.entries = f.entries[1:] }, auditlog.Link{}, []string{"entry 3 is missing"}},
		"removed, last":     {func(f *forged) { f.entries = f.entries[:8] }, auditlog.Link{}, []string{"entry 10 is the last one, but the audit log ends with 12"}},
		"removed, all":      {func(f *forged) { f.entries = nil }, auditlog.Link{}, []string{"entry 2 is the last one, but the audit log ends with 12"}},
		"reordered": {func(f *forged) {
			f.entries[3].Note, f.entries[4].Note = f.entries[4].Note, f.entries[3].Note
		}, auditlog.Link{}, []string{"entry 6 was changed", "entry 7 was changed"}},
		"inserted, last":      {func(f *forged) { f.entries = append(f.entries, forge(head)) }, auditlog.Link{}, []string{"entry 13 was added later"}},
		"inserted, first":     {func(f *forged) { f.entries = slices.Insert(f.entries, 0, beginning[1]) }, auditlog.Link{}, []string{"entry 2 comes after entry 2"}},
		"inserted, the other": {func(f *forged) { f.entries[9] = forge(f.entries[8].Link()) }, auditlog.Link{}, []string{"entry 12 differs from the last entry of the audit log"}},
		"the end, and the head with it": {func(f *forged) {
			f.entries = f.entries[:8]
			f.ends.Head = f.entries[7].Link()
		}, head, []string{"entry 12, the given head, is missing: the end was removed"}},
		"all written anew": {func(f *forged) {
			at := f.ends.Anchor
			for i := range f.entries {
				f.entries[i] = forge(at)
				at = f.entries[i].Link()
			}
			f.ends.Head = at
		}, head, []string{"entry 12: its hash is"}},
		"the anchor, too": {func(f *forged) { f.ends.Anchor = beginning[2].Link() }, auditlog.Link{}, []string{"entry 3 comes after entry 3"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := whole(t, s)
			tt.tamper(f)
			r, err := audit.Verify(t.Context(), f, tt.known)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Problems) != len(tt.want) || r.OK() != (tt.want == nil) {
				t.Fatalf("problems = %q; want %q", r.Problems, tt.want)
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(r.Problems[i], want) {
					t.Errorf("problem = %q; want %q", r.Problems[i], want)
				}
			}
		})
	}
}

// A moving journal gets new entries and is trimmed while it is read.
type moving struct {
	audit.Source
	store   *memstore.Store
	entries int
}

func (m *moving) Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	q.Limit = 10
	page, err := m.store.Entries(ctx, q)
	if m.entries++; m.entries == 3 || m.entries == 11 {
		_, trimmed := m.store.Trim(ctx, epoch.Add(60*time.Second), 1000)
		added := m.store.Append(ctx, task.Note{At: epoch, Step: "more"})
		err = errors.Join(err, trimmed, added)
	}
	return page, err
}

func TestVerifyDuringChanges(t *testing.T) {
	s := written(t, 100)
	r, err := audit.Verify(t.Context(), &moving{s, s, 0}, auditlog.Link{})
	if err != nil || !r.OK() || r.Head.Seq != 102 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestLines(t *testing.T) {
	want := whole(t, written(t, 5)).entries
	var file []byte
	for _, e := range want {
		var err error
		if file, err = audit.AppendLine(file, e); err != nil {
			t.Fatal(err)
		}
	}
	var got []auditlog.Entry
	for e, err := range audit.Lines(bytes.NewReader(file)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	lines := strings.SplitAfter(string(file), "\n")[:5]
	head := want[4].Link()
	for name, c := range map[string]struct {
		lines   []string
		known   auditlog.Link
		problem string
	}{
		"whole":       {lines, head, ""},
		"a part":      {lines[2:], head, ""},
		"changed":     {[]string{lines[0], strings.Replace(lines[1], "ann1", "eve1", 1), lines[2]}, auditlog.Link{}, "entry 2 was changed"},
		"removed":     {[]string{lines[0], lines[2]}, auditlog.Link{}, "entry 2 is missing"},
		"reordered":   {[]string{lines[1], lines[0]}, auditlog.Link{}, "entry 1 comes after entry 2"},
		"inserted":    {[]string{lines[0], lines[0], lines[1]}, auditlog.Link{}, "entry 1 comes after entry 1"},
		"truncated":   {lines[:4], head, "entry 5, the given head, is missing"},
		"not noticed": {lines[:4], auditlog.Link{}, ""}, // the missing end is detected only with a head
	} {
		r, err := audit.VerifyLines(strings.NewReader(strings.Join(c.lines, "")), c.known)
		if err != nil || r.OK() != (c.problem == "") || !r.OK() && !strings.HasPrefix(r.Problems[0], c.problem) {
			t.Errorf("%s: %q, %v; want %q", name, r.Problems, err, c.problem)
		}
	}
	for _, bad := range []string{"", "\n", "{", `{"seq":1,"arguments":{}}` + "\n", lines[0] + "x\n", lines[0][:40]} {
		if r, err := audit.VerifyLines(strings.NewReader(bad), auditlog.Link{}); err == nil {
			t.Errorf("%q: %+v", bad, r)
		}
	}
}

func TestProblemsLimited(t *testing.T) {
	f := whole(t, written(t, 100))
	for i := range f.entries {
		f.entries[i].Reason = "x"
	}
	r, err := audit.Verify(t.Context(), f, auditlog.Link{})
	if err != nil || len(r.Problems) != 20 || r.More != 80 || r.Entries != 100 {
		t.Errorf("%d problems and %d more, %v", len(r.Problems), r.More, err)
	}
}

// Verify checks the signature of each approval, and whose passkey made it.
func TestVerifySignatures(t *testing.T) {
	k := softkey.New(t, "http://localhost:1", "localhost")
	at := passkey.Site{Origin: "http://localhost:1", ID: "localhost"}
	for name, tt := range map[string]struct {
		change func(decided *task.Note, s *gatetask.Signature)
		want   string
	}{
		"unchanged":          {func(*task.Note, *gatetask.Signature) {}, ""},
		"another call":       {func(n *task.Note, _ *gatetask.Signature) { n.ArgumentDigest = task.Digest{9} }, "the approver has signed something else"},
		"another task":       {func(n *task.Note, _ *gatetask.Signature) { n.Task = "t2" }, "the approver has signed something else"},
		"another approver":   {func(n *task.Note, _ *gatetask.Signature) { n.Approver = "bob" }, "the approver has signed something else"},
		"bytes unread":       {func(n *task.Note, _ *gatetask.Signature) { n.UnreadBytes = 1 }, "the approver has signed something else"},
		"another statement":  {func(_ *task.Note, s *gatetask.Signature) { s.Statement.Shown = "s2" }, "the signature of the passkey does not count: error validating challenge"},
		"an unknown passkey": {func(_ *task.Note, s *gatetask.Signature) { s.Credential = []byte("x") }, "nobody has added the passkey that signed it"},
		"another key":        {func(_ *task.Note, s *gatetask.Signature) { s.Key = append([]byte("x"), s.Key...) }, "another operator has added the passkey that signed it"},
	} {
		t.Run(name, func(t *testing.T) {
			s := memstore.New(memstore.Options{})
			t.Cleanup(func() { s.Close() })
			keys := passkey.Store{Records: s, Journal: s, Now: time.Now}
			code, err := keys.First(t.Context(), "localhost", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			created := k.Create(t, fmt.Appendf(nil, `{"challenge":%q}`, passkey.ToCreate("alice", "").String()))
			if err := keys.Add(t.Context(), passkey.Request{Operator: "alice", Site: at, Created: created, Code: code}); err != nil {
				t.Fatal(err)
			}
			about := gatetask.Statement{Task: "t1", Call: task.Digest{1}.String(), Shown: "s1", Approver: "alice"}
			signed, err := keys.Sign(t.Context(), k.Sign(t, fmt.Appendf(nil, `{"challenge":%q}`, passkey.ToApprove(about).String())), at, about)
			if err != nil {
				t.Fatal(err)
			}
			decided := task.Note{At: time.Now(), Task: "t1", Step: "decided", Approver: "alice", ArgumentDigest: task.Digest{1}, Passkey: &signed}
			tt.change(&decided, &signed)
			if err := s.Append(t.Context(), decided); err != nil {
				t.Fatal(err)
			}
			r, err := audit.Verify(t.Context(), s, auditlog.Link{})
			if err != nil || r.OK() != (tt.want == "") || r.Signatures != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
			if tt.want != "" && r.Problems[0] != "entry 2: "+tt.want {
				t.Errorf("the problem is %q", r.Problems[0])
			}
		})
	}
}

// Verify follows whose passkeys are, from the beginning of the log. Of signatures by passkeys from before the
// first entry it knows only that they fit their keys, and says how many there are.
func TestVerifyPasskeys(t *testing.T) {
	k := softkey.New(t, "http://localhost:1", "localhost")
	at := passkey.Site{Origin: "http://localhost:1", ID: "localhost"}
	source := memstore.New(memstore.Options{})
	t.Cleanup(func() { source.Close() })
	keys := passkey.Store{Records: source, Journal: source, Now: time.Now}
	code, err := keys.First(t.Context(), "localhost", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	created := k.Create(t, fmt.Appendf(nil, `{"challenge":%q}`, passkey.ToCreate("alice", "").String()))
	if err := keys.Add(t.Context(), passkey.Request{Operator: "alice", Site: at, Created: created, Code: code}); err != nil {
		t.Fatal(err)
	}
	about := gatetask.Statement{Task: "t1", Call: task.Digest{1}.String(), Shown: "s1", Approver: "alice"}
	signed, err := keys.Sign(t.Context(), k.Sign(t, fmt.Appendf(nil, `{"challenge":%q}`, passkey.ToApprove(about).String())), at, about)
	if err != nil {
		t.Fatal(err)
	}
	change := func(step, who string, key []byte) task.Note {
		return task.Note{At: time.Now(), Step: step, Actor: who, Approver: who, Passkey: &gatetask.Signature{Credential: signed.Credential, Key: key, Site: "localhost"}}
	}
	decided := task.Note{At: time.Now().Add(time.Hour), Task: "t1", Step: "decided", Approver: "alice", ArgumentDigest: task.Digest{1}, Passkey: &signed}
	added, removed := change(auditlog.PasskeyAdded, "alice", signed.Key), change(auditlog.PasskeyRemoved, "alice", signed.Key)
	soon := decided
	soon.At = time.Now()
	for name, tt := range map[string]struct {
		notes    []task.Note
		omit     int
		problems int
		unknown  int
	}{
		"added and removed":           {[]task.Note{added, decided, removed}, 0, 0, 0},
		"written twice":               {[]task.Note{added, added, decided}, 0, 0, 0}, // the store failed after the first
		"added to another":            {[]task.Note{added, change(auditlog.PasskeyAdded, "bob", []byte("x")), decided}, 0, 1, 0},
		"removed while it signed":     {[]task.Note{added, removed, soon}, 0, 0, 0},
		"added again":                 {[]task.Note{added, removed, added, decided}, 0, 2, 0},
		"added before the log begins": {[]task.Note{added, decided, removed}, 1, 0, 1},
		"removed in a trimmed log":    {[]task.Note{added, removed, decided}, 1, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := memstore.New(memstore.Options{})
			t.Cleanup(func() { s.Close() })
			if err := s.Append(t.Context(), tt.notes...); err != nil {
				t.Fatal(err)
			}
			entries, err := s.Entries(t.Context(), auditlog.Query{})
			var lines []byte
			for _, e := range entries[tt.omit:] {
				if err == nil {
					lines, err = audit.AppendLine(lines, e)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			r, err := audit.VerifyLines(strings.NewReader(string(lines)), auditlog.Link{})
			if err != nil || len(r.Problems) != tt.problems || r.Signatures != 1 || r.Unknown != tt.unknown {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
