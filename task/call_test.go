package task_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// TestIDsAreUnguessable covers F-002.1: an id cannot be guessed. Ids sort by time, and contain no other
// information.
func TestIDsAreUnguessable(t *testing.T) {
	form := regexp.MustCompile(`^tg_[0-9a-hjkmnp-tv-z]{36}$`)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	begin := string(task.NewID(at)[:12])
	seen := make(map[task.ID]bool)
	var letters [36]map[byte]bool
	for i := range letters {
		letters[i] = make(map[byte]bool)
	}
	for range 10_000 {
		id := task.NewID(at)
		if !form.MatchString(string(id)) || !id.Own() || seen[id] || !strings.HasPrefix(string(id), begin) {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
		for i := range letters {
			letters[i][id[3+i]] = true
		}
	}
	for i, found := range letters[9:] { // 27 characters of 5 bits are 135 bits
		if len(found) != 32 {
			t.Errorf("character %d is one of %d; want 32", 9+i, len(found))
		}
	}
}

// TestIDsSortByTime checks that ids sort by the millisecond of their creation.
func TestIDsSortByTime(t *testing.T) {
	last := task.ID("")
	for _, at := range []time.Time{
		{},
		time.UnixMilli(1), time.UnixMilli(31), time.UnixMilli(32), time.UnixMilli(1023), time.UnixMilli(1024),
		time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 0, 0, 0, 1_000_000, time.UTC),
		time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(3084, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		if id := task.NewID(at); id[:12] <= last[:min(12, len(last))] {
			t.Errorf("%s of %v is not after %s", id, at, last)
		} else {
			last = id
		}
	}
}

// TestShortIDsDiffer checks that short ids of tasks of the same moment differ, also for ids of earlier
// versions.
func TestShortIDsDiffer(t *testing.T) {
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	seen := make(map[task.ID]bool)
	for range 20 {
		seen[task.NewID(at).Short()] = true
	}
	if len(seen) != 20 { // each of 190 pairs is equal once in a million
		t.Errorf("%d of 20 short ids are distinct", len(seen))
	}
	for id, want := range map[task.ID]task.ID{
		"tg_786512e2-9e0d-44bd-8f29-789f320fe840": "tg_786512e2", "tg_1": "tg_1", "": "",
	} {
		if got := id.Short(); got != want {
			t.Errorf("short id of %s is %s; want %s", id, got, want)
		}
	}
}

func TestOwnIDs(t *testing.T) {
	for id, want := range map[task.ID]bool{
		"tg_": true, "tg_nonsense": true, "": false, "tg": false, "TG_1": false, "786512e2-9e0d-44bd-8f29-789f320fe840": false,
	} {
		if got := id.Own(); got != want {
			t.Errorf("%q is an id of this program: %v; want %v", id, got, want)
		}
	}
}

// TestOnlyEqualCallsHaveEqualDigests covers GOV-001 F-002.3: only equal calls have equal digests.
func TestOnlyEqualCallsHaveEqualDigests(t *testing.T) {
	digest := func(c task.Call) task.Digest {
		t.Helper()
		d, err := c.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	call := func(arguments string) task.Call {
		return task.Call{Upstream: "files", Method: "tools/call", Name: "rm", Arguments: arguments, Message: "whatever"}
	}

	// The exact bytes that are hashed.
	sum := sha256.Sum256([]byte("\x00\x00\x00\x00\x00\x00\x00\x05files\x00\x00\x00\x00\x00\x00\x00\x0atools/call" +
		"\x00\x00\x00\x00\x00\x00\x00\x02rm\x00\x00\x00\x00\x00\x00\x00\x10{\"a\":1,\"b\":\"\u00e9\"}"))
	if got, want := digest(call(`{"b":"\u00e9", "a":1}`)).String(), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("digest %s; want %s", got, want)
	}

	same := [][]string{
		{`{"a":1,"b":{"c":[1, 2],"d":null}}`, `{"b":{"d":null,"c":[1,2]},"a":1}`, "{\n\t\"a\" : 1, \"b\":{\"c\":[1,2],\"d\":null} }"},
		{`{"é":"/\n"}`, `{"\u00e9":"\/\u000a"}`, `{"\u00E9":"\u002F\n"}`},
		{`["😀"]`, `["\ud83d\ude00"]`, `[ "\uD83D\uDE00" ]`},
		{``},
		{`{}`},
		{`null`},
		{`1`},
		{`1.0`},
		{`1e0`},
		{`1E0`},
		{`-0`},
		{`0`},
		{`9007199254740993`},
		{`9007199254740992`},
		{`"1"`},
		{`[1,2]`},
		{`[2,1]`},
		{`{"A":1}`},
		{`{"a":1}`},
	}
	seen := make(map[task.Digest]int)
	for group, spellings := range same {
		for _, s := range spellings {
			d := digest(call(s))
			if other, known := seen[d]; known && other != group {
				t.Errorf("%s has the digest of group %d", s, other)
			}
			if s != spellings[0] && d != digest(call(spellings[0])) {
				t.Errorf("%s and %s have different digests", s, spellings[0])
			}
			seen[d] = group
		}
	}

	// The parts of a call are separated in the hash.
	a := task.Call{Upstream: "a", Method: "bc"}
	b := task.Call{Upstream: "ab", Method: "c"}
	c := task.Call{Upstream: "ab", Name: "c"}
	if digest(a) == digest(b) || digest(b) == digest(c) {
		t.Error("bytes can move between parts of a call")
	}
	for _, bad := range []string{`{`, `{"a":1,"a":2}`, `{"a":{"x":1,"\u0078":1}}`, "\"\xff\"", `1 2`, `{"a":"\ud800"}`} {
		if _, err := call(bad).Digest(); err == nil {
			t.Errorf("%q has a digest", bad)
		}
	}
}

// TestDigestProperties checks that the order of members does not change the digest, and that
// each change of a value does.
func TestDigestProperties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		members := rapid.MapOfN(rapid.StringMatching(`[a-z]{1,4}`), rapid.SampledFrom([]string{"1", "1.0", `"x"`, "null", "[1]"}), 1, 6).Draw(r, "members")
		names := rapid.Permutation(keys(members)).Draw(r, "order")
		write := func(names []string, replace string) task.Digest {
			var b bytes.Buffer
			for i, name := range names {
				b.WriteString([]string{"{", ","}[min(i, 1)] + `"` + name + `":`)
				if name == replace {
					b.WriteString("true")
				} else {
					b.WriteString(members[name])
				}
			}
			d, err := task.Call{Arguments: b.String() + "}"}.Digest()
			if err != nil {
				r.Fatal(err)
			}
			return d
		}
		if write(names, "") != write(keys(members), "") {
			r.Fatal("order matters")
		}
		if write(names, "") == write(names, names[0]) {
			r.Fatal("a changed value does not matter")
		}
	})
}

func keys(m map[string]string) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	return all
}

func TestDigestText(t *testing.T) {
	d, err := draft("", "").Call.Digest()
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var back task.Digest
	if err := back.UnmarshalText(text); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, back); diff != "" || string(text) != d.String() {
		t.Errorf("text %s (-want +got):\n%s", text, diff)
	}
	for _, bad := range []string{"", "00", string(text[1:]), "g" + string(text[1:])} {
		if err := back.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a digest", bad)
		}
	}
}

// An ID, and its beginning, tell when it was made. IDs of earlier versions do not.
func TestIDHasItsTime(t *testing.T) {
	at := time.Date(2026, 11, 19, 12, 30, 1, 5e6, time.UTC)
	id := task.NewID(at)
	for _, one := range []task.ID{id, id.Short(), id[:12]} {
		if got, ok := one.Time(); !ok || !got.Equal(at) {
			t.Errorf("%s has the time %v, %v; want %v", one, got, ok, at)
		}
	}
	for _, other := range []task.ID{"", "tg_", id[:11], id[3:], "tg_0b6f4a1e-86f1-4d9c-8f5e-2a3b4c5d6e7f"} {
		if got, ok := other.Time(); ok {
			t.Errorf("%q has the time %v", other, got)
		}
	}
}
