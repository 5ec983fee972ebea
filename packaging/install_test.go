package packaging_test

import (
	"archive/zip"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module, tag = "github.com/thoughtgate/thoughtgate-go", "v" + version

// proxies returns the URLs of a module proxy in a directory, which has a version of the modules of
// this repository, and of the modules that were downloaded before.
func proxies(t *testing.T) string {
	t.Helper()
	program(t) // for the files of the module
	proxy := t.TempDir()
	src := filepath.Join(built.dir, "src")
	publishModule(t, src, module, proxy)
	library := t.TempDir()
	files, err := filepath.Glob("../gosdktask/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if stat, err := os.Stat(file); err == nil && stat.Mode().IsRegular() {
			if err := copyFile(file, filepath.Join(library, "gosdktask", filepath.Base(file))); err != nil {
				t.Fatal(err)
			}
		}
	}
	tool, err := filepath.Abs("../tools/version")
	if err != nil {
		t.Fatal(err)
	}
	output(t, library, nil, tool, tag)
	publishModule(t, filepath.Join(library, "gosdktask"), module+"/gosdktask", proxy)
	downloaded := filepath.Join(strings.TrimSpace(output(t, "", nil, "go", "env", "GOMODCACHE")), "cache", "download")
	return "file://" + proxy + ",file://" + downloaded
}

// publishModule adds the files in a directory to a proxy, as the version tag of a module.
func publishModule(t *testing.T, from, name, proxy string) {
	t.Helper()
	dir := filepath.Join(proxy, name, "@v")
	if err := copyFile(filepath.Join(from, "go.mod"), filepath.Join(dir, tag+".mod")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{tag + ".info": `{"Version":"` + tag + `"}`, "list": tag + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	zipModule(t, from, name+"@"+tag+"/", filepath.Join(dir, tag+".zip"))
}

// TestGoInstall installs a version of the module with go install, from a module
// proxy in a directory.
func TestGoInstall(t *testing.T) {
	t.Parallel()
	bin, cache := t.TempDir(), t.TempDir()
	output(t, t.TempDir(), []string{
		"GOBIN=" + bin, "GOMODCACHE=" + cache, "GONOSUMDB=*", "GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0", // as the other builds, whose packages are then used again
		"GOPROXY=" + proxies(t),
	}, "go", "install", module+"/cmd/thoughtgate@"+tag)
	if got := output(t, "", nil, filepath.Join(bin, "thoughtgate"), "--version"); !strings.HasPrefix(got, "thoughtgate "+tag+" ") {
		t.Errorf("--version: %s", got)
	}
}

// smallestServer is the smallest server with tasks.
const smallestServer = `package main

import (
	"context"
	"log"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/gosdktask"
)

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "smallest", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "work"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	tasks, err := gosdktask.Add(server, gosdktask.Options{Tools: map[string]gosdktask.Tool{"work": {}}})
	if err != nil {
		log.Fatal(err)
	}
	go tasks.Run(context.Background())
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", tasks.Handler(handler)))
}
`

// TestLibraryIsLight builds the smallest server in a module of its own, from released versions. It
// compiles and vendors only what a task server needs, and nothing of the gate.
func TestLibraryIsLight(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := []string{"GOMODCACHE=" + t.TempDir(), "GONOSUMDB=*", "GOFLAGS=-modcacherw -mod=mod -trimpath", "CGO_ENABLED=0", "GOWORK=off", "GOPROXY=" + proxies(t)}
	for name, text := range map[string]string{
		"main.go": smallestServer,
		"go.mod":  "module example.com/smallest\n\ngo 1.26.0\n\nrequire " + module + "/gosdktask " + tag + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	output(t, dir, env, "go", "build", "-ldflags=-s -w", "-o", "smallest", ".")
	if stat, err := os.Stat(filepath.Join(dir, "smallest")); err != nil {
		t.Error(err)
	} else {
		t.Logf("%d bytes", stat.Size())
	}
	want := []string{
		"github.com/go-json-experiment/json", "github.com/google/jsonschema-go", "github.com/modelcontextprotocol/go-sdk",
		"github.com/segmentio/asm", "github.com/segmentio/encoding", module, module + "/gosdktask",
		"github.com/yosida95/uritemplate/v3", "golang.org/x/oauth2", "golang.org/x/sync", "golang.org/x/sys", "golang.org/x/time",
	}
	compiled := strings.Fields(output(t, dir, env, "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "."))
	slices.Sort(compiled)
	if got := slices.Compact(compiled); len(slices.DeleteFunc(got, func(path string) bool { return slices.Contains(want, path) })) > 0 {
		t.Errorf("the server compiles also %s", got)
	}
	output(t, dir, env, "go", "mod", "vendor")
	list, err := os.ReadFile(filepath.Join(dir, "vendor", "modules.txt"))
	if err != nil {
		t.Fatal(err)
	}
	vendored := ""
	for line := range strings.Lines(string(list)) {
		words := strings.Fields(line)
		switch {
		case words[0] == "#":
			vendored = words[1]
		case words[0] != "##" && !slices.Contains(want, vendored):
			t.Errorf("the server vendors %s of %s", words[0], vendored)
		case strings.HasPrefix(words[0], module+"/internal/") && !slices.Contains(ofTheLibrary, strings.TrimPrefix(words[0], module+"/internal/")):
			t.Errorf("the server vendors %s of the gate", words[0])
		}
	}
}

// ofTheLibrary are the internal packages that the library uses.
var ofTheLibrary = []string{"pause", "safetext"}

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
