package jsonrpc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func TestPatch(t *testing.T) {
	type message = jsonrpc.Message
	tests := []struct {
		name, in string
		patch    func(p *jsonrpc.Patch, m message)
		want     string
	}{
		{
			"nothing", `{"jsonrpc":"2.0" , "method":"m"}`,
			func(*jsonrpc.Patch, message) {},
			`{"jsonrpc":"2.0" , "method":"m"}`,
		},
		{
			"replace the id", `{ "jsonrpc":"2.0", "id" : 1.0 , "method":"m" }`,
			func(p *jsonrpc.Patch, m message) { p.Replace(m.ID, []byte(`"tg_1"`)) },
			`{ "jsonrpc":"2.0", "id" : "tg_1" , "method":"m" }`,
		},
		{
			"white space around is not part of it", " \n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\r\n",
			func(p *jsonrpc.Patch, m message) { p.Replace(m.ID, []byte(`22`)) },
			"{\"jsonrpc\":\"2.0\",\"id\":22,\"method\":\"m\"}",
		},
		{
			"set a member that is there", `{"jsonrpc":"2.0","method":"m","params":{"a":1,"b":2,"c":3}}`,
			func(p *jsonrpc.Patch, m message) { p.Set(m.Params.Value, "b", []byte(`[]`)) },
			`{"jsonrpc":"2.0","method":"m","params":{"a":1,"b":[],"c":3}}`,
		},
		{
			"set a member that is there with escapes", `{"jsonrpc":"2.0","method":"m","params":{"\u0062":2}}`,
			func(p *jsonrpc.Patch, m message) { p.Set(m.Params.Value, "b", []byte(`[]`)) },
			`{"jsonrpc":"2.0","method":"m","params":{"\u0062":[]}}`,
		},
		{
			"set a new member", `{"jsonrpc":"2.0","method":"m","params":{"a":1 }}`,
			func(p *jsonrpc.Patch, m message) { p.Set(m.Params.Value, "b", []byte(`2`)) },
			`{"jsonrpc":"2.0","method":"m","params":{"a":1 ,"b":2}}`,
		},
		{
			"set in an empty object", `{"jsonrpc":"2.0","method":"m","params":{}}`,
			func(p *jsonrpc.Patch, m message) { p.Set(m.Params.Value, "b", []byte(`2`)) },
			`{"jsonrpc":"2.0","method":"m","params":{"b":2}}`,
		},
		{
			"set in an empty object with white space", "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{ \t\r\n}}",
			func(p *jsonrpc.Patch, m message) {
				p.Set(m.Params.Value, "b", []byte(`2`))
				p.Set(m.Params.Value, "c", []byte(`3`))
			},
			"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{ \t\r\n\"b\":2,\"c\":3}}",
		},
		{
			"several in one object and in one around it", `{"jsonrpc":"2.0","method":"m","params":{"_meta":{}}}`,
			func(p *jsonrpc.Patch, m message) {
				p.Set(m.Params.Value, "x", []byte(`1`))
				p.Set(m.Params.Meta, "a", []byte(`2`))
				p.Set(m.Params.Value, "y", []byte(`3`))
				p.Set(m.Params.Meta, "b", []byte(`4`))
			},
			`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"a":2,"b":4},"x":1,"y":3}}`,
		},
		{
			"the same member twice", `{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`,
			func(p *jsonrpc.Patch, m message) {
				p.Set(m.Params.Value, "a", []byte(`1`))
				p.Set(m.Params.Value, "b", []byte(`2`))
				p.Set(m.Params.Value, "a", []byte(`3`))
				p.Replace(m.ID, []byte(`4`))
				p.Replace(m.ID, []byte(`5`))
			},
			`{"jsonrpc":"2.0","id":5,"method":"m","params":{"a":3,"b":2}}`,
		},
		{
			"unicode and escapes in names", `{"jsonrpc":"2.0","method":"m","params":{"é":"ü"}}`,
			func(p *jsonrpc.Patch, m message) {
				p.Set(m.Params.Value, "é", []byte(`"😀"`))
				p.Set(m.Params.Value, "a\"b\n", []byte(`"名"`))
			},
			`{"jsonrpc":"2.0","method":"m","params":{"é":"😀","a\"b\n":"名"}}`,
		},
		{
			"insert", `{"jsonrpc":"2.0","method":"m","params":{"a":1}}`,
			func(p *jsonrpc.Patch, m message) {
				p.Insert(m.Params.Value, "c", []byte(`3`))
				p.Insert(m.Params.Value, "b", []byte(`2`))
				p.Insert(m.Params.Value, "c", []byte(`4`))
			},
			`{"jsonrpc":"2.0","method":"m","params":{"a":1,"c":4,"b":2}}`,
		},
		{
			"many in their order", `{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`,
			func(p *jsonrpc.Patch, m message) {
				for name := range strings.SplitSeq("zyxwvutsrqponmlkjihgfedcba", "") {
					p.Set(m.Params.Value, name, []byte("0"))
				}
				p.Replace(m.ID, []byte("2"))
			},
			`{"jsonrpc":"2.0","id":2,"method":"m","params":{"z":0,"y":0,"x":0,"w":0,"v":0,"u":0,"t":0,"s":0,"r":0,"q":0,"p":0,"o":0,"n":0,` +
				`"m":0,"l":0,"k":0,"j":0,"i":0,"h":0,"g":0,"f":0,"e":0,"d":0,"c":0,"b":0,"a":0}}`,
		},
		{
			"the last message of a batch", `[{"jsonrpc":"2.0","id":1,"method":"m"}, {"jsonrpc":"2.0","id":2,"method":"m"}]`,
			func(p *jsonrpc.Patch, m message) { p.Replace(m.ID, append(m.ID.Bytes, '0')) },
			`{"jsonrpc":"2.0","id":20,"method":"m"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p jsonrpc.Patch
			messages := mustParse(t, tt.in).Messages
			m := messages[len(messages)-1]
			tt.patch(&p, m)
			if got := string(p.Apply(m.Raw)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if again := string(p.Apply(m.Raw)); again != tt.want {
				t.Errorf("applied again: %s", again)
			}
			if p.Empty() != (tt.in == tt.want) {
				t.Errorf("Empty() = %t", p.Empty())
			}
		})
	}
}

func TestPatchKeepsInput(t *testing.T) {
	in := []byte(normalCall)
	m := mustParseOne(t, normalCall)
	var p jsonrpc.Patch
	p.Replace(m.ID, []byte("7"))
	p.Set(m.Params.Meta, "x", []byte("1"))
	p.Apply(in)
	if string(in) != normalCall {
		t.Errorf("the input became %s", in)
	}
}

func TestPatchSetNeedsAnObject(t *testing.T) {
	for _, text := range []string{`[1]`, `"x"`, `1`, `null`} {
		v, _ := argument(t, text)
		if !panics(func() { new(jsonrpc.Patch).Set(v, "a", []byte("1")) }) {
			t.Errorf("Set of %s succeeds, but would make invalid JSON", text)
		}
	}
	if !panics(func() { new(jsonrpc.Patch).Set(jsonrpc.Value{}, "a", []byte("1")) }) {
		t.Error("Set of an absent value succeeds")
	}
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// drawJSON generates a JSON text with white space anywhere.
func drawJSON(t *rapid.T, depth int) string {
	space := func() string { return rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n"}).Draw(t, "space") }
	kinds := []string{"scalar", "object", "array"}
	if depth == 0 {
		kinds = kinds[:1]
	}
	var items []string
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "object":
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
			`"a"`, `"b"`, `"\u0063"`, `"é"`, `"\u00fc"`, `"😀"`, `""`, `"a b"`, `"name"`, `"\""`,
		}), 0, 4, rapid.ID).Draw(t, "names")
		for _, name := range names {
			items = append(items, space()+name+space()+":"+space()+drawJSON(t, depth-1)+space())
		}
		return "{" + orSpace(items, space) + "}"
	case "array":
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			items = append(items, space()+drawJSON(t, depth-1)+space())
		}
		return "[" + orSpace(items, space) + "]"
	default:
		return rapid.SampledFrom([]string{
			"0", "-1.50e+2", "9007199254740993", "true", "false", "null", `""`, `"text"`, `"{[,:\"\\"`, `"é\u00e9😀"`,
		}).Draw(t, "scalar")
	}
}

func orSpace(items []string, space func() string) string {
	if len(items) == 0 {
		return space()
	}
	return strings.Join(items, ",")
}

// A location is a value in a document and its path: "/" and a name or an index for each step.
type location struct {
	path  string
	value jsonrpc.Value
}

func locations(path string, v jsonrpc.Value) []location {
	all := []location{{path, v}}
	for name, member := range v.Members() {
		all = append(all, locations(path+"/"+name, member)...)
	}
	n := 0
	for element := range v.Elements() {
		all = append(all, locations(fmt.Sprintf("%s/%d", path, n), element)...)
		n++
	}
	return all
}

// within reports whether path is at or below top.
func within(path, top string) bool { return path == top || strings.HasPrefix(path, top+"/") }

// A change replaces the value at path by a new text.
type change struct{ path, text string }

// drawChange adds a change to p that does not overlap earlier ones. It returns nil if it chose a
// value that overlaps one.
func drawChange(t *rapid.T, p *jsonrpc.Patch, all []location, before []change) *change {
	target := rapid.SampledFrom(all).Draw(t, "target")
	set := target.value.IsObject() && rapid.Bool().Draw(t, "set")
	c := change{target.path, drawJSON(t, 1)}
	name := rapid.SampledFrom([]string{"a", "c", "é", "", "new", "new \"quoted\"", "ключ"}).Draw(t, "name")
	if set {
		c.path += "/" + name
	}
	for _, b := range before {
		if within(c.path, b.path) || within(b.path, c.path) {
			return nil
		}
	}
	if set {
		p.Set(target.value, name, []byte(c.text))
	} else {
		p.Replace(target.value, []byte(c.text))
	}
	return &c
}

// After any patch the result parses, changed values have their new text, and values outside of
// changes keep their bytes.
func TestPatchProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := string(callWith(drawJSON(t, 4)))
		packet, err := jsonrpc.Parse([]byte(in), jsonrpc.Limits{})
		if err != nil {
			t.Fatalf("drew %q: %v", in, err)
		}
		all := locations("", packet.Messages[0].Params.Arguments)
		var p jsonrpc.Patch
		var changes []change
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			if c := drawChange(t, &p, all, changes); c != nil {
				changes = append(changes, *c)
			}
		}
		out := p.Apply([]byte(in))
		packet, err = jsonrpc.Parse(out, jsonrpc.Limits{})
		if err != nil {
			t.Fatalf("%s\nbecame %s: %v", in, out, err)
		}
		got := map[string]string{}
		for _, pl := range locations("", packet.Messages[0].Params.Arguments) {
			got[pl.path] = string(pl.value.Bytes)
		}
		for _, c := range changes {
			if got[c.path] != c.text {
				t.Errorf("%q is %q, want %q", c.path, got[c.path], c.text)
			}
		}
		for _, pl := range untouched(all, changes) {
			if got[pl.path] != string(pl.value.Bytes) {
				t.Errorf("%q was %q and is %q", pl.path, pl.value.Bytes, got[pl.path])
			}
		}
		if diff := cmp.Diff(spliced(in, all, changes), string(out)); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
	})
}

func untouched(all []location, changes []change) []location {
	var rest []location
next:
	for _, pl := range all {
		for _, c := range changes {
			if within(pl.path, c.path) || within(c.path, pl.path) {
				continue next
			}
		}
		rest = append(rest, pl)
	}
	return rest
}

// spliced makes one change after the other: it cuts strings, and parses the whole text again.
func spliced(in string, all []location, changes []change) string {
	for _, c := range changes {
		cut := strings.LastIndex(c.path, "/")
		for _, pl := range all {
			if pl.path == c.path {
				in = in[:pl.value.Offset] + c.text + in[pl.value.Offset+len(pl.value.Bytes):]
				cut = -1
			}
		}
		for _, pl := range all {
			if cut >= 0 && pl.path == c.path[:cut] {
				end := pl.value.Offset + len(pl.value.Bytes) - 1
				comma := ","
				if strings.TrimSpace(in[pl.value.Offset:end]) == "{" {
					comma = ""
				}
				in = in[:end] + comma + string(jsonrpc.AppendString(nil, c.path[cut+1:])) + ":" + c.text + in[end:]
			}
		}
		packet, err := jsonrpc.Parse([]byte(in), jsonrpc.Limits{})
		if err != nil {
			return "spliced: " + err.Error()
		}
		all = locations("", packet.Messages[0].Params.Arguments)
	}
	return in
}
