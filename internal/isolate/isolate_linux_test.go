package isolate

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/clientconfig"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// openDir returns a directory that all users can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// asNobody returns options for a person who is nobody.
func asNobody(t *testing.T) Options {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	return Options{Person: Person{Name: "nobody", UID: testenv.Nobody, GID: testenv.Nobody, Home: "/nonexistent"}}
}

// Root reads and writes files of the person with the rights of the person: a link to a file of root
// leads nowhere.
func TestFilesAreReadAsThePerson(t *testing.T) {
	o, dir := asNobody(t), openDir(t)
	secret, link, own := filepath.Join(dir, "secret"), filepath.Join(dir, "own", "link"), filepath.Join(dir, "own", "file")
	if err := errors.Join(os.WriteFile(secret, []byte("s"), 0o600), os.Mkdir(filepath.Dir(own), 0o700), os.Chown(filepath.Dir(own), testenv.Nobody, 0), os.Symlink(secret, link)); err != nil {
		t.Fatal(err)
	}
	err := o.asPerson(func() error {
		if _, err := os.ReadFile(link); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a file of root is read: %v", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a directory of root is written: %v", err)
		}
		return os.WriteFile(own, nil, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	about, err := os.Stat(own)
	if err != nil || about.Sys().(*syscall.Stat_t).Uid != testenv.Nobody {
		t.Errorf("the file belongs to %v, %v", about, err)
	}
	if _, err := os.ReadFile(secret); err != nil {
		t.Errorf("root has lost its rights: %v", err)
	}
}

// A program that the person could replace would get the keys.
func TestOnlyRootChanges(t *testing.T) {
	if shell, err := findProgram("sh"); err != nil || onlyRootChanges(shell) != nil {
		t.Error(shell, err, onlyRootChanges(shell))
	}
	if err := onlyRootChanges(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	dir := filepath.Join(t.TempDir(), "open")
	program := filepath.Join(dir, "program")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(program, nil, 0o700), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if err := onlyRootChanges(program); err == nil || !strings.Contains(err.Error(), "others than root can change") {
		t.Error(err)
	}
}

// A grant lets another user read or change exactly the named files, also those that are made later.
// Its revocation takes them away again, and what the servers have made belongs to the person.
func TestGrant(t *testing.T) {
	o := asNobody(t)
	if _, err := exec.LookPath("setfacl"); err != nil && !testenv.Available(t, errors.Join(testenv.ErrUnavailable, err)) {
		return
	}
	const service = "daemon" // stands for the user of the gate
	dir := filepath.Join(openDir(t), "notes")
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, []byte("text"), 0o600), os.Chown(dir, testenv.Nobody, testenv.Nobody), os.Chown(file, testenv.Nobody, testenv.Nobody)); err != nil {
		t.Fatal(err)
	}
	as := func(uid uint32, line string) bool {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return cmd.Run() == nil
	}
	for _, write := range []bool{false, true} {
		g := Grant{Path: dir, Directory: true, Write: write}
		if as(1, "cat "+file) {
			t.Fatal("the file can be read without a grant")
		}
		if err := o.runAsPerson(t.Context(), g.commands("nobody", service)); err != nil {
			t.Fatal(err)
		}
		if !as(1, "cat "+file) || as(1, "echo >>"+file) != write || as(1, "mkdir "+dir+"/made") != write {
			t.Errorf("write %t: the grant permits something else", write)
		}
		if !as(testenv.Nobody, "echo later >"+dir+"/later") || !as(1, "cat "+dir+"/later") || write && !as(testenv.Nobody, "echo >"+dir+"/made/file") {
			t.Errorf("write %t: the grant does not cover files that are made later", write)
		}
		if err := errors.Join(o.run(t.Context(), g.disown("nobody", service)), o.runAsPerson(t.Context(), g.revocation("nobody", service))); err != nil {
			t.Fatal(err)
		}
		if as(1, "cat "+file) || as(1, "ls "+dir) {
			t.Errorf("write %t: the file can be read after the revocation", write)
		}
	}
	if about, err := os.Stat(filepath.Join(dir, "made")); err != nil || about.Sys().(*syscall.Stat_t).Uid != testenv.Nobody {
		t.Errorf("what the servers have made belongs to %v, %v", about, err)
	}
}

// The unit passes systemd's checks, and the service could do little if it were taken over.
func TestUnit(t *testing.T) {
	analyze, err := testenv.SystemdAnalyze()
	if !testenv.Available(t, err) {
		return
	}
	s := &Setup{o: Options{Person: Person{Name: "ann"}, Program: "/bin/true"}, paths: pathsOf("ann")}
	s.record.Grants = []Grant{{Path: "/home/ann/my notes"}, {Path: "/home/ann/work", Write: true}}
	file := filepath.Join(t.TempDir(), "thoughtgate-ann.service")
	if err := os.WriteFile(file, []byte(s.unit()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", "--man=no", file}, {"security", "--offline=yes", "--threshold=25", file}} {
		out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}

// The same server of two clients is one at the gate; different ones of the same name are two.
func TestNamesAtTheGate(t *testing.T) {
	s := &Setup{}
	var names []string
	for _, key := range []string{"a", "b", "a", "b", "c"} {
		names = append(names, s.add(program("files", key)))
	}
	if want := []string{"files", "files-2", "files", "files-2", "files-3"}; !slices.Equal(names, want) {
		t.Errorf("%q; want %q", names, want)
	}
}

func program(name, key string) clientconfig.Program {
	return clientconfig.Program{Name: name, Command: []string{"files"}, Env: map[string]string{"KEY": key}}
}

// A setup that was stopped after any step can be undone, byte for byte.
func TestUndoOfEveryPart(t *testing.T) {
	const before = `{"mcpServers": {"a": {"command": "npx", "args": ["/home/ann/notes"], "env": {"KEY": "s3cret"}}}} // mine` + "\n"
	for done := 1; ; done++ {
		o := Options{Root: t.TempDir(), Program: "/usr/bin/thoughtgate", Inbox: "127.0.0.1:818", Person: Person{Name: "ann", UID: 1000, GID: 1000, Home: "/home/ann"}}
		file := o.at("/home/ann/.cursor/mcp.json")
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(before), 0o640)); err != nil {
			t.Fatal(err)
		}
		s, err := Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		if done > len(s.Work.steps) {
			return
		}
		s.Work.steps = s.Work.steps[:done]
		if err := s.Work.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		var notes strings.Builder
		undo, err := Undo(o, &notes)
		if err != nil {
			t.Fatal(err)
		}
		if err := undo.Do(t.Context()); err != nil || notes.Len() > 0 {
			t.Fatal(err, notes.String())
		}
		after, err := os.ReadFile(file)
		about, statErr := os.Stat(file)
		if string(after) != before || err != nil || statErr != nil || about.Mode() != 0o640 {
			t.Errorf("after %d steps: %v, %s, %v", done, about, after, err)
		}
		for _, pattern := range []string{"/etc/thoughtgate*", "/etc/systemd/system/*"} {
			if left, err := filepath.Glob(o.Root + pattern); len(left) > 0 || err != nil {
				t.Errorf("after %d steps: %q is left", done, left)
			}
		}
	}
}

// The plan warns of what would weaken the boundary, or keep a server from its files.
func TestWarnings(t *testing.T) {
	own := filepath.Join(t.TempDir(), "server")
	if err := errors.Join(os.WriteFile(own, nil, 0o700), os.Chmod(own, 0o777)); err != nil {
		t.Fatal(err)
	}
	s := &Setup{Work: &Work{}, o: Options{Person: Person{Name: "ann", UID: 1 << 20, GID: 1 << 20, Home: "/home/ann"}}}
	s.record.Grants = []Grant{{Path: "/home/ann/notes"}}
	s.programs = []clientconfig.Program{
		{Name: "a", Command: []string{"no-such-program", "/home/ann/notes/x", "/home/ann/notes2", "/home/annex"}},
		{Name: "b", Command: []string{own}},
	}
	s.warn()
	want := []string{
		"server a: the service does not find no-such-program in /usr/local/bin:/usr/bin:/bin",
		"server b: agents may replace its program, which gets its keys: others than root can change " + own,
		"server a: it cannot reach /home/ann/notes2; to let it, add --grant /home/ann/notes2 or --grant /home/ann/notes2:rw",
	}
	if got := s.Work.warnings; !slices.Equal(got[:min(len(got), 3)], want) {
		t.Errorf("%q; want %q", got, want)
	}
}

// The files of clients stay the person's, with their modes. A link of the person to a file that only
// root can read stops everything.
func TestClientFilesAreThePersons(t *testing.T) {
	o := asNobody(t)
	o.Person.Home = filepath.Join(openDir(t), "home")
	o.Program = "/usr/bin/thoughtgate"
	client := filepath.Join(o.Person.Home, ".cursor/mcp.json")
	const before = `{"mcpServers": {"a": {"command": "npx", "env": {"KEY": "s3cret"}}}}`
	if err := errors.Join(os.MkdirAll(filepath.Dir(client), 0o700), os.WriteFile(client, []byte(before), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path := client; path != filepath.Dir(o.Person.Home); path = filepath.Dir(path) {
		if err := os.Chown(path, testenv.Nobody, testenv.Nobody); err != nil {
			t.Fatal(err)
		}
	}
	s := &Setup{Work: &Work{}, o: o, paths: pathsOf("nobody")}
	if err := o.asPerson(s.readClients); err != nil || len(s.record.Files) != 1 {
		t.Fatal(s.record, err)
	}
	check := func(want string) {
		t.Helper()
		text, err := os.ReadFile(client)
		about, statErr := os.Stat(client)
		if err := errors.Join(err, statErr); err != nil {
			t.Fatal(err)
		}
		if owner := about.Sys().(*syscall.Stat_t).Uid; string(text) != want || owner != testenv.Nobody || about.Mode() != 0o600 {
			t.Errorf("%s of user %d, %v; want %s", text, owner, about.Mode(), want)
		}
	}
	if err := s.hide(client); err != nil {
		t.Fatal(err)
	}
	check(`{"mcpServers": {"a": {"args": ["wrap", "--socket", "/run/thoughtgate-nobody/agents.sock", "--name", "a"], "command": "/usr/bin/thoughtgate", "env": {"KEY": ""}}}}`)
	if err := s.hide(client); err == nil || !strings.Contains(err.Error(), "has changed since it was read") {
		t.Error(err)
	}
	if err := o.asPerson(func() error { return s.record.Files[0].restore(io.Discard) }); err != nil {
		t.Fatal(err)
	}
	check(before)
	secret := filepath.Join(filepath.Dir(o.Person.Home), "secret")
	if err := errors.Join(os.WriteFile(secret, []byte(before), 0o600), os.Remove(client), os.Symlink(secret, client)); err != nil {
		t.Fatal(err)
	}
	if err := o.asPerson(s.readClients); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a link to a file of root: %v", err)
	}
}
