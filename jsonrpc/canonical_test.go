package jsonrpc_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func canonical(text string, without ...string) (string, bool) {
	out, ok := jsonrpc.Value{Bytes: []byte(text)}.AppendCanonical(nil, without...)
	return string(out), ok
}

func TestCanonical(t *testing.T) {
	tests := []struct {
		name, in, want string
		without        []string
	}{
		{name: "white space", in: " { \"a\" : [ 1 , {\n} , [ ] ] } ", want: `{"a":[1,{},[]]}`},
		{name: "order", in: `{"b":{"d":1,"c":2},"a":[3,1]}`, want: `{"a":[3,1],"b":{"c":2,"d":1}}`},
		{name: "numbers", in: `[1,1.0,1e0,-0]`, want: `[1,1.0,1e0,-0]`},
		{name: "escapes", in: `{"\u0061":"\u00e9\/\n\ud83d\ude00"}`, want: "{\"a\":\"é/\\n😀\"}"},
		{name: "escaped name in order", in: `{"\u0062":1,"a":2}`, want: `{"a":2,"b":1}`},
		{name: "without", in: `{"z":{"x":1},"x":{"y":2},"a":null}`, without: []string{"x"}, want: `{"a":null,"z":{"x":1}}`},
		{name: "without all", in: `{"x":1}`, without: []string{"x"}, want: `{}`},
		{name: "without the last", in: `{"a":1,"x":1}`, without: []string{"x"}, want: `{"a":1}`},
		{name: "in an array", in: `[{"x":1}]`, without: []string{"x"}, want: `[{"x":1}]`},
		{name: "scalar", in: `true`, want: `true`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := canonical(tt.in, tt.without...); !ok || got != tt.want {
				t.Errorf("got %s, %v; want %s", got, ok, tt.want)
			}
		})
	}
	for _, in := range []string{`{"a":1,"a":1}`, `[{"b":{"a":1,"\u0061":2}}]`, strings.Repeat("[", 1001) + strings.Repeat("]", 1001)} {
		if out, ok := canonical(in); ok || out != "" {
			t.Errorf("%.40s became %.40q", in, out)
		}
	}
}

// FuzzCanonical checks that equal values, and only those, have equal canonical forms, with a
// general encoder.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1,{"d":"\u00e9","c":null}],"a":"x"}`, `{"\ud83d\ude00":1,"\uffff":2,"a\/":[{}]}`, `"\u2028<&\u0000"`, `[1e5,-0.0]`, `{"":{"":[]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text := jsontext.Value(bytes.TrimSpace(data))
		if !text.IsValid() {
			return
		}
		form, ok := canonical(string(text))
		if !ok {
			return // too deep
		}
		for _, options := range [][]jsontext.Options{
			{jsontext.ReorderRawObjects(true)}, {jsontext.WithIndent("\t")}, {jsontext.EscapeForHTML(true), jsontext.EscapeForJS(true)},
		} {
			other, err := jsontext.AppendFormat(nil, text, options...)
			if err != nil {
				t.Fatal(err)
			}
			if again, ok := canonical(string(other)); !ok || again != form {
				t.Errorf("%s has the form %s, and as %s it has %s", text, form, other, again)
			}
		}
		one, err := jsontext.AppendFormat(nil, text, jsontext.ReorderRawObjects(true))
		if err != nil {
			t.Fatal(err)
		}
		back, err := jsontext.AppendFormat(nil, jsontext.Value(form), jsontext.ReorderRawObjects(true))
		if err != nil || !bytes.Equal(one, back) {
			t.Errorf("%s has the form %s, which is another value: %v", text, form, err)
		}
	})
}
