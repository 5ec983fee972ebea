package jsonrpc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// argument returns text as a value of a message, and the message.
func argument(t testing.TB, text string) (jsonrpc.Value, string) {
	t.Helper()
	in := string(callWith(text))
	return mustParseOne(t, in).Params.Arguments, in
}

func TestValueKinds(t *testing.T) {
	tests := []struct{ json, want string }{
		{`null`, "present null"},
		{`{}`, "present object"},
		{`[]`, "present array"},
		{`""`, "present string"},
		{`"null"`, "present string"},
		{`0`, "present"},
		{`true`, "present true"},
		{`"true"`, "present string"},
		{`false`, "present"},
	}
	kinds := func(v jsonrpc.Value) string {
		var is []string
		for _, k := range []struct {
			name string
			is   bool
		}{{"present", v.Present()}, {"null", v.IsNull()}, {"true", v.IsTrue()}, {"object", v.IsObject()}, {"array", v.IsArray()}, {"string", v.IsString()}} {
			if k.is {
				is = append(is, k.name)
			}
		}
		return strings.Join(is, " ")
	}
	for _, tt := range tests {
		if v, _ := argument(t, tt.json); kinds(v) != tt.want {
			t.Errorf("%s is %q, want %q", tt.json, kinds(v), tt.want)
		}
	}
	if got := kinds(jsonrpc.Value{}); got != "" {
		t.Errorf("the zero Value is %q", got)
	}
}

func TestValueText(t *testing.T) {
	tests := []struct {
		json, want string
		ok         bool
	}{
		{`""`, "", true},
		{`"plain"`, "plain", true},
		{`"é😀"`, "é😀", true},
		{`"\u00e9\ud83d\ude00\n\"\\\/\t"`, "é😀\n\"\\/\t", true},
		{`"a\u0000b"`, "a\x00b", true},
		{`1`, "", false},
		{`null`, "", false},
		{`["x"]`, "", false},
	}
	for _, tt := range tests {
		v, _ := argument(t, tt.json)
		if got, ok := v.Text(); got != tt.want || ok != tt.ok {
			t.Errorf("Text of %s = %q, %t, want %q, %t", tt.json, got, ok, tt.want, tt.ok)
		}
	}
	if got, ok := (jsonrpc.Value{}).Text(); got != "" || ok {
		t.Errorf("Text of the zero Value = %q, %t", got, ok)
	}
}

func TestValueInt(t *testing.T) {
	tests := []struct {
		json string
		want int64
		ok   bool
	}{
		{`0`, 0, true},
		{`-0`, 0, true},
		{`-17`, -17, true},
		{`9007199254740993`, 9007199254740993, true},
		{`9223372036854775807`, 9223372036854775807, true},
		{`9223372036854775808`, 0, false},
		{`1.0`, 0, false},
		{`1e3`, 0, false},
		{`"1"`, 0, false},
		{`null`, 0, false},
	}
	for _, tt := range tests {
		v, _ := argument(t, tt.json)
		if got, ok := v.Int(); ok != tt.ok || ok && got != tt.want {
			t.Errorf("Int of %s = %d, %t, want %d, %t", tt.json, got, ok, tt.want, tt.ok)
		}
	}
	if _, ok := (jsonrpc.Value{}).Int(); ok {
		t.Error("the zero Value has an Int")
	}
}

// outline lists v and every value in it with its path, and checks the offset of each in message.
func outline(t *testing.T, message, path string, v jsonrpc.Value) []string {
	t.Helper()
	if got := message[v.Offset:][:len(v.Bytes)]; got != string(v.Bytes) {
		t.Errorf("%s is %q, but at its offset is %q", path, v.Bytes, got)
	}
	lines := []string{path + " = " + string(v.Bytes)}
	for name, member := range v.Members() {
		lines = append(lines, outline(t, message, path+"."+name, member)...)
	}
	n := 0
	for element := range v.Elements() {
		lines = append(lines, outline(t, message, fmt.Sprintf("%s[%d]", path, n), element)...)
		n++
	}
	return lines
}

func TestValueMembersAndElements(t *testing.T) {
	v, message := argument(t, ` { "a" : [ 1 , {"b":[[],"x"]} ] ,"":{},"\u00e9":null,"é2" : "]}" } `)
	want := []string{
		`$ = { "a" : [ 1 , {"b":[[],"x"]} ] ,"":{},"\u00e9":null,"é2" : "]}" }`,
		`$.a = [ 1 , {"b":[[],"x"]} ]`,
		`$.a[0] = 1`,
		`$.a[1] = {"b":[[],"x"]}`,
		`$.a[1].b = [[],"x"]`,
		`$.a[1].b[0] = []`,
		`$.a[1].b[1] = "x"`,
		`$. = {}`,
		`$.é = null`,
		`$.é2 = "]}"`,
	}
	if diff := cmp.Diff(want, outline(t, message, "$", v)); diff != "" {
		t.Errorf("outline (-want +got):\n%s", diff)
	}
}

func TestValueMember(t *testing.T) {
	v, message := argument(t, `{"a":{"a":1},"b":[{"a":2}],"n\u0061me":"x","z":null}`)
	for name, want := range map[string]string{
		"a": `{"a":1}`, "b": `[{"a":2}]`, "name": `"x"`, "z": "null", "A": "", "missing": "", "": "",
	} {
		got := v.Member(name)
		if string(got.Bytes) != want || got.Present() != (want != "") {
			t.Errorf("Member(%q) = %q, want %q", name, got.Bytes, want)
		}
		if !strings.HasPrefix(message[got.Offset:], want) {
			t.Errorf("Member(%q) is not at its offset %d", name, got.Offset)
		}
	}
	if got := v.Member("a").Member("a"); string(got.Bytes) != "1" {
		t.Errorf("member of a member = %q", got.Bytes)
	}
	if got := v.Member("b").Member("a"); got.Present() {
		t.Errorf("an array has the member %q", got.Bytes)
	}
	if got := (jsonrpc.Value{}).Member("a"); got.Present() {
		t.Errorf("the zero Value has the member %q", got.Bytes)
	}
}

func TestValueStopsRanging(t *testing.T) {
	object, _ := argument(t, `{"a":1,"b":2,"c":3}`)
	array, _ := argument(t, `[1,2,3]`)
	seen := ""
	for name := range object.Members() {
		if seen += name; name == "b" {
			break
		}
	}
	for element := range array.Elements() {
		if seen += string(element.Bytes); string(element.Bytes) == "2" {
			break
		}
	}
	if seen != "ab12" {
		t.Errorf("saw %q, want ab12", seen)
	}
}

func TestValueWithout(t *testing.T) {
	tests := []struct {
		json  string
		names []string
		want  string
	}{
		{`{ "a" : 1.0 , "b":[ 2 ], "c":{"a":3} }`, []string{"a"}, `{"b":[ 2 ],"c":{"a":3}}`},
		{`{"a":1,"b":2,"c":3}`, []string{"c", "a"}, `{"b":2}`},
		{`{"\u0061":1,"\u00e9\"":2}`, []string{"a"}, `{"é\"":2}`},
		{`{"a":1}`, []string{"a", "x"}, `{}`},
		{`{"a":1,"A":2}`, nil, `{"a":1,"A":2}`},
		{`{ }`, []string{"a"}, `{}`},
	}
	for _, tt := range tests {
		v, _ := argument(t, tt.json)
		if got := string(v.Without(tt.names...)); got != tt.want {
			t.Errorf("%s without %q is %s, want %s", tt.json, tt.names, got, tt.want)
		}
	}
}

// A Value with invalid JSON has fewer members and elements, and causes no panic.
func TestValueOfInvalidJSON(t *testing.T) {
	for _, text := range []string{`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1 "b":2}`, `{1:2}`, `[`, `[1`, `[1 2]`, `[1,`, `{"a":[}`} {
		v, n := jsonrpc.Value{Bytes: []byte(text)}, 0
		for range v.Members() {
			n++
		}
		for range v.Elements() {
			n++
		}
		if n > 1 {
			t.Errorf("%s has %d members and elements", text, n)
		}
	}
}
