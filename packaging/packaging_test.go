// Package packaging_test checks the ways to install the program: the image, the npm
// packages, the unit of systemd and go install. It builds them from the files that
// releases are built from. The rest of a release is checked by tools/release.
package packaging_test

import (
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long anything may take on a busy machine.
const patience = 15 * time.Minute

// The version that the program under test prints.
const (
	version = "1.2.3"
	commit  = "0123456789abcdef0123456789abcdef01234567"
	date    = "2026-11-16T00:00:00Z"
)

// An instruction is a line of the Dockerfile.
type instruction struct{ name, args string }

var continued = regexp.MustCompile(`\\\n\s*`)

// instructions returns the Dockerfile's, without comments.
func instructions(t testing.TB) []instruction {
	t.Helper()
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var all []instruction
	for line := range strings.Lines(continued.ReplaceAllString(string(text), "")) {
		name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" && !strings.HasPrefix(name, "#") {
			all = append(all, instruction{name, args})
		}
	}
	return all
}

// built is the program, made once by the command in the Dockerfile.
var built struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	var err error
	if built.dir, err = os.MkdirTemp("", "packaging"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(built.dir)
	os.Exit(status)
}

// program returns the file that the Dockerfile's command makes.
func program(t testing.TB) string {
	t.Helper()
	built.Do(func() { built.err = build(t) })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "thoughtgate")
}

func build(t testing.TB) error {
	if err := copyContext(t, filepath.Join(built.dir, "src")); err != nil {
		return err
	}
	for _, i := range instructions(t) {
		if i.name != "RUN" || !strings.Contains(i.args, "go build") {
			continue
		}
		cmd := exec.Command("sh", "-c", strings.ReplaceAll(i.args, "/out/", built.dir+"/"))
		cmd.Dir = filepath.Join(built.dir, "src")
		cmd.Env = append(os.Environ(), "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH, "VERSION="+version, "COMMIT="+commit, "DATE="+date)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Logf("%s", out)
			return err
		}
	}
	return nil
}

// copyContext copies what the image is built from, as .dockerignore says.
func copyContext(t testing.TB, to string) error {
	list, err := os.ReadFile("../.dockerignore")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(list)) {
		name, wanted := strings.CutPrefix(strings.TrimSpace(line), "!")
		if !wanted {
			continue
		}
		err := filepath.WalkDir(filepath.Join("..", name), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules"):
				return fs.SkipDir
			case d.IsDir() || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			return copyFile(path, filepath.Join(to, strings.TrimPrefix(path, "../")))
		})
		if err != nil {
			return err
		}
	}
	for _, line := range []string{"*\n", "**/*_test.go\n", "**/testdata\n", "**/node_modules\n"} {
		if !strings.Contains(string(list), line) {
			t.Errorf(".dockerignore has no line %q", line)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// output runs a command and returns what it prints.
func output(t testing.TB, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), env...), time.Minute
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestVersion checks that the release flags reach what they should set: a name
// that does not exist is ignored by the linker.
func TestVersion(t *testing.T) {
	t.Parallel()
	want := "thoughtgate " + version + " " + commit + " " + date + " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	if got := output(t, "", nil, program(t), "--version"); got != want {
		t.Errorf("--version: %s; want %s", got, want)
	}
}

// The flags of all builds set the same three names.
func TestLinkerFlags(t *testing.T) {
	t.Parallel()
	flag := regexp.MustCompile(`-X github\.com/thoughtgate/thoughtgate-go/internal/version\.(\w+)=`)
	for _, file := range []string{"../Dockerfile", "../.goreleaser.yaml", "../Makefile"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range flag.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
		if got := strings.Join(names, " "); got != "number commit date" {
			t.Errorf("%s sets %q", file, got)
		}
	}
}

// The program needs no library.
func TestStatic(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has ELF")
	}
	f, err := elf.Open(program(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program needs a dynamic linker")
		}
	}
}

// The configuration in the Debian package is good as it is.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	output(t, "", []string{"THOUGHTGATE_STATE_DIR=" + t.TempDir()}, program(t), "check", "--strict", "-c", "thoughtgate.yaml")
}

// A manual page exists for every command that help lists, and man accepts it.
func TestManual(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	output(t, "", nil, program(t), "man", dir)
	for _, page := range []string{"thoughtgate", "thoughtgate-serve", "thoughtgate-approvals-list", "thoughtgate-completion-bash"} {
		text, err := os.ReadFile(filepath.Join(dir, page+".1"))
		if err != nil {
			t.Error(err)
		}
		for _, section := range []string{".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH SEE ALSO"} {
			if !strings.Contains(string(text), section+"\n") {
				t.Errorf("%s has no %s", page, section)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "thoughtgate-man.1")); err == nil {
		t.Error("a hidden command has a page")
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if script := output(t, "", nil, program(t), "completion", shell); !strings.Contains(script, "thoughtgate") {
			t.Errorf("completion for %s: %s", shell, script)
		}
	}
	if got := output(t, "", nil, program(t), "__complete", "approvals", ""); !strings.Contains(got, "approve") {
		t.Errorf("completion: %s", got)
	}
}

// The image has one name, in the workflow that publishes it and wherever it is used.
func TestImageName(t *testing.T) {
	t.Parallel()
	const name = "ghcr.io/thoughtgate/thoughtgate"
	for file, want := range map[string]string{
		"../.github/workflows/release.yml":       name + ":${{ steps.version.outputs.number }}",
		"../deploy/helm/thoughtgate/values.yaml": "repository: " + name + "\n",
		"../deploy/kubernetes/central.yaml":      name + ":",
		"../deploy/kubernetes/sidecar.yaml":      name + ":",
		"../docs/install.md":                     name + ":VERSION",
		"../docs/deploy/kubernetes.md":           name,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not have %q", file, want)
		}
	}
}
