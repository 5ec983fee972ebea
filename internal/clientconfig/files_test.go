package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tailscale/hujson"

	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
)

const two = `{
  // mine
  "mcpServers": {
    "a": { "command": "npx", "args": ["-y", "a"] },
    "b": { "command": "uvx", },
  },
}
`

// write creates a file in the directory of the test, and the Files to change it.
func write(t *testing.T, content string) (Files, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	return Files{Dir: filepath.Join(t.TempDir(), "state")}, file
}

func cursor(t *testing.T) Client {
	t.Helper()
	c, err := Find("cursor")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func contentOf(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// only returns the only record.
func only(t *testing.T, f Files) Record {
	t.Helper()
	records, err := f.Records()
	if err != nil || len(records) != 1 {
		t.Fatalf("records %v, %v", records, err)
	}
	return records[0]
}

func TestUndoFixtures(t *testing.T) {
	fixtures(t, func(t *testing.T, c Client, _ string, content []byte) {
		f, file := write(t, string(content))
		if _, err := f.Wrap(c, file, gate); err != nil {
			t.Fatal(err)
		}
		once := contentOf(t, file)
		if once == string(content) {
			t.Fatal("nothing was wrapped")
		}
		if _, err := f.Wrap(c, file, gate); err != nil {
			t.Fatal(err)
		}
		if contentOf(t, file) != once {
			t.Error("the second run changed something")
		}
		r := only(t, f)
		if got := contentOf(t, r.Backup); got != string(content) {
			t.Errorf("the backup is\n%s", got)
		}
		u, err := f.Undo(r)
		if err != nil || !u.Identical || contentOf(t, file) != string(content) {
			t.Errorf("undone with %v, identical %t:\n%s", err, u.Identical, contentOf(t, file))
		}
		left, err := filepath.Glob(filepath.Join(f.Dir, "*"))
		if err != nil || len(left) != 1 || filepath.Ext(left[0]) != ".lock" {
			t.Errorf("files left: %v, %v", left, err)
		}
	})
}

func TestWrapKeepsModeAndLink(t *testing.T) {
	f, file := write(t, two)
	link := filepath.Join(t.TempDir(), "link.json")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wrap(cursor(t), link, gate); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != file {
		t.Errorf("the link is %q, %v", to, err)
	}
	about, err := os.Stat(file)
	if err != nil || about.Mode() != 0o640 {
		t.Errorf("%v, %v", about.Mode(), err)
	}
	for _, name := range []string{only(t, f).Backup, f.prefix(file) + ".json"} {
		if about, err := os.Stat(name); err != nil || about.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, about.Mode(), err)
		}
	}
	if about, err := os.Stat(f.Dir); err != nil || about.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", about.Mode(), err)
	}
	if !strings.Contains(contentOf(t, file), `"wrap"`) {
		t.Error("the file was not changed")
	}
}

// Servers that were wrapped one after the other are restored together.
func TestUndoSeveralRuns(t *testing.T) {
	f, file := write(t, two)
	for _, name := range []string{"a", "b"} {
		if _, err := f.Wrap(cursor(t), file, WrapOptions{Command: "thoughtgate", Servers: []string{name}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(contentOf(t, file), `"wrap"`); n != 2 {
		t.Fatalf("%d servers are wrapped", n)
	}
	u, err := f.Undo(only(t, f))
	if err != nil || !u.Identical || contentOf(t, file) != two {
		t.Errorf("undone with %v:\n%s", err, contentOf(t, file))
	}
}

// Changes by others are kept when a file is restored.
func TestUndoKeepsChanges(t *testing.T) {
	tests := []struct {
		name, old, new, want string
		kept                 string
	}{
		{"another server", `"b": {`, `"c": {"command": "x"}, "b": {`, strings.Replace(two, `"b": {`, `"c": {"command": "x"}, "b": {`, 1), ""},
		{"a comment", "// mine", "// yours", strings.Replace(two, "// mine", "// yours", 1), ""},
		{"an argument", `"a"]`, `"a", "more"]`, strings.Replace(two, `"a"]`, `"a", "more"]`, 1), "a"},
		{"added arguments", `"uvx"]`, `"uvx", "more",]`, strings.Replace(two, `{ "command": "uvx"`, `{ "args": ["more",], "command": "uvx"`, 1), "b"},
		{"the added arguments' form", `"uvx"]`, `"uvx",]`, strings.Replace(two, `{ "command": "uvx"`, `{ "args": [], "command": "uvx"`, 1), "b"},
		{"a server that is gone", `"args": ["wrap", "--name", "b", "--", "uvx"], "command": "thoughtgate"`, `"command": "other"`, strings.Replace(two, `"uvx"`, `"other"`, 1), ""},
		{"the program", `"command": "thoughtgate", "args": ["wrap", "--name", "a", "--", "npx", `, `"command": "/opt/thoughtgate", "args": ["wrap", "--config", "/c", "--name", "z", "--", "npx", `, two, "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, file := write(t, two)
			if _, err := f.Wrap(cursor(t), file, gate); err != nil {
				t.Fatal(err)
			}
			changed := strings.Replace(contentOf(t, file), tt.old, tt.new, 1)
			if changed == contentOf(t, file) {
				t.Fatalf("%q is not in\n%s", tt.old, changed)
			}
			if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			r := only(t, f)
			u, err := f.Undo(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := contentOf(t, file); got != tt.want || strings.Join(u.Kept, " ") != tt.kept || u.Identical != (tt.want == two) {
				t.Errorf("kept %v, identical %t:\n%s", u.Kept, u.Identical, got)
			}
			if _, err := os.Stat(r.Backup); (err == nil) == u.Identical {
				t.Errorf("the backup: %v", err)
			}
		})
	}
}

// A file that is not valid any more is not changed, and its backup is kept.
func TestUndoRefuses(t *testing.T) {
	for _, content := range []string{"{ broken", `{"mcpServers": {"a": {"command": 1}}}`, `{"mcpServers": {"a": {"command": "thoughtgate", "args": ["wrap"]}}}`} {
		f, file := write(t, two)
		if _, err := f.Wrap(cursor(t), file, gate); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Undo(only(t, f)); err == nil || contentOf(t, file) != content {
			t.Errorf("%v:\n%s", err, contentOf(t, file))
		}
		if contentOf(t, only(t, f).Backup) != two {
			t.Error("the backup was removed")
		}
	}
}

// Concurrent runs take turns.
func TestWrapConcurrently(t *testing.T) {
	const servers = 12
	content := `{"mcpServers": {`
	for i := range servers {
		content += fmt.Sprintf(`"s%d": {"command": "x"}, // %d`+"\n", i, i)
	}
	content += "}}"
	f, file := write(t, content)
	c := cursor(t)
	var all sync.WaitGroup
	for i := range servers {
		all.Go(func() {
			if _, err := f.Wrap(c, file, WrapOptions{Command: "thoughtgate", Servers: []string{fmt.Sprintf("s%d", i)}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := strings.Count(contentOf(t, file), `"wrap"`); n != servers {
		t.Errorf("%d servers are wrapped", n)
	}
	if u, err := f.Undo(only(t, f)); err != nil || !u.Identical || contentOf(t, file) != content {
		t.Errorf("undone with %v:\n%s", err, contentOf(t, file))
	}
}

// Writes of a client in the middle of a change are kept.
func TestWrapKeepsConcurrentWrites(t *testing.T) {
	f, file := write(t, two)
	writes := 0
	f.onStep = func(step string) {
		if step != "recorded" || writes == 3 {
			return
		}
		writes++
		added := strings.Replace(contentOf(t, file), `"a": {`, fmt.Sprintf(`"x%d": {"url": "http://x/sse"}, "a": {`, writes), 1)
		if err := os.WriteFile(file, []byte(added), 0o640); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.Wrap(cursor(t), file, gate); err != nil {
		t.Fatal(err)
	}
	content := contentOf(t, file)
	if strings.Count(content, `"wrap"`) != 2 || strings.Count(content, "http://x/sse") != 3 {
		t.Errorf("got\n%s", content)
	}
	if copies, err := filepath.Glob(f.Dir + "/*.backup"); err != nil || len(copies) != 1 || strings.Count(contentOf(t, copies[0]), "http://x/sse") != 3 {
		t.Errorf("backups %v, %v", copies, err)
	}
	if u, err := f.Undo(only(t, f)); err != nil || !u.Identical {
		t.Errorf("undone with %v:\n%s", err, contentOf(t, file))
	}

	f.onStep = func(step string) {
		if step == "recorded" {
			if err := os.WriteFile(file, append([]byte(contentOf(t, file)), ' '), 0o640); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := f.Wrap(cursor(t), file, gate); !errors.Is(err, errChanging) {
		t.Errorf("a file that keeps changing: %v", err)
	}
}

// crashing has the step at which the process of TestCrashHelper ends, and its task.
const crashing = "CLIENTCONFIG_TEST_CRASH"

// TestCrashHelper is the process that TestCrash stops.
func TestCrashHelper(t *testing.T) {
	step, rest, _ := strings.Cut(os.Getenv(crashing), "|")
	if step == "" {
		return // TestCrash did not start this process
	}
	dir, file, _ := strings.Cut(rest, "|")
	steps := 0
	f := Files{Dir: dir, onStep: func(name string) {
		if steps++; fmt.Sprint(steps) == step {
			fmt.Println("stopped at", name)
			os.Exit(0)
		}
	}}
	c, err := Find("cursor")
	if err != nil {
		t.Fatal(err)
	}
	records, err := f.Records()
	if err == nil && len(records) > 0 && strings.Contains(contentOf(t, file), `"wrap"`) {
		_, err = f.Undo(records[0])
	} else if err == nil {
		_, err = f.Wrap(c, file, gate)
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("finished")
}

// A process that is stopped between any two steps leaves the old file or the new one, and the next
// run succeeds.
func TestCrash(t *testing.T) {
	run := func(step int, f Files, file string) string {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashHelper$")
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", fmt.Sprintf("%s=%d|%s|%s", crashing, step, f.Dir, file))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	_, reference := write(t, two)
	change, err := cursor(t).Wrap([]byte(contentOf(t, reference)), gate)
	if err != nil {
		t.Fatal(err)
	}
	for undo := range 2 {
		for step := 1; ; step++ {
			f, file := write(t, two)
			if undo == 1 {
				run(0, f, file)
			}
			out := run(step, f, file)
			content := contentOf(t, file)
			if content != two && content != string(change.Text) {
				t.Fatalf("undo %d, step %d, %s:\n%s", undo, step, out, content)
			}
			if strings.Contains(out, "finished") {
				break
			}
			run(0, f, file) // completes the change or the undo
			run(0, f, file)
			for contentOf(t, file) != two {
				run(0, f, file)
			}
			entries, err := os.ReadDir(filepath.Dir(file))
			if err != nil || len(entries) != 1 {
				t.Errorf("step %d: files left: %v, %v", step, entries, err)
			}
		}
	}
}

func TestInvalidFilesAreRefused(t *testing.T) {
	tests := []struct{ client, content, want string }{
		{"cursor", `[]`, "the file must be a table"},
		{"cursor", `{"mcpServers": []}`, "mcpServers must be a table, and is an array"},
		{"cursor", `{"mcpServers": {"a": "npx"}}`, `server "a" has an unknown form: it must be a table`},
		{"cursor", `{"mcpServers": {"a": {"command": 1}}}`, `its command is a number`},
		{"cursor", `{"mcpServers": {"a": {"command": ""}}}`, `its command is empty`},
		{"cursor", `{"mcpServers": {"a": {"command": "x", "args": "y"}}}`, `its args must be an array`},
		{"cursor", `{"mcpServers": {"a": {"command": "x", "args": [1]}}}`, `its command line has a number`},
		{"cursor", `{"mcpServers": {"a": {"command": "x", "url": "y"}}}`, `it has a command and a URL`},
		{"cursor", `{"mcpServers": {"a": {"url": 1}}}`, `url must be a string`},
		{"cursor", `{"mcpServers": {"a": {"docker": "x"}}}`, `neither a command nor a URL`},
		{"cursor", `{"mcpServers": {"a": {"command": "x", "command": "y"}}}`, `duplicate name "command"`},
		{"cursor", `{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}`, `duplicate name "a"`},
		{"cursor", `{"mcpServers": {}, "mcpServers": {"a": {"command": "y"}}}`, `duplicate name "mcpServers"`},
		{"cursor", `{"mcpServers": {"a": {"command": "x"}}`, `not JSON: line 1, column`},
		{"cursor", "{\"mcpServers\": {\"\xff\": {\"command\": \"x\"}}", `not UTF-8`},
		{"cursor", strings.Repeat("[", 20_000), `nested too deeply`},
		{"cursor", "", `not JSON`},
		{"zed", `{"context_servers": {"a": {"command": {"args": []}}}}`, `its command has no path`},
		{"opencode", `{"mcp": {"a": {"type": "local", "command": []}}}`, `its command is empty`},
		{"codex", "[mcp_servers.a]\ncommand = 'x'\ncommand = 'y'", `not TOML: line 3`},
		{"codex", "[[mcp_servers.a]]\ncommand = 'x'", `it must be a table, and is an array`},
		{"codex", "[mcp_servers.a]\ncommand = 'x", `not TOML: line 2`},
	}
	for _, tt := range tests {
		c, err := Find(tt.client)
		if err != nil {
			t.Fatal(err)
		}
		f, file := write(t, tt.content)
		if _, err := f.Wrap(c, file, gate); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.60s: %v", tt.content, err)
		}
		if contentOf(t, file) != tt.content {
			t.Errorf("%.60s: the file was changed", tt.content)
		}
		if records, err := f.Records(); err != nil || len(records) > 0 {
			t.Errorf("%.60s: %v, %v", tt.content, records, err)
		}
	}
	if _, err := Find("emacs"); err == nil || !strings.Contains(err.Error(), "claude-code, claude-desktop") {
		t.Error(err)
	}
}

// An unknown form of a server that is not selected is not an error.
func TestOnlySelectedServersAreWrapped(t *testing.T) {
	content := []byte(`{"mcpServers": {"odd": {"x": 1}, "a": {"command": "x"}, "b": {"command": "y"}}}`)
	change, err := cursor(t).Wrap(content, WrapOptions{Command: "/opt/thoughtgate", Config: "/etc/a.yaml", Servers: []string{"a"}})
	want := `{"mcpServers": {"odd": {"x": 1}, "a": {"args": ["wrap", "--config", "/etc/a.yaml", "--name", "a", "--", "x"], "command": "/opt/thoughtgate"}, "b": {"command": "y"}}}`
	if err != nil || string(change.Text) != want {
		t.Errorf("%v: %s", err, change.Text)
	}
	if _, err := cursor(t).Wrap(content, WrapOptions{Servers: []string{"c"}}); err == nil || !strings.Contains(err.Error(), `no server "c" in the file`) {
		t.Error(err)
	}
	if change, err := cursor(t).Wrap([]byte("{}"), gate); err != nil || change.Patches != nil {
		t.Error(err)
	}
}

func TestReadOnlyFile(t *testing.T) {
	f, file := write(t, two)
	if err := os.Chmod(file, 0o400); err != nil {
		t.Fatal(err)
	}
	_, err := f.Wrap(cursor(t), file, gate)
	if os.Geteuid() != 0 && !errors.Is(err, os.ErrPermission) { // root may write it
		t.Error(err)
	}
	if _, err := f.Wrap(cursor(t), filepath.Dir(file), gate); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

// An independent parser accepts the fixtures as JSON with comments.
func TestFixturesParse(t *testing.T) {
	fixtures(t, func(t *testing.T, c Client, file string, content []byte) {
		if filepath.Ext(file) != ".json" {
			return
		}
		change, err := c.Wrap(content, gate)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := hujson.Parse(change.Text); err != nil || !bytes.Equal(v.Pack(), change.Text) {
			t.Error(err)
		}
	})
}

// Undo holds the lock of a file until the record is removed, so that the record of a concurrent
// wrap is not lost.
func TestUndoKeepsRecordOfConcurrentWrite(t *testing.T) {
	f, file := write(t, two)
	if _, err := f.Wrap(cursor(t), file, WrapOptions{Command: "thoughtgate", Servers: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	before := only(t, f)
	if _, err := f.Wrap(cursor(t), file, gate); err != nil { // after the other process has read the record
		t.Fatal(err)
	}
	steps := 0
	f.onStep = func(name string) {
		if name != "undone" {
			return
		}
		steps++
		if lock, err := localdesk.Lock(f.prefix(file) + ".lock"); !errors.Is(err, localdesk.ErrLocked) {
			t.Errorf("another process can wrap the file before its record is removed: %v", err)
			_ = lock.Close()
		}
	}
	if u, err := f.Undo(before); err != nil || !u.Identical || contentOf(t, file) != two || steps != 1 {
		t.Errorf("undone with %v, identical %t, after %d steps:\n%s", err, u.Identical, steps, contentOf(t, file))
	}
	if _, err := f.Undo(before); !errors.Is(err, ErrNothingToUndo) {
		t.Errorf("undone twice: %v", err)
	}
}
