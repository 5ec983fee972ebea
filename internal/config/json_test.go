package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// readJSON reads a file with the JSON settings v and w, and returns v.
func readJSON(t testing.TB, src string) (jsontext.Value, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	var v jsontext.Value
	_, err := config.ReadOther(file, config.Group{
		{Key: "v", To: config.JSON(func(text jsontext.Value) { v = text })},
		{Key: "w", To: config.List(func() config.Setting { return config.JSON(func(jsontext.Value) {}) })},
	})
	return v, err
}

func TestJSONSettings(t *testing.T) {
	for src, want := range map[string]string{
		"v: {}": `{}`,
		"v: { a: 1.50, b: -0, c: 1e400, d: 9007199254740993 }":        `{"a":1.50,"b":-0,"c":1e400,"d":9007199254740993}`,
		"v: { a: '1e400', b: true, c: null, d: , e: [] }":             `{"a":"1e400","b":true,"c":null,"d":null,"e":[]}`,
		"v:\n  a:\n    - { b: x }\n    -\n      - c\n  d: |\n    e\n": `{"a":[{"b":"x"},["c"]],"d":"e\n"}`,
		"v: { a: &x [1], b: *x }":                                     `{"a":[1],"b":[1]}`,
		`v: { a: "\"\\\u0001 ${HOME} $" }`:                            `{"a":"\"\\\u0001 ${HOME} $"}`,
		`v: '{"a": 1.0}'`:                                             `{"a": 1.0}`,
		"v: &x { a: 1 }\nw: [*x]":                                     `{"a":1}`,
	} {
		got, err := readJSON(t, src)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", src, got, err, want)
		}
	}
}

// Files that are invalid, or that need much memory or time, are refused with one problem.
func TestHostileJSONSettings(t *testing.T) {
	bomb := "v: { a0: &a0 [x, x, x, x, x, x, x, x, x], "
	for i := range 9 {
		bomb += fmt.Sprintf("a%d: &a%d [%s*a%d], ", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 8), i)
	}
	deep := "v:\n"
	for i := range 80 {
		deep += strings.Repeat(" ", i+1) + "a:\n"
	}
	const notJSON = "1:4: v: must be a mapping, or a JSON object as text"
	tests := []struct{ name, src, want string }{
		{"a number", "v: 1", notJSON},
		{"a list", "v: [1]", notJSON},
		{"text", "v: x", notJSON},
		{"an array as text", "v: '[1]'", notJSON},
		{"duplicate names as text", `v: '{"a":1,"a":2}'`, notJSON},
		{"invalid UTF-8 as text", `v: '{"a":"\ud800"}'`, notJSON},
		{"duplicate keys", "v: { a: 1, a: 2 }", "1:12: v.a: is given twice"},
		{"a key that is a number", "v: { 1: 2 }", "1:6: v: has a key that is not plain text, such as << or a number"},
		{"a merge", "v: { <<: { a: 1 } }", "1:6: v: has a key that is not plain text, such as << or a number"},
		{"infinity", "v: { a: .inf }", "1:9: v: has a value that is not JSON, such as .inf or 0x1f"},
		{"a hexadecimal number", "v: { a: 0x1f }", "1:9: v: has a value that is not JSON, such as .inf or 0x1f"},
		{"a tag", "v: { a: !!binary eA== }", "1:9: v: has a YAML tag, which is not supported"},
		{"an unknown alias", "v: { a: *x }", `1:9: v: refers to an unknown YAML anchor; a value that begins with * needs quotes, as in match: "*"`},
		{"a value in itself", "v: &x { a: *x }", "1:12: v: is nested more than 64 deep"},
		{"a value twice in itself", "v: &x { a: [*x, *x] }", "is nested more than 64 deep"},
		{"deep nesting", deep, "is nested more than 64 deep"},
		{"many aliases", bomb + "}", "1:1: the file has more than 100000 values, aliases included"},
		{"aliases of a long text", "v: { a: &a " + strings.Repeat("x", 1<<19) + ", b: [*a, *a, *a, *a] }", "the JSON values of the file have more than 1048576 bytes, aliases included"},
		{"aliases of a setting", "v: &v { a: " + strings.Repeat("x", 1<<19) + "}\nw: [*v, *v, *v]", "w[0]: is nested more than 64 deep, or the JSON values of the file have more than 1048576 bytes, aliases included"},
		{"aliases of JSON as text", "v: &v '{\"a\":\"" + strings.Repeat("x", 1<<19) + "\"}'\nw: [*v, *v, *v]", "w[0]: is nested more than 64 deep, or the JSON values of the file have more than 1048576 bytes, aliases included"},
		{"a large file", "v: {} #" + strings.Repeat("x", 1<<20), "1:1: the file has more than 1048576 bytes"},
		{"an empty file", "", "1:1: the file is empty"},
		{"an unknown key", "vv: {}", "1:1: vv: unknown key; did you mean v?"},
	}
	for _, tt := range tests {
		_, err := readJSON(t, tt.src)
		if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %.300v; want %s", tt.name, err, tt.want)
		}
	}
}

// FuzzJSON looks for a value that is read as something else than the YAML library reads, or that
// is not JSON.
func FuzzJSON(f *testing.F) {
	f.Add("{ a: 1, b: [x, 'y', \"\\u00e4\"], c: null, d: 1.50 }")
	f.Add("\n  a: &x |\n    t\n  b: *x\n")
	f.Add("&x { a: [*x, *x], <<: *x, ? b : 0o7, c: .nan, !t d: 1_0 }")
	f.Add(`'{"a": 1e400}'`)
	f.Fuzz(func(t *testing.T, src string) {
		v, err := readJSON(t, "v: "+src+"\n")
		if err != nil || v == nil {
			return
		}
		if !v.IsValid() || v.Kind() != '{' {
			t.Fatalf("%s is not a JSON object", v)
		}
		var want struct{ V any }
		if err := yaml.Unmarshal([]byte("v: "+src+"\n"), &want); err != nil {
			return // it refuses, for example, invalid tags
		}
		if _, text := want.V.(string); text {
			return
		}
		wanted, err := json.Marshal(want.V, json.Deterministic(true))
		if err != nil {
			return // not a number
		}
		var a, b any
		if err := json.Unmarshal(wanted, &b); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(v, &a); err != nil {
			return // a number that is out of range
		}
		if diff := gocmp.Diff(b, a); diff != "" {
			t.Errorf("%s\nis read as %s: %s", src, v, diff)
		}
	})
}
