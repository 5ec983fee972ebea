// Package release_test builds all that a release consists of, and checks it. It
// publishes nothing.
package release_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// output runs a command in the root of the project, and returns what it prints.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	// In a clone without a remote, goreleaser would not know the commit.
	cmd.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=remote.origin.url", "GIT_CONFIG_VALUE_0=https://github.com/thoughtgate/thoughtgate-go")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestSnapshot builds a release, and has each part of it checked.
func TestSnapshot(t *testing.T) {
	t.Log("goreleaser builds everything; this takes minutes")
	output(t, "go", "tool", "-modfile=tools/release/go.mod", "goreleaser", "release", "--snapshot", "--clean", "--skip=publish")
	var made struct {
		Version string `json:"version"`
	}
	decode(t, filepath.Join(root, "dist/metadata.json"), &made)
	t.Log("packaging/npm makes the npm packages")
	output(t, "go", "run", "./packaging/npm", "-version", made.Version, "-dist", "dist", "-out", "dist/npm")
	t.Run("programs", func(t *testing.T) { checkPrograms(t, made.Version) })
	t.Run("archives", func(t *testing.T) { checkArchives(t, made.Version) })
	t.Run("checksums", checkSums)
	t.Run("bills of materials", func(t *testing.T) { checkBills(t, made.Version) })
	t.Run("Debian packages", func(t *testing.T) { checkDebian(t, made.Version) })
	t.Run("npm packages", checkNpm)
	t.Run("formula", func(t *testing.T) { checkFormula(t, made.Version) })
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// found returns the files below dist that match a pattern, of which there must be
// so many.
func found(t *testing.T, pattern string, want int) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "dist", pattern))
	if err != nil || len(names) != want {
		t.Fatalf("%s: %d files, want %d: %v", pattern, len(names), want, err)
	}
	for _, name := range names {
		about, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", filepath.Base(name), about.Size())
	}
	return names
}

// Each platform has a program that is built without C and without the paths of the
// machine; the one of this platform says its version, commit and date.
func checkPrograms(t *testing.T, version string) {
	for _, file := range found(t, "thoughtgate_*/thoughtgate*", 6) {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" {
			t.Errorf("%s is built with %v", file, settings)
		}
		if settings["GOOS"] != runtime.GOOS || settings["GOARCH"] != runtime.GOARCH {
			continue
		}
		out, err := exec.CommandContext(t.Context(), file, "--version").Output()
		if err != nil {
			t.Fatal(err)
		}
		commit := strings.TrimSpace(output(t, "git", "rev-parse", "HEAD"))
		if got := string(out); !strings.HasPrefix(got, "thoughtgate "+version+" "+commit+" 20") {
			t.Errorf("--version: %s", got)
		}
	}
}

// Each archive has the program, the licence, manual pages and completions.
func checkArchives(t *testing.T, version string) {
	all := found(t, "thoughtgate_"+version+"_*.tar.gz", 4)
	all = append(all, found(t, "thoughtgate_"+version+"_*.zip", 2)...)
	for _, file := range all {
		names := entries(t, file)
		program := "thoughtgate"
		if strings.HasSuffix(file, ".zip") {
			program += ".exe"
		}
		for _, want := range []string{program, "LICENSE", "README.md", "man/thoughtgate-serve.1", "completions/thoughtgate.bash", "completions/thoughtgate.zsh", "completions/thoughtgate.fish"} {
			if !slices.Contains(names, want) {
				t.Errorf("%s has no %s: %q", file, want, names)
			}
		}
	}
}

// entries returns the names of the files in an archive.
func entries(t *testing.T, file string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(file, ".zip") {
		archive, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.File {
			names = append(names, f.Name)
		}
		return names
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}

// The list of checksums has every file that is published, with its digest.
func checkSums(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "dist/checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = sum
	}
	for _, pattern := range []string{"*.tar.gz", "*.zip", "*.deb", "*.cdx.json"} {
		names, err := filepath.Glob(filepath.Join(root, "dist", pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, file := range names {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(text)
			if listed[filepath.Base(file)] != hex.EncodeToString(sum[:]) {
				t.Errorf("the checksum of %s is not listed", file)
			}
		}
	}
}

// The bill of materials of a program lists exactly the modules in it.
func checkBills(t *testing.T, version string) {
	found(t, "*.cdx.json", 6)
	var bill struct {
		Format   string `json:"bomFormat"`
		Metadata struct {
			Component struct{ Version string }
		}
		Components []struct{ Name, Version string }
	}
	decode(t, filepath.Join(root, "dist/thoughtgate_"+version+"_linux_amd64.cdx.json"), &bill)
	if bill.Format != "CycloneDX" || bill.Metadata.Component.Version != version {
		t.Errorf("%s of version %s", bill.Format, bill.Metadata.Component.Version)
	}
	var got, want []string
	for _, c := range bill.Components {
		got = append(got, c.Name+"@"+c.Version)
	}
	info, err := buildinfo.ReadFile(found(t, "thoughtgate_linux_amd64*/thoughtgate", 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, "stdlib@"+info.GoVersion)
	for _, m := range info.Deps {
		want = append(want, m.Path+"@"+m.Version)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the bill lists %q; the program has %q", got, want)
	}
}

// The package of this machine is installed into a directory, where it has its
// files; it is removed, and leaves the configuration.
func checkDebian(t *testing.T, version string) {
	found(t, "*.deb", 2)
	machine := strings.TrimSpace(output(t, "dpkg", "--print-architecture"))
	var file string
	for _, f := range found(t, "thoughtgate_*_"+machine+".deb", 1) {
		file, _ = filepath.Abs(f)
	}
	if got := output(t, "dpkg-deb", "--field", file, "Version"); !strings.HasPrefix(got, strings.Split(version, "-")[0]) {
		t.Errorf("the package has version %s", got)
	}
	dir := t.TempDir()
	for _, name := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "var/lib/dpkg/status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// There is no shell below the directory; scripts see it as DPKG_ROOT.
	output(t, "dpkg", "--root="+dir, "--force-script-chrootless", "--install", file)
	for name, mode := range map[string]os.FileMode{
		"usr/bin/thoughtgate": 0o755, "lib/systemd/system/thoughtgate.service": 0o644, "etc/thoughtgate/thoughtgate.yaml": 0o644,
		"usr/share/man/man1/thoughtgate.1": 0o644, "usr/share/bash-completion/completions/thoughtgate": 0o644, "usr/share/doc/thoughtgate/copyright": 0o644,
	} {
		about, err := os.Stat(filepath.Join(dir, name))
		if err != nil || about.Mode() != mode {
			t.Errorf("%s: %v %v", name, about, err)
		}
	}
	output(t, filepath.Join(dir, "usr/bin/thoughtgate"), "check", "--strict", "-c", filepath.Join(dir, "etc/thoughtgate/thoughtgate.yaml"))
	if err := os.WriteFile(filepath.Join(dir, "etc/thoughtgate/thoughtgate.yaml"), []byte("version: 1 # mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, "dpkg", "--root="+dir, "--force-script-chrootless", "--install", file)
	if text, err := os.ReadFile(filepath.Join(dir, "etc/thoughtgate/thoughtgate.yaml")); err != nil || !strings.Contains(string(text), "# mine") {
		t.Errorf("an upgrade changed the configuration: %s %v", text, err)
	}
	output(t, "dpkg", "--root="+dir, "--force-script-chrootless", "--remove", "thoughtgate")
	if _, err := os.Stat(filepath.Join(dir, "usr/bin/thoughtgate")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "etc/thoughtgate/thoughtgate.yaml")); err != nil {
		t.Error(err)
	}
}

// Each npm package has what it starts.
func checkNpm(t *testing.T) {
	for _, file := range found(t, "npm/*.tgz", 7) {
		names := entries(t, file)
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "package/bin/thoughtgate") }) {
			t.Errorf("%s has no program: %q", file, names)
		}
	}
}

// The formula has an address and a digest for each platform of Homebrew.
func checkFormula(t *testing.T, version string) {
	text, err := os.ReadFile(filepath.Join(root, "dist/homebrew/Formula/thoughtgate.rb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64"} {
		name := "thoughtgate_" + version + "_" + platform + ".tar.gz"
		archive, err := os.ReadFile(filepath.Join(root, "dist", name))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(archive)
		if !strings.Contains(string(text), name) || !strings.Contains(string(text), hex.EncodeToString(sum[:])) {
			t.Errorf("the formula does not have %s with its digest", name)
		}
	}
}
