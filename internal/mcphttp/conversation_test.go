package mcphttp_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

var update = flag.Bool("update", false, "rewrite what agent and upstream see in testdata")

// TestConversations plays the conversations in testdata, with one directory per protocol
// version. "agent" and "upstream" are the inputs; "upstream sees" and "agent sees" are the
// expected results. "rules" is the policy, with one pattern and action per line, and "settings"
// changes the gate.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(file, "testdata/"), ".txtar"), func(t *testing.T) {
			t.Parallel()
			script, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := &txtar.Archive{Comment: script.Comment, Files: play(t, script)}
			if *update {
				if err := os.WriteFile(file, txtar.Format(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(txtar.Format(script)), string(txtar.Format(got))); diff != "" && !*update {
				t.Errorf("unexpected conversation (-want +got):\n%s", diff)
			}
		})
	}
}

// A turn is a request and the channel for its answer.
type turn struct{ agent, upstream []byte }

func turns(script *txtar.Archive) []turn {
	var list []turn
	for _, f := range script.Files {
		switch f.Name {
		case "agent":
			list = append(list, turn{agent: f.Data})
		case "upstream":
			list[len(list)-1].upstream = f.Data
		}
	}
	return list
}

func play(t *testing.T, script *txtar.Archive) []txtar.File {
	up := newScripted(t)
	files := slices.DeleteFunc(slices.Clone(script.Files), func(f txtar.File) bool {
		return f.Name != "rules" && f.Name != "settings"
	})
	g := startGate(t, up.url(), func(s settings) { s.handler.Catalog, s.handler.Waiting.Drafts = governing(t, files), true })
	for _, turn := range turns(script) {
		up.answer = turn.upstream
		agentSees := speak(t, g.addr, turn.agent)
		files = append(files, txtar.File{Name: "agent", Data: turn.agent})
		if seen := up.takeSeen(); seen != nil {
			files = append(files,
				txtar.File{Name: "upstream sees", Data: seen},
				txtar.File{Name: "upstream", Data: turn.upstream})
		} else if turn.upstream != nil {
			t.Fatal("the script has an answer for a request that never reached the upstream")
		}
		files = append(files, txtar.File{Name: "agent sees", Data: agentSees})
	}
	return files
}

// governing returns a gate with the policy and settings of a script.
func governing(t *testing.T, files []txtar.File) *catalog.Catalog {
	s := &catalog.Settings{HideDenied: true}
	var cfg policy.Config
	for _, f := range files {
		for line := range strings.Lines(string(f.Data)) {
			words := strings.Fields(line)
			switch {
			case f.Name == "rules":
				rule := policy.Rule{Match: words[0], Action: policy.Action(words[1]), Reason: strings.Join(words[2:], " ")}
				cfg.Rules = append(cfg.Rules, rule)
			case words[0] == "observe":
				cfg.Observe = true
			case words[0] == "show":
				s.HideDenied = false
			case words[0] == "tasks-only":
				s.TasksOnly = true
			case words[0] == "force-required":
				s.ForceRequired = words[1:]
			default:
				t.Fatalf("unknown setting %q", line)
			}
		}
	}
	if cfg.Rules != nil {
		cfg.Default.Action = policy.Deny
		var err error
		if s.Policy, _, err = policy.Compile(cfg); err != nil {
			t.Fatal(err)
		}
	}
	return catalog.New(s, time.Now, slog.New(slog.DiscardHandler), nil)
}

// speak sends a request given as text, and returns the answer as text.
func speak(t *testing.T, addr string, text []byte) []byte {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	head, body, _ := strings.Cut(string(text), "\n\n")
	line, fields, _ := strings.Cut(strings.TrimSuffix(head, "\n"), "\n")
	body = strings.TrimSuffix(body, "\n")
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s HTTP/1.1\r\n", line)
	if !strings.Contains(fields, "Host:") {
		fmt.Fprintf(&out, "Host: %s\r\n", addr)
	}
	for field := range strings.Lines(fields) {
		fmt.Fprintf(&out, "%s\r\n", strings.TrimRight(field, "\n"))
	}
	fmt.Fprintf(&out, "Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return show(t, resp.Status, resp.Header, resp.Body)
}

var correlation = regexp.MustCompile(`"correlation_id":"[0-9a-f-]{36}"`)

func show(t *testing.T, line string, header http.Header, body io.Reader) []byte {
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	fmt.Fprintln(&out, line)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if name == "Date" || name == "Content-Length" || name == "Connection" {
			continue
		}
		for _, value := range header[name] {
			fmt.Fprintf(&out, "%s: %s\n", name, value)
		}
	}
	fmt.Fprintf(&out, "\n%s\n", correlation.ReplaceAll(text, []byte(`"correlation_id":"CORRELATION"`)))
	return bytes.ReplaceAll(out.Bytes(), []byte("\n\n\n"), []byte("\n\n"))
}

// A scripted upstream records its requests and sends scripted answers.
type scripted struct {
	t        *testing.T
	listener net.Listener
	answer   []byte
	seen     chan []byte
}

func newScripted(t *testing.T) *scripted {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{t: t, listener: listener, seen: make(chan []byte, 1)}
	done := make(chan struct{})
	go func() { defer close(done); s.run() }()
	t.Cleanup(func() { listener.Close(); <-done })
	return s
}

func (s *scripted) url() string { return "http://" + s.listener.Addr().String() + "/server" }

func (s *scripted) takeSeen() []byte {
	select {
	case seen := <-s.seen:
		return seen
	default:
		return nil
	}
}

func (s *scripted) run() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.serve(conn)
	}
}

func (s *scripted) serve(conn net.Conn) {
	defer conn.Close()
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		s.t.Error(err)
		return
	}
	s.seen <- show(s.t, r.Method+" "+r.RequestURI, r.Header, r.Body)
	head, body, _ := strings.Cut(string(s.answer), "\n\n")
	body = strings.TrimSuffix(body, "\n")
	if strings.Contains(head, "text/event-stream") {
		body += "\n\n"
	} else {
		head += "\nContent-Length: " + strconv.Itoa(len(body))
	}
	head = strings.ReplaceAll(strings.TrimSuffix(head, "\n"), "\n", "\r\n")
	fmt.Fprintf(conn, "HTTP/1.1 %s\r\nConnection: close\r\n\r\n%s", head, body)
}
