package packaging_test

import (
	"archive/zip"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGoInstall installs a version of the module with go install, from a module
// proxy in a directory.
func TestGoInstall(t *testing.T) {
	t.Parallel()
	const module, tag = "github.com/thoughtgate/thoughtgate-go", "v" + version
	program(t) // for the files of the module
	proxy := filepath.Join(t.TempDir(), "proxy")
	dir := filepath.Join(proxy, module, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(built.dir, "src")
	if err := copyFile(filepath.Join(src, "go.mod"), filepath.Join(dir, tag+".mod")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{tag + ".info": `{"Version":"` + tag + `"}`, "list": tag + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	zipModule(t, src, module+"@"+tag+"/", filepath.Join(dir, tag+".zip"))
	downloaded := filepath.Join(strings.TrimSpace(output(t, "", nil, "go", "env", "GOMODCACHE")), "cache", "download")
	bin, cache := t.TempDir(), t.TempDir()
	output(t, t.TempDir(), []string{
		"GOBIN=" + bin, "GOMODCACHE=" + cache, "GONOSUMDB=*", "GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0", // as the other builds, whose packages are then used again
		"GOPROXY=file://" + proxy + ",file://" + downloaded,
	}, "go", "install", module+"/cmd/thoughtgate@"+tag)
	if got := output(t, "", nil, filepath.Join(bin, "thoughtgate"), "--version"); !strings.HasPrefix(got, "thoughtgate "+tag+" ") {
		t.Errorf("--version: %s", got)
	}
}

// zipModule puts all files in a directory into an archive of a module.
func zipModule(t *testing.T, dir, prefix, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	archive := zip.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		entry, err := archive.Create(prefix + filepath.ToSlash(strings.TrimPrefix(path, dir+"/")))
		if err == nil {
			_, err = entry.Write(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
