package clientconfig

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mergeTest is a file of a client, and the gate's configuration beside it.
type mergeTest struct {
	t      *testing.T
	c      Client
	files  Files
	file   string
	config string
	o      MergeOptions
}

func newMergeTest(t *testing.T, client string, content []byte) *mergeTest {
	t.Helper()
	c, err := Find(client)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &mergeTest{t: t, c: c, files: Files{Dir: filepath.Join(dir, "state")}, file: filepath.Join(dir, "client"), config: filepath.Join(dir, "thoughtgate.yaml")}
	m.o = MergeOptions{WrapOptions: WrapOptions{Command: "thoughtgate", Config: m.config}, Endpoint: "/mcp"}
	m.write(content)
	return m
}

func (m *mergeTest) write(content []byte) {
	m.t.Helper()
	if err := os.WriteFile(m.file, content, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mergeTest) content() []byte {
	m.t.Helper()
	content, err := os.ReadFile(m.file)
	if err != nil {
		m.t.Fatal(err)
	}
	return content
}

// configure adds a line for each server to the configuration.
func (m *mergeTest) configure(added []MergedServer) (map[string][]byte, error) {
	text, _ := os.ReadFile(m.config)
	for _, s := range added {
		text = append(text, s.Name+"\n"...)
	}
	return map[string][]byte{m.config: text}, nil
}

func (m *mergeTest) merge() (Merge, error) {
	return m.files.Merge(m.c, m.file, m.o, m.configure)
}

// mustMerge merges and returns the names of the servers that are added.
func (m *mergeTest) mustMerge() (names []string) {
	m.t.Helper()
	merge, err := m.merge()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, s := range merge.Added {
		names = append(names, s.Name)
	}
	return names
}

func (m *mergeTest) undo() (Restoration, error) {
	m.t.Helper()
	records, err := m.files.Records()
	if err != nil || len(records) != 1 {
		m.t.Fatalf("%d records: %v", len(records), err)
	}
	return m.files.Undo(records[0])
}

// Servers of every client are merged into one, once, and come back byte for byte.
func TestMergeFixtures(t *testing.T) {
	fixtures(t, func(t *testing.T, c Client, _ string, content []byte) {
		m := newMergeTest(t, c.Name, content)
		names := m.mustMerge()
		if len(names) == 0 {
			t.Fatal("nothing is merged")
		}
		after := m.content()
		if again := m.mustMerge(); len(again) > 0 || !bytes.Equal(m.content(), after) {
			t.Errorf("merging again adds %q", again)
		}
		root, err := parse(c.language, after)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := c.entries(root, m.o.WrapOptions)
		if err != nil {
			t.Fatal(err)
		}
		wrapped := 0
		for _, e := range entries {
			if e.Status == Unchanged {
				wrapped++
			}
		}
		if wrapped != 1 {
			t.Errorf("%d servers are the gate, want 1:\n%s", wrapped, after)
		}
		if u, err := m.undo(); err != nil || !u.Identical || !bytes.Equal(m.content(), content) {
			t.Errorf("undo: %v, identical: %t\n%s", err, u.Identical, m.content())
		}
		if _, err := os.Stat(m.config); !os.IsNotExist(err) {
			t.Errorf("the configuration remains: %v", err)
		}
	})
}

// Undo keeps what others have changed in the file, also if they have formatted it again.
func TestUndoMergeKeepsOtherChanges(t *testing.T) {
	fixtures(t, func(t *testing.T, c Client, _ string, content []byte) {
		m := newMergeTest(t, c.Name, content)
		m.mustMerge()
		changed := m.content()
		if _, isTOML := c.language.(tomlLanguage); isTOML {
			changed = append([]byte("# by another\nanother = 1\n"), changed...)
		} else {
			changed = bytes.Replace(changed, []byte(`"args": [`), []byte("\"args\" :\n\n["), 1)
		}
		m.write(changed)
		if _, err := m.undo(); err != nil {
			t.Fatal(err)
		}
		before, err := parse(c.language, content)
		if err != nil {
			t.Fatal(err)
		}
		after, err := parse(c.language, m.content())
		if err != nil {
			t.Fatal(err)
		}
		except := [][]string{{"another"}}
		if !maps.Equal(before.flatten(except), after.flatten(except)) {
			t.Errorf("undo restores other servers:\n%s", m.content())
		}
	})
}

const twoServers = `{"mcpServers": {"a": {"command": "x", "env": {"K": "1"}}, "B c": {"command": "y"}}}`

// A server that is added later joins the others, which keep their names and variables.
func TestMergeAddsLaterServers(t *testing.T) {
	m := newMergeTest(t, "cursor", []byte(twoServers))
	m.mustMerge()
	m.write([]byte(strings.Replace(string(m.content()), `{"mcpServers": {`, `{"mcpServers": {"new": {"command": "z", "env": {"K": "2"}}, `, 1)))
	if names := m.mustMerge(); len(names) != 1 || names[0] != "new" {
		t.Fatalf("added %q", names)
	}
	const want = `{"mcpServers": {"thoughtgate": { "command": "thoughtgate", "args": ["wrap", "--config", "CONFIG", "--endpoint", "/mcp"], "env": { "MCP_A_K": "1", "MCP_NEW_K": "2" } }}}`
	if got := strings.ReplaceAll(string(m.content()), m.config, "CONFIG"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if text, _ := os.ReadFile(m.config); string(text) != "a\nb-c\nnew\n" {
		t.Errorf("the configuration is %q", text)
	}
	if _, err := m.undo(); err != nil {
		t.Fatal(err)
	}
	const restored = `{"mcpServers": {"a": {"command": "x", "env": {"K": "1"}}, "B c": {"command": "y"}, "new": {"command": "z", "env": {"K": "2"}}}}`
	if got := string(m.content()); got != restored {
		t.Errorf("restored %s", got)
	}
}

// Arguments that look like secrets stay in the client's file.
func TestMergeKeepsSecretArguments(t *testing.T) {
	c, _ := Find("cursor")
	const args = `"--api-key", "q8Zr4TnW1xLp", "--token=h7Kd92mQxV5bYt", "--header", "Authorization: Bearer u3Rf81zPwN6c", "--password", "hunter2", "--port", "8080"`
	m, err := c.Merge([]byte(`{"mcpServers": {"a": {"command": "x", "args": [`+args+`]}}}`), MergeOptions{WrapOptions: WrapOptions{Command: "thoughtgate", Config: "/c"}})
	if err != nil {
		t.Fatal(err)
	}
	const want = "x --api-key ${MCP_A_ARGUMENT_2} ${MCP_A_ARGUMENT_3} --header ${MCP_A_ARGUMENT_5} --password ${MCP_A_ARGUMENT_7} --port 8080"
	if got := strings.Join(m.Added[0].Command, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A merged server that was changed is not the merged one any more, wherever its change comes from.
func TestMergedIsWhatWasWritten(t *testing.T) {
	m := newMergeTest(t, "cursor", []byte(twoServers))
	m.mustMerge()
	m.write([]byte(strings.Replace(string(m.content()), m.config, "/tmp/other.yaml", 1)))
	if _, err := m.undo(); err == nil || !strings.Contains(err.Error(), "was changed since") {
		t.Errorf("undo of a changed server: %v", err)
	}
	if _, err := m.merge(); err == nil || !strings.Contains(err.Error(), "is wrapped already") {
		t.Errorf("merging with a changed server: %v", err)
	}
}

// What an endpoint cannot have stays, with a reason, and mistakes are refused.
func TestMergeRefusals(t *testing.T) {
	server := func(more string) string {
		return `{"mcpServers": {"ok": {"command": "x"}, "s": {"command": "y"` + more + `}}}`
	}
	for more, why := range map[string]string{
		`, "disabled": true`:               "switched off",
		`, "enabled": false`:               "switched off",
		`, "envFile": ".env"`:              "no setting envFile",
		`, "sandbox": {}`:                  "no setting sandbox",
		`, "env": ["A=b"]`:                 "not a table",
		`, "env": {"PATH": "/tmp"}`:        "sets PATH",
		`, "includeTools": ["a*"]`:         "list of tools",
		`, "includeTools": []`:             "list of tools",
		`, "cwd": 1`:                       "cwd",
		`, "oauth": {}`:                    "no setting oauth",
		`, "url": "https://a/", "args": 1`: "",
	} {
		c, _ := Find("gemini")
		m, err := c.Merge([]byte(server(more)), MergeOptions{WrapOptions: WrapOptions{Command: "/bin/thoughtgate", Path: "/bin/thoughtgate", Config: "/c"}})
		if why == "" {
			if err == nil {
				t.Errorf("%s is merged", more)
			}
			continue
		}
		if err != nil || len(m.Added) != 1 || len(m.Servers) != 2 || m.Servers[1].Status != NotMerged || !strings.Contains(m.Servers[1].Warning, why) {
			t.Errorf("%s: %v, %+v", more, err, m.Servers)
		}
	}
	for text, wrong := range map[string]string{
		`{"mcpServers": {"A b": {"command": "x"}, "a-b": {"command": "y"}}}`:                                         `servers "A b" and "a-b" would both have the name a-b`,
		`{"mcpServers": {"a": {"command": "x"}, "b": {"command": "thoughtgate", "args": ["wrap", "--", "x"]}}}`:      `server "b" is wrapped already`,
		`{"mcpServers": {"a": {"command": "x"}, "thoughtgate": {"url": "https://a/sse"}}}`:                           "another server with the name thoughtgate",
		`{"mcpServers": {"a": {"command": "x", "env": {"THOUGHTGATE_STORE": "memory:"}}}}`:                           "changes what the gate does",
		`{"mcpServers": {"a": {"command": "thoughtgate", "args": ["wrap", "--config", "c", "--endpoint", "/mcp"]}}}`: `is wrapped already`,
	} {
		c, _ := Find("cursor")
		if _, err := c.Merge([]byte(text), MergeOptions{WrapOptions: WrapOptions{Command: "thoughtgate", Config: "/c"}}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v; want %q", text, err, wrong)
		}
	}
}
