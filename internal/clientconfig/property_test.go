package clientconfig

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
	"pgregory.net/rapid"
)

// A writer writes files with random white space and comments.
type writer struct {
	t    *rapid.T
	line string // ends a line
	b    strings.Builder
}

func (w *writer) pick(label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(w.t, label)
}

var strange = rapid.StringOfN(rapid.RuneFrom([]rune("ab-_ .\"\\'/{}[],:#=\t\näА\u202e😀$")), 0, 8, -1)

// extra writes white space or a comment, as allowed between two tokens of JSON with comments.
func (w *writer) extra() {
	w.b.WriteString(w.pick("extra", "", "", "", " ", "\t", w.line, w.line+"    ", " /* \"a\": { */ ", "// it's ] \" "+w.line))
}

func (w *writer) json(v any) {
	w.extra()
	switch v := v.(type) {
	case entries:
		w.b.WriteString("{")
		for i, e := range v {
			w.json(e.name)
			w.b.WriteString(":")
			w.json(e.value)
			w.comma(len(v) - 1 - i)
		}
		w.b.WriteString("}")
	case []any:
		w.b.WriteString("[")
		for i, e := range v {
			w.json(e)
			w.comma(len(v) - 1 - i)
		}
		w.extra()
		w.b.WriteString("]")
	default:
		text, err := json.Marshal(v)
		if err != nil {
			w.t.Fatal(err)
		}
		w.b.Write(text)
	}
	w.extra()
}

// comma writes the separator after an element that is followed by more others.
func (w *writer) comma(more int) {
	if more > 0 || rapid.Bool().Draw(w.t, "trailing") {
		w.b.WriteString(",")
	}
	w.extra()
}

// entries are the members of an object in their order.
type entries []named

type named struct {
	name  string
	value any
}

// drawRemote generates a server with a URL and headers, and returns the values that it has when it is wrapped.
func drawRemote(t *rapid.T, name string) (entries, map[string]any) {
	e := entries{{"url", "https://example.com/mcp"}, {"timeout", "5s"}}
	args := []any{"wrap", "--name", gateName(name), "--url", "https://example.com/mcp"}
	want := map[string]any{"command": "thoughtgate", "timeout": "5s"}
	if rapid.Bool().Draw(t, "secret") {
		e[0].value = "https://example.com/mcp?key=1"
		args[4], want["env"] = "env:MCP_URL", map[string]any{"MCP_URL": e[0].value}
	}
	if rapid.Bool().Draw(t, "type") {
		e = append(e, named{"type", "http"})
		want["type"] = "stdio"
	}
	if rapid.Bool().Draw(t, "headers") {
		value := strange.Draw(t, "value")
		e = append(e, named{"headers", entries{{"X-Key", value}}})
		args = append(args, "--header", "X-Key: env:MCP_HEADER_1")
		env, _ := want["env"].(map[string]any)
		if env == nil {
			env = map[string]any{}
		}
		env["MCP_HEADER_1"] = value
		want["env"] = env
	}
	want["args"] = args
	return rapid.Permutation([]named(e)).Draw(t, "order"), want
}

// drawServer generates a server, and returns its command line if it has one.
func drawServer(t *rapid.T) (entries, []string) {
	var e entries
	argv := []string{rapid.SampledFrom([]string{"npx", "C:\\a b\\x.exe", "ü\"'"}).Draw(t, "command")}
	switch rapid.IntRange(0, 3).Draw(t, "form") {
	case 0:
		e = entries{{"url", "https://example.com/sse"}}
		argv = nil
	case 1:
		e = entries{{"command", argv[0]}}
	default:
		args := rapid.SliceOfN(strange, 0, 4).Draw(t, "args")
		argv = append(argv, args...)
		list := []any{}
		for _, a := range args {
			list = append(list, a)
		}
		e = entries{{"args", list}, {"command", argv[0]}}
	}
	if rapid.Bool().Draw(t, "env") {
		e = append(e, named{"env", entries{{"A " + strange.Draw(t, "key"), strange.Draw(t, "value")}}})
	}
	return rapid.Permutation([]named(e)).Draw(t, "order"), argv
}

// drawServers generates servers, and returns the values of the wrapped ones by name.
func drawServers(t *rapid.T) (entries, map[string]map[string]any) {
	var all entries
	wanted := map[string]map[string]any{}
	for _, name := range rapid.SliceOfNDistinct(strange, 0, 4, rapid.ID[string]).Draw(t, "names") {
		if rapid.IntRange(0, 3).Draw(t, "remote") == 0 {
			e, want := drawRemote(t, name)
			all, wanted[name] = append(all, named{name, e}), want
			continue
		}
		e, argv := drawServer(t)
		all = append(all, named{name, e})
		if argv == nil {
			continue
		}
		line, list := wrapped(name, argv), []any{}
		for _, a := range line[1:] {
			list = append(list, a)
		}
		wanted[name] = map[string]any{"command": line[0], "args": list}
		for _, m := range e {
			if env, ok := m.value.(entries); ok {
				wanted[name][m.name] = map[string]any{env[0].name: env[0].value}
			}
		}
	}
	return all, wanted
}

// wrapped returns the expected command line of a wrapped server.
func wrapped(name string, argv []string) []string {
	return append([]string{"thoughtgate", "wrap", "--name", gateName(name), "--"}, argv...)
}

// check wraps a file, and compares the decoded result with the expected one. Then it undoes the
// change.
func check(t *rapid.T, client, section, content string, wanted map[string]map[string]any, decode func(string) map[string]any) {
	c, err := Find(client)
	if err != nil {
		t.Fatal(err)
	}
	change, err := c.Wrap([]byte(content), gate)
	if err != nil {
		t.Fatalf("%v:\n%s", err, content)
	}
	want, got := decode(content), decode(string(change.Text))
	servers, _ := want[section].(map[string]any)
	for name, server := range wanted {
		if c.variables != "" && server["args"].([]any)[3] == "--url" {
			var passed []any
			for _, name := range forSignIn {
				passed = append(passed, name)
			}
			server[c.variables] = passed
		}
		servers[name] = server
	}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("want %v, got %v in\n%s\nfrom\n%s", want, got, change.Text, content)
	}
	if len(change.Patches) != len(wanted) {
		t.Fatalf("%d patches for %d servers", len(change.Patches), len(wanted))
	}
	undone, err := Record{Client: client, Patches: change.Patches}.Plan(change.Text)
	if err != nil || string(undone.Text) != content || undone.Kept != nil {
		t.Fatalf("undone with %v, %v:\n%s\nwas\n%s", err, undone.Kept, undone.Text, content)
	}
}

func TestWrapAnyJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		servers, wanted := drawServers(t)
		root := entries{{"mcpServers", servers}, {"x", []any{1.5, nil, true, strange.Draw(t, "x")}}, {"mcpServers ", entries{}}}
		w := &writer{t: t, line: rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "line")}
		w.json(entries(rapid.Permutation([]named(root)).Draw(t, "order")))
		content := rapid.SampledFrom([]string{"", "\xef\xbb\xbf"}).Draw(t, "mark") + w.b.String()
		check(t, "cursor", "mcpServers", content, wanted, func(content string) map[string]any {
			standard, err := hujson.Standardize([]byte(strings.TrimPrefix(content, "\xef\xbb\xbf")))
			if err != nil {
				t.Fatal(err)
			}
			var v map[string]any
			if err := json.Unmarshal(standard, &v); err != nil {
				t.Fatal(err)
			}
			return v
		})
	})
}

// toml writes servers in one of the forms of TOML.
func (w *writer) toml(servers entries) {
	quote := tomlLanguage{}.quote
	for _, s := range servers {
		form := w.pick("form", "table", "dotted", "inline")
		if form == "table" {
			fmt.Fprintf(&w.b, "[ mcp_servers . %s ]%s%s", quote(s.name), w.pick("comment", "", " # [x]"), w.line)
		} else {
			fmt.Fprintf(&w.b, "[mcp_servers]%s", w.line)
		}
		w.server(s, form)
	}
}

// server writes the values of one server.
func (w *writer) server(s named, form string) {
	quote := tomlLanguage{}.quote
	var parts []string
	for _, m := range s.value.(entries) {
		value := w.pick("indent", "", "  ") + m.name + w.pick("equals", "=", " = ") + w.tomlValue(m.value)
		if form == "dotted" {
			value = quote(s.name) + w.pick("dot", ".", " . ") + strings.TrimSpace(value)
		}
		parts = append(parts, value)
	}
	if form == "inline" {
		fmt.Fprintf(&w.b, "%s = {%s}%s", quote(s.name), strings.Join(parts, ","), w.line)
		return
	}
	for _, p := range parts {
		w.b.WriteString(p + w.pick("end", "", " # \"'[") + w.line)
	}
}

func (w *writer) tomlValue(v any) string {
	quote := tomlLanguage{}.quote
	switch v := v.(type) {
	case string:
		if !strings.ContainsAny(v, "'\n\t\r") && rapid.Bool().Draw(w.t, "literal") {
			return "'" + v + "'"
		}
		return quote(v)
	case []any:
		gap := w.pick("gap", "", " ", w.line+"  ", " # ]"+w.line)
		text := "[" + gap
		for i, e := range v {
			text += quote(e.(string)) + gap
			if i < len(v)-1 || rapid.Bool().Draw(w.t, "trailing") {
				text += "," + gap
			}
		}
		return text + "]"
	default:
		e := v.(entries)[0]
		return "{ " + quote(e.name) + " = " + quote(e.value.(string)) + " }"
	}
}

func TestWrapAnyTOML(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		servers, wanted := drawServers(t)
		w := &writer{t: t, line: rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "line")}
		w.b.WriteString("a.b = 1 # x" + w.line + "c = [[1,2],[ {d = 1979-05-27} ]]" + w.line)
		// A table may be opened once only, so at most one server may be without a table.
		if len(servers) > 1 {
			for _, s := range servers {
				fmt.Fprintf(&w.b, "%s[mcp_servers.%s]%s", w.line, tomlLanguage{}.quote(s.name), w.line)
				w.server(s, "table")
			}
		} else {
			w.toml(servers)
		}
		w.b.WriteString("[[list]]" + w.line + "[list.x]" + w.line + "[[list]]" + w.line + "y = '''a\nb'''")
		check(t, "codex", "mcp_servers", w.b.String(), wanted, func(content string) map[string]any {
			var v map[string]any
			if err := toml.Unmarshal([]byte(content), &v); err != nil {
				t.Fatalf("%v in\n%s", err, content)
			}
			return v
		})
	})
}

// FuzzWrap checks that every file is refused, or wrapped once and restored byte for byte.
func FuzzWrap(f *testing.F) {
	files, err := os.ReadDir("testdata")
	if err != nil {
		f.Fatal(err)
	}
	names := []string{}
	for _, c := range Clients() {
		names = append(names, c.Name)
	}
	for _, file := range files {
		name, _, _ := strings.Cut(file.Name(), ".")
		if i := slices.Index(names, name); i >= 0 {
			content, err := os.ReadFile("testdata/" + file.Name())
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), content)
		}
	}
	f.Add(uint8(6), []byte("mcp_servers.a.command = 'x'\n[mcp_servers.b]\ncommand='''\ny'''"))
	f.Fuzz(func(t *testing.T, i uint8, content []byte) {
		c := Clients()[int(i)%len(names)]
		change, err := c.Wrap(content, gate)
		if err != nil {
			return
		}
		again, err := c.Wrap(change.Text, gate)
		if err != nil || len(again.Patches) > 0 {
			t.Fatalf("again: %v, %d patches", err, len(again.Patches))
		}
		undone, err := Record{Client: c.Name, Patches: change.Patches}.Plan(change.Text)
		if err != nil || string(undone.Text) != string(content) {
			t.Fatalf("undone with %v:\n%s", err, undone.Text)
		}
	})
}
