package packaging_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/demo"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// An image is what the last stage of the Dockerfile makes, in a directory.
type image struct {
	root     string
	user     uint32
	env      []string
	command  []string
	writable []string // its volumes
}

var copied = regexp.MustCompile(`^--from=build (?:--chown=(\d+):\d+ )?(\S+) (\S+)$`)

// unpack makes the image below root as the Dockerfile says.
func unpack(t *testing.T, root string) *image {
	t.Helper()
	all := instructions(t)
	im := &image{root: root}
	for n, i := range all {
		if i.name == "FROM" && i.args == "scratch" {
			all = all[n+1:]
			break
		}
	}
	for _, i := range all {
		switch i.name {
		case "COPY":
			im.copy(t, i.args)
		case "ENV":
			im.env = append(im.env, i.args)
		case "USER":
			id, _, _ := strings.Cut(i.args, ":")
			n, err := strconv.ParseUint(id, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			im.user = uint32(n)
		case "VOLUME":
			im.writable = append(im.writable, i.args)
		case "ENTRYPOINT", "CMD":
			for word := range strings.SplitSeq(strings.Trim(i.args, "[]"), ",") {
				im.command = append(im.command, strings.Trim(strings.TrimSpace(word), `"`))
			}
		case "EXPOSE":
		default:
			t.Fatalf("the test does not know %s", i.name)
		}
	}
	return im
}

// copy copies what the build stage has made: the program, certificates, or an
// empty directory.
func (im *image) copy(t *testing.T, args string) {
	t.Helper()
	m := copied.FindStringSubmatch(args)
	if m == nil {
		t.Fatalf("the test does not understand COPY %s", args)
	}
	to := filepath.Join(im.root, m[3])
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	switch m[2] {
	case "/out/thoughtgate":
		text, err := os.ReadFile(program(t))
		if err != nil {
			t.Fatal(err)
		}
		testenv.WriteProgram(t, to, string(text))
	case "/out/state":
		owner, _ := strconv.Atoi(m[1])
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(to, owner, owner); err != nil {
			t.Fatal(err)
		}
	default: // Debian's, as the image of the build stage has them
		text, err := os.ReadFile(m[2])
		if err == nil {
			err = os.WriteFile(to, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// size returns how many bytes the files of the image have.
func (im *image) size(t *testing.T) (total int64) {
	t.Helper()
	err := filepath.WalkDir(im.root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		about, err := d.Info()
		total += about.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// TestImage runs the content of the image as a container engine would: as its user,
// without any other file, and without a place to write but its volume. A call is
// forwarded, and another one is held, approved and run.
func TestImage(t *testing.T) {
	t.Parallel()
	program(t)
	root, err := testenv.SmallDisk(t, 256<<20)
	if !testenv.Available(t, err) {
		return
	}
	im := unpack(t, root)
	t.Logf("the image has %d bytes", im.size(t))
	if im.user == 0 {
		t.Fatal("the image's user is root")
	}
	up := httptest.NewServer(demo.New())
	t.Cleanup(up.Close)
	settings := filepath.Join(root, "etc/thoughtgate")
	if err := os.MkdirAll(settings, 0o755); err != nil {
		t.Fatal(err)
	}
	config := "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: " + operatorToken + "}\nupstreams: [{url: " + up.URL +
		"/mcp}]\nrules: [{match: 'read_*', action: forward}, {match: 'delete_*', action: approve}]\ndefault: deny\n"
	if err := os.WriteFile(filepath.Join(settings, "thoughtgate.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	im.protect(t)
	agents, operators := im.run(t)
	if got := callTool(t, agents, "read_file", "/notes/todo.txt"); !strings.Contains(got, `"text":`) {
		t.Errorf("a forwarded call: %s", got)
	}
	deleted := make(chan string, 1)
	go func() { deleted <- callTool(t, agents, "delete_file", "/notes/todo.txt") }()
	approveNext(t, operators)
	if got := <-deleted; !strings.Contains(got, "deleted /notes/todo.txt") {
		t.Errorf("a held call: %s", got)
	}
	if got, err := filepath.Glob(filepath.Join(root, im.writable[0], "thoughtgate.db")); err != nil || len(got) != 1 {
		t.Errorf("the store is not in the volume: %v", err)
	}
}

const operatorToken = "a-token-of-the-operators"

// protect makes everything but the volumes read-only.
func (im *image) protect(t *testing.T) {
	t.Helper()
	for _, dir := range im.writable {
		dir = filepath.Join(im.root, dir)
		if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	if err := syscall.Mount("", im.root, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(im.root, "probe"), nil, 0o600); err == nil {
		t.Fatal("the root can be written")
	}
}

// run starts the image's command and returns where it listens.
func (im *image) run(t *testing.T) (agents, operators string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), im.command[0], im.command[1:]...)
	cmd.Env, cmd.Dir = im.env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: im.root, Credential: &syscall.Credential{Uid: im.user, Gid: im.user}, Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		for lines.Scan() { // to the end of the program
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program ended with %v", err)
		}
	})
	listening := regexp.MustCompile(`"msg":"listening","agents":"([^"]+)","operators":"([^"]+)"`)
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			return "http://" + m[1], "http://" + m[2]
		}
	}
	t.Fatalf("it does not listen: %s", strings.Join(said, "\n"))
	return "", ""
}

// callTool makes a call as a client of 2026-07-28, and returns the answer.
func callTool(t *testing.T, agents, tool, path string) string {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"path":%q},"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, tool, path)
	return request(t, http.MethodPost, agents+"/mcp", body, "Accept", "application/json, text/event-stream",
		"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
}

// approveNext approves the next call that waits.
func approveNext(t *testing.T, operators string) {
	t.Helper()
	waiting := regexp.MustCompile(`"id":"(tg_[^"]+)"`)
	var id string
	for deadline := time.Now().Add(patience); id == ""; time.Sleep(50 * time.Millisecond) { // the gate limits requests
		if time.Now().After(deadline) {
			t.Fatal("no call waits")
		}
		if m := waiting.FindStringSubmatch(request(t, http.MethodGet, operators+"/api/approvals", "")); m != nil {
			id = m[1]
		}
	}
	url := operators + "/api/approvals/" + id
	shown := regexp.MustCompile(`"shownDigest":"([^"]+)"`).FindStringSubmatch(request(t, http.MethodGet, url, ""))
	if shown == nil {
		t.Fatal("nothing is shown")
	}
	request(t, http.MethodPost, url+"/approve", `{"shownDigest":"`+shown[1]+`"}`)
}

// request sends a request as an operator would, and returns the answer.
func request(t *testing.T, method, url, body string, headers ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+operatorToken)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s %s: %s %v %s", method, url, resp.Status, err, text)
	}
	return string(text)
}
