package jsonrpc_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func edited(e jsonrpc.MemberEdit, object string) (string, error) {
	var out bytes.Buffer
	src := iotest.HalfReader(strings.NewReader(object))
	if len(object) < 1000 {
		src = iotest.OneByteReader(src)
	}
	err := e.Copy(&out, src)
	return out.String(), err
}

func TestMemberEdit(t *testing.T) {
	set := jsonrpc.MemberEdit{Outer: "_meta", Inner: "k", JSON: []byte(`{"v":1}`)}
	take := jsonrpc.MemberEdit{Outer: "_meta", Inner: "k"}
	tests := []struct{ in, set, taken string }{
		{`{}`, `{"_meta":{"k":{"v":1}}}`, `{}`},
		{` { } `, ` { "_meta":{"k":{"v":1}}} `, ` { } `},
		{`{"a":1}`, `{"a":1,"_meta":{"k":{"v":1}}}`, `{"a":1}`},
		{`{"a":{"_meta":{"k":2}}}`, `{"a":{"_meta":{"k":2}},"_meta":{"k":{"v":1}}}`, `{"a":{"_meta":{"k":2}}}`},
		{`{"_meta":{}}`, `{"_meta":{"k":{"v":1}}}`, `{"_meta":{}}`},
		{`{"_meta":{"x":{"k":1}},"a":1}`, `{"_meta":{"x":{"k":1},"k":{"v":1}},"a":1}`, `{"_meta":{"x":{"k":1}},"a":1}`},
		{`{"_meta":{"k":"old"}}`, `{"_meta":{"k":{"v":1}}}`, `{"_meta":{}}`},
		{`{"_meta":{"k":[1,{"k":2}],"x":1}}`, `{"_meta":{"k":{"v":1},"x":1}}`, `{"_meta":{"x":1}}`},
		{`{"_meta":{"x":1,"k":3}}`, `{"_meta":{"x":1,"k":{"v":1}}}`, `{"_meta":{"x":1}}`},
		{`{"_meta":{"x":1,"\u006b":3,"y":2}}`, `{"_meta":{"x":1,"\u006b":{"v":1},"y":2}}`, `{"_meta":{"x":1,"y":2}}`},
		{`{"_meta":null,"a":1}`, `{"_meta":{"k":{"v":1}},"a":1}`, `{"_meta":null,"a":1}`},
		{`{"_meta":[{"k":1}]}`, `{"_meta":{"k":{"v":1}}}`, `{"_meta":[{"k":1}]}`},
		{`{"_meta":"text","b":[]}`, `{"_meta":{"k":{"v":1}},"b":[]}`, `{"_meta":"text","b":[]}`},
	}
	for _, tt := range tests {
		if got, err := edited(set, tt.in); err != nil || got != tt.set {
			t.Errorf("%s with the member: %s, %v", tt.in, got, err)
		}
		if got, err := edited(take, tt.in); err != nil || got != tt.taken {
			t.Errorf("%s without the member: %s, %v", tt.in, got, err)
		}
	}
	for _, bad := range []string{``, `[]`, `5`, `{`, `{"a":1}}`, `{"_meta":{"x":1,}}`, `{"_meta":{"k":1`} {
		for _, e := range []jsonrpc.MemberEdit{set, take} {
			if got, err := edited(e, bad); err == nil {
				t.Errorf("%q was accepted as %q", bad, got)
			} else if _, ok := errors.AsType[*jsonrpc.ParseError](err); !ok {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
}

// A MemberEdit makes the same change as a Patch, for an object of any size.
func TestMemberEditProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		filler := strings.Repeat("é\\n", rapid.SampledFrom([]int{0, 1, 20 << 10, 50 << 10}).Draw(t, "filler"))
		value := rapid.SampledFrom([]string{`1`, `"` + filler + `"`, `{"k":1}`, `[["k"]]`, ` null`, `{}`})
		members := rapid.Permutation([]string{`"a"`, `"k"`, ` "b" `, "\n\"c\""}).Draw(t, "members")
		members = members[:rapid.IntRange(0, len(members)).Draw(t, "count")]
		for i := range members {
			members[i] += ":" + value.Draw(t, "value")
		}
		meta := "{" + strings.Join(members, ", ") + "}"
		top := rapid.Permutation([]string{`"x":` + value.Draw(t, "x"), `"_meta":` + meta, `"y":"` + filler + `"`}).Draw(t, "top")
		object := "{" + strings.Join(top, ",") + "}"

		got, err := edited(jsonrpc.MemberEdit{Outer: "_meta", Inner: "k", JSON: []byte(`{"v":1}`)}, object)
		whole := jsonrpc.Value{Bytes: []byte(object)}
		var p jsonrpc.Patch
		p.Set(whole.Member("_meta"), "k", []byte(`{"v":1}`))
		if want := compact(t, string(p.Apply([]byte(object)))); err != nil || compact(t, got) != want {
			t.Fatalf("set: %v (-want +got):\n%s", err, cmp.Diff(want, got))
		}

		got, err = edited(jsonrpc.MemberEdit{Outer: "_meta", Inner: "k"}, object)
		var without jsonrpc.Patch
		without.Replace(whole.Member("_meta"), whole.Member("_meta").Without("k"))
		if want := compact(t, string(without.Apply([]byte(object)))); err != nil || compact(t, got) != want {
			t.Fatalf("taken out: %v (-want +got):\n%s", err, cmp.Diff(want, got))
		}
	})
}

func compact(t *rapid.T, text string) string {
	v := jsontext.Value(text)
	if err := v.Compact(); err != nil {
		t.Fatalf("%.100s is not JSON: %v", text, err)
	}
	return string(v)
}

func FuzzMemberEdit(f *testing.F) {
	for _, seed := range []string{`{}`, `{"_meta":{"k":1,"x":2},"a":[]}`, `{"_meta":null}`, `{"_meta":{"x":1,"k":{"k":2},"y":3}}`, `{"a":{"_meta":{"k":1}}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, object string) {
		set, err := edited(jsonrpc.MemberEdit{Outer: "_meta", Inner: "k", JSON: []byte(`7`)}, object)
		taken, err2 := edited(jsonrpc.MemberEdit{Outer: "_meta", Inner: "k"}, object)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%q: %v, but %v", object, err, err2)
		}
		if err != nil || !jsontext.Value(object).IsValid() {
			return
		}
		if got := (jsonrpc.Value{Bytes: bytes.TrimSpace([]byte(set))}); !jsontext.Value(set).IsValid() || string(got.Member("_meta").Member("k").Bytes) != "7" {
			t.Errorf("%q became %q", object, set)
		}
		if got := (jsonrpc.Value{Bytes: bytes.TrimSpace([]byte(taken))}); !jsontext.Value(taken).IsValid() || got.Member("_meta").Member("k").Present() {
			t.Errorf("%q became %q", object, taken)
		}
	})
}
