package task_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// TestNewID covers F-002.1: ids are UUIDs of version 4.
func TestNewID(t *testing.T) {
	form := regexp.MustCompile(`^tg_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[task.ID]bool)
	for range 1000 {
		id := task.NewID()
		if !form.MatchString(string(id)) || !id.Own() || seen[id] {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}

func TestOwn(t *testing.T) {
	for id, want := range map[task.ID]bool{
		"tg_": true, "tg_nonsense": true, "": false, "tg": false, "TG_1": false, "786512e2-9e0d-44bd-8f29-789f320fe840": false,
	} {
		if got := id.Own(); got != want {
			t.Errorf("%q is ours: %v; want %v", id, got, want)
		}
	}
}

// TestDigest covers GOV-001 F-002.3: equal calls have equal digests, others have not.
func TestDigest(t *testing.T) {
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

	// The bytes that are hashed, written out once.
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

	// No part can reach over into the next.
	a := task.Call{Upstream: "a", Method: "bc"}
	b := task.Call{Upstream: "ab", Method: "c"}
	c := task.Call{Upstream: "ab", Name: "c"}
	if digest(a) == digest(b) || digest(b) == digest(c) {
		t.Error("parts of a call run into each other")
	}
	for _, bad := range []string{`{`, `{"a":1,"a":2}`, `{"a":{"x":1,"\u0078":1}}`, "\"\xff\"", `1 2`, `{"a":"\ud800"}`} {
		if _, err := call(bad).Digest(); err == nil {
			t.Errorf("%q has a digest", bad)
		}
	}
}

// TestDigestProperties checks that the order of members never matters, and
// that any change of a value does.
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
