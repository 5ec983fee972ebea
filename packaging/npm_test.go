package packaging_test

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A registry serves npm packages from files, as the public one does.
type registry struct {
	url      string
	packages map[string]jsontext.Value // the manifest by name
	tarballs map[string][]byte         // by file name
}

// publish makes the packages with the program of this platform and serves them.
// Those of other platforms are without a program; npm must not install them.
func publish(t *testing.T) *registry {
	t.Helper()
	dist, out := t.TempDir(), t.TempDir()
	for _, p := range [][2]string{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"}} {
		name, content := "thoughtgate", []byte("the program of another platform")
		if p[0] == "windows" {
			name += ".exe"
		}
		if p[0] == runtime.GOOS && p[1] == runtime.GOARCH {
			var err error
			if content, err = os.ReadFile(program(t)); err != nil {
				t.Fatal(err)
			}
		}
		dir := filepath.Join(dist, "thoughtgate_"+p[0]+"_"+p[1]+"_v1")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	output(t, "", nil, "go", "run", "./npm", "-version", version, "-dist", dist, "-out", out)
	r := &registry{packages: map[string]jsontext.Value{}, tarballs: map[string][]byte{}}
	files, err := filepath.Glob(filepath.Join(out, "*.tgz"))
	if err != nil || len(files) != 7 {
		t.Fatalf("%d packages: %v", len(files), err)
	}
	for _, file := range files {
		r.add(t, file)
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// add takes a package that npm has packed.
func (r *registry) add(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.tarballs[filepath.Base(file)] = text
	about := manifestIn(t, file)
	var name struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(about, &name); err != nil {
		t.Fatal(err)
	}
	r.packages[name.Name] = about
	t.Logf("%s: %d bytes", name.Name, len(text))
}

// manifestIn returns the package.json in a package.
func manifestIn(t *testing.T, file string) jsontext.Value {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for entries := tar.NewReader(unzipped); ; {
		entry, err := entries.Next()
		if err != nil {
			t.Fatalf("%s: no package.json: %v", file, err)
		}
		if entry.Name == "package/package.json" {
			text, err := io.ReadAll(entries)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
}

// ServeHTTP implements [http.Handler].
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name, _ := url.PathUnescape(strings.TrimPrefix(req.URL.EscapedPath(), "/"))
	if text, ok := r.tarballs[path.Base(name)]; ok {
		_, _ = w.Write(text)
		return
	}
	about, ok := r.packages[name]
	if !ok {
		http.NotFound(w, req)
		return
	}
	file := strings.ReplaceAll(strings.TrimPrefix(name, "@"), "/", "-") + "-" + version + ".tgz"
	sum := sha512.Sum512(r.tarballs[file])
	dist := fmt.Sprintf(`,"dist":{"tarball":"%s/tarballs/%s","integrity":"sha512-%s"}}`, r.url, file, base64.StdEncoding.EncodeToString(sum[:]))
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"name":%q,"dist-tags":{"latest":%q},"versions":{%[2]q:%s%s}}`,
		name, version, strings.TrimSuffix(strings.TrimSpace(string(about)), "}"), dist)
}

// TestNpx installs the packages with npm from a registry, and puts the gate in
// front of a server over standard input and output, as agents do.
func TestNpx(t *testing.T) {
	t.Parallel()
	r := publish(t)
	dir := t.TempDir()
	env := []string{"npm_config_registry=" + r.url, "npm_config_cache=" + t.TempDir(), "npm_config_update_notifier=false", "HOME=" + dir}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, dir, env, "npm", "install", "--no-audit", "--no-fund", "thoughtgate")
	installed, err := filepath.Glob(filepath.Join(dir, "node_modules/@thoughtgate/*"))
	if err != nil || len(installed) != 1 {
		t.Errorf("the platforms %q are installed", installed)
	}
	if got := output(t, dir, env, "npx", "thoughtgate", "--version"); !strings.HasPrefix(got, "thoughtgate "+version+" ") {
		t.Errorf("--version: %s", got)
	}
	status := exec.CommandContext(t.Context(), "npx", "thoughtgate", "bogus")
	status.Dir, status.Env = dir, append(os.Environ(), env...)
	if out, _ := status.CombinedOutput(); status.ProcessState.ExitCode() != 2 {
		t.Errorf("a wrong command: status %d: %s", status.ProcessState.ExitCode(), out)
	}
	wrapped(t, dir, env)
}

// server is an MCP server that says what it was called with.
const server = `
const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const results = {
    initialize: { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "test", version: "1" } },
    "tools/list": { tools: [{ name: "get_answer", inputSchema: { type: "object" } }] },
    "tools/call": { content: [{ type: "text", text: "called " + params?.name }] },
  };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, result: results[method] }));
});
`

// wrapped talks to a server through the wrapper, and ends the wrapper by a signal.
func wrapped(t *testing.T, dir string, env []string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "server.js"), []byte(server), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// npx itself does not pass on signals in every version, so the wrapper is run as npx runs it.
	cmd := exec.CommandContext(ctx, "node_modules/.bin/thoughtgate", "wrap", "--", "node", "server.js")
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), env...), time.Minute
	cmd.Env = append(cmd.Env, "THOUGHTGATE_STATE_DIR="+filepath.Join(dir, "state"))
	said := new(strings.Builder)
	cmd.Stderr = said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(out)
	ask := func(line, want string) {
		fmt.Fprintln(in, line)
		if want == "" {
			return
		}
		for answers.Scan() {
			if strings.Contains(answers.Text(), want) {
				return
			}
		}
		t.Fatalf("%s is not answered with %s; the wrapper said %s", line, want, said)
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, `"serverInfo"`)
	ask(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "")
	ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `"get_answer"`)
	ask(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"get_answer","arguments":{}}}`, "called get_answer")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for answers.Scan() { // to the end of the program
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v; the wrapper said %s", err, said)
	}
}
