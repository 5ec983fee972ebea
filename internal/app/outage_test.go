package app_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// A troubledGate is a gate whose store fails. Calls of free_* need no approval, those of
// hold_* do.
type troubledGate struct {
	*app.App

	t     *testing.T
	close func()
	calls int // held so far; all calls differ
}

// listsNoTools returns an upstream that lists no tools, and is otherwise like next.
func listsNoTools(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"tools/list"`) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"tools":[]}}`)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next(w, r)
	}
}

// answering returns the URL of an upstream that answers every call with the text.
func answering(t *testing.T, text string) string {
	t.Helper()
	up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[{"type":"text","text":"`+text+`"}]}}`)
	}))
	t.Cleanup(up.Close)
	return up.URL
}

func openTroubled(t *testing.T, store string) *troubledGate {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	a, stop := start(t, troubledConfig(answering(t, "done"), store))
	s := &troubledGate{App: a, t: t, close: sync.OnceFunc(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})}
	t.Cleanup(s.close)
	return s
}

func troubledConfig(upstream, store string) string {
	timeout := "2s"
	if strings.HasPrefix(store, "sqlite:") {
		timeout = "1m" // long enough for every test
	}
	return strings.NewReplacer("store: 'memory:'", "store: '"+store+"'", "operators: {", "operators: {token: secret-of-the-operators, ").Replace(gatewayFor(upstream)) +
		"storage: {timeout: " + timeout + "}\ntasks: {cleanup_interval: 1s, max_pending_per_owner: 100000, max_pending: 100000}\n" +
		"rules: [{match: 'hold_*', action: approve}, {match: 'free_*', action: forward}]\ndefault: deny\n"
}

// hold makes a call that needs approval, with arguments of about size bytes, and returns the
// answer.
func (s *troubledGate) hold(size int) string {
	s.t.Helper()
	s.calls++
	return say(s.t, s.AgentAddr(), "tools/call",
		fmt.Sprintf(`{"name":"hold_x","arguments":{"n":%d,"fill":%q},"task":{}}`, s.calls, strings.Repeat("x", size)))
}

// modern makes the same call as a client of 2026-07-28, and returns the status and the answer.
func (s *troubledGate) modern() (int, string) {
	s.t.Helper()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.AgentAddr()+"/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold_x","arguments":{},`+meta+`}}`))
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "hold_x",
	} {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (s *troubledGate) readiness(query string) (int, string) {
	s.t.Helper()
	return get(s.t, "http://"+s.OperatorAddr()+"/readyz"+query)
}

const patience = 2 * time.Minute

// until waits for a condition.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s did not happen within %v", what, patience)
		}
	}
}

// inTrouble checks everything that users see while the store is unavailable.
func (s *troubledGate) inTrouble() {
	s.t.Helper()
	until(s.t, "trouble", func() bool { return strings.Contains(s.hold(10), `"code":-32013`) })
	if answer := s.hold(10); !strings.Contains(answer, `"error_type":"store_unavailable"`) || !strings.Contains(answer, "the call did not run") {
		s.t.Errorf("a call that needs approval: %s; want the refusal store_unavailable", answer)
	}
	if status, answer := s.modern(); status != http.StatusServiceUnavailable || !strings.Contains(answer, `"code":-32603`) ||
		!strings.Contains(answer, "store_unavailable") {
		s.t.Errorf("the same call of a modern client: %d %s", status, answer)
	}
	if answer := say(s.t, s.AgentAddr(), "tools/call", `{"name":"free_x"}`); !strings.Contains(answer, "done") {
		s.t.Errorf("a call that needs no approval: %s", answer)
	}
	if status, text := s.readiness(""); status != http.StatusOK || !strings.Contains(text, "ready\nstore unavailable: calls that need approval are refused") {
		s.t.Errorf("readiness: %d %s; want a note about the store", status, text)
	}
	if status, text := s.readiness("?require=store"); status != http.StatusServiceUnavailable || strings.HasPrefix(text, "ready") {
		s.t.Errorf("readiness with require=store: %d %s", status, text)
	}
	if _, text := get(s.t, "http://"+s.OperatorAddr()+"/metrics"); !strings.Contains(text, "\nthoughtgate_store_up 0\n") {
		s.t.Error("the metrics do not show that the store is unavailable")
	}
}

// recovers checks that the gate recovers without intervention. It waits for each condition,
// because a store that has just come back may be so slow that it counts as unavailable once
// more.
func (s *troubledGate) recovers() {
	s.t.Helper()
	until(s.t, "recovery", func() bool { return strings.Contains(s.hold(10), `"taskId":"tg_`) })
	for _, query := range []string{"", "?require=store"} {
		until(s.t, "readiness"+query, func() bool {
			status, text := s.readiness(query)
			return status == http.StatusOK && text == "ready\n"
		})
	}
	until(s.t, "store_up in metrics", func() bool {
		_, text := get(s.t, "http://"+s.OperatorAddr()+"/metrics")
		return strings.Contains(text, "\nthoughtgate_store_up 1\n")
	})
}

// A server is a store that tests can stop.
type server interface {
	URL() string
	Kill() error
	Start(ctx context.Context) error
	Stop() error
}

func servers(t *testing.T, run func(t *testing.T, s server)) {
	t.Helper()
	for name, start := range map[string]func() (server, error){
		"PostgreSQL": func() (server, error) { return testenv.StartPostgres(context.WithoutCancel(t.Context())) },
		"Redis":      func() (server, error) { return testenv.StartRedis(context.WithoutCancel(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := start()
			if !testenv.Available(t, err) {
				return
			}
			t.Cleanup(func() { s.Stop() })
			run(t, s)
		})
	}
}

// The store is down when the gate starts, comes up, goes down while the gate runs, and comes
// back. Earlier held calls are still in it.
func TestServerDown(t *testing.T) {
	servers(t, func(t *testing.T, db server) {
		if err := db.Kill(); err != nil {
			t.Fatal(err)
		}
		s := openTroubled(t, db.URL())
		s.inTrouble()
		if err := db.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.recovers()
		before := strings.Count(s.list(), "tg_")

		if err := db.Kill(); err != nil {
			t.Fatal(err)
		}
		s.inTrouble()
		if answer := say(t, s.AgentAddr(), "tasks/list", `{}`); !strings.Contains(answer, "store_unavailable") {
			t.Errorf("tasks/list: %s", answer)
		}
		if err := db.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := strings.Count(s.list(), "tg_"); after < before { // a call that timed out may have been stored
			t.Errorf("%d tasks before, %d after", before, after)
		}
		s.recovers()
	})
}

// list returns the stored tasks, once they can be read.
func (s *troubledGate) list() (answer string) {
	s.t.Helper()
	until(s.t, "a list", func() bool {
		answer = say(s.t, s.AgentAddr(), "tasks/list", `{}`)
		return !strings.Contains(answer, "error")
	})
	return answer
}

// A request that waits for a decision when the store goes down still waits, and is answered,
// when the store is back.
func TestWaitSurvivesStoreOutage(t *testing.T) {
	servers(t, func(t *testing.T, db server) {
		s := openTroubled(t, db.URL())
		var id string
		until(t, "a held call", func() bool {
			_, rest, held := strings.Cut(s.hold(10), `"taskId":"`)
			id, _, _ = strings.Cut(rest, `"`)
			return held
		})
		result := s.await(id)
		if err := db.Kill(); err != nil {
			t.Fatal(err)
		}
		s.inTrouble()
		if err := db.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.recovers()
		until(t, "the approval", func() bool {
			answer := approve(t, s.OperatorAddr(), id)
			return strings.Contains(answer, `"approved"`) || strings.Contains(answer, `"executing"`) || strings.Contains(answer, `"completed"`)
		})
		if answer := <-result; !strings.Contains(answer, "done") {
			t.Errorf("tasks/result: %s", answer)
		}
	})
}

// await asks for the result of a task, and returns once the gate has begun its answer, and so
// has begun to wait. From then on, an unavailable store does not end the wait.
func (s *troubledGate) await(id string) <-chan string {
	s.t.Helper()
	var result chan string
	until(s.t, "a request that waits", func() bool {
		resp := s.askResult(id)
		if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") { // the store did not answer in time
			resp.Body.Close()
			return false
		}
		result = make(chan string, 1)
		go func() {
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				body = []byte(err.Error())
			}
			result <- string(body)
		}()
		return true
	})
	return result
}

func (s *troubledGate) askResult(id string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.AgentAddr()+"/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"`+id+`"}}`))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s-1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

// A line is a proxy of a server. While it is dead, it neither delivers nor refuses data.
type line struct {
	net.Listener

	to    string
	ended sync.WaitGroup

	mu   sync.Mutex
	dead bool
	wake *sync.Cond
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := &line{Listener: l, to: to}
	proxy.wake = sync.NewCond(&proxy.mu)
	proxy.ended.Go(proxy.serve)
	t.Cleanup(func() { proxy.set(false); l.Close(); proxy.ended.Wait() })
	return proxy
}

func (l *line) serve() {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		l.ended.Go(func() {
			defer from.Close()
			to, err := net.Dial("tcp", l.to)
			if err != nil {
				return
			}
			defer to.Close()
			l.ended.Go(func() { l.carry(to, from); to.Close(); from.Close() })
			l.carry(from, to)
		})
	}
}

func (l *line) carry(to, from net.Conn) {
	chunk := make([]byte, 4096)
	for {
		n, err := from.Read(chunk)
		l.mu.Lock()
		for l.dead {
			l.wake.Wait()
		}
		l.mu.Unlock()
		if _, failed := to.Write(chunk[:n]); failed != nil || err != nil {
			return
		}
	}
}

func (l *line) set(dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = dead
	l.wake.Broadcast()
}

// The store accepts connections but does not answer, both when the gate starts and while it
// runs.
func TestServerSilent(t *testing.T) {
	servers(t, func(t *testing.T, db server) {
		_, rest, _ := strings.Cut(db.URL(), "127.0.0.1:")
		port, _, _ := strings.Cut(rest, "/")
		proxy := newLine(t, "127.0.0.1:"+port)
		_, own, _ := net.SplitHostPort(proxy.Addr().String())
		proxy.set(true)
		s := openTroubled(t, strings.Replace(db.URL(), port, own, 1))
		s.inTrouble()
		proxy.set(false)
		s.recovers()
		proxy.set(true)
		s.inTrouble()
		proxy.set(false)
		s.recovers()
	})
}

// A full disk refuses held calls until space is free again.
func TestFullDisk(t *testing.T) {
	dir, err := testenv.SmallDisk(t, 2<<20)
	if !testenv.Available(t, err) {
		return
	}
	s := openTroubled(t, "sqlite:"+filepath.Join(dir, "gate.db"))
	s.recovers()
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	if err := os.Truncate(ballast, size(t, ballast)-40_000); err != nil { // leaves a little space
		t.Fatal(err)
	}
	until(t, "a full disk", func() bool { return strings.Contains(s.hold(60_000), "store_unavailable") })
	calm := time.Now().Add(time.Second)
	until(t, "one second", func() bool {
		if status, text := s.readiness("?require=store"); status != http.StatusServiceUnavailable {
			t.Fatalf("readiness of a gate that cannot keep a large call: %d %s", status, text)
		}
		return time.Now().After(calm)
	})
	fill(t, ballast+"2")
	s.inTrouble()
	if answer := say(t, s.AgentAddr(), "tasks/list", `{}`); !strings.Contains(answer, "tg_") {
		t.Errorf("stored tasks cannot be read: %s", answer)
	}
	if err := errors.Join(os.Remove(ballast), os.Remove(ballast+"2")); err != nil {
		t.Fatal(err)
	}
	s.recovers()
}

func size(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// fill writes to a file until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
}

// The files of the store become read-only, and then writable again.
func TestReadOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gate.db")
	s := openTroubled(t, "sqlite:"+file)
	s.recovers()
	thaw, err := testenv.Freeze(t, file, file+"-wal") // not the index in shared memory: a write to it would be a bus error
	if !testenv.Available(t, err) {
		return
	}
	s.inTrouble()
	thaw()
	s.recovers()
}

// The file is overwritten while the gate runs, and then restored.
func TestDamage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gate.db")
	s := openTroubled(t, "sqlite:"+file)
	for range 100 {
		s.hold(5000)
	}
	s.close() // merges the write-ahead log into the file
	s = openTroubled(t, "sqlite:"+file)
	good := corrupt(t, file)
	s.inTrouble()
	restored := file + ".restored" // restored backups are also new files
	if err := errors.Join(os.WriteFile(restored, good, 0o600), os.Rename(restored, file)); err != nil {
		t.Fatal(err)
	}
	s.recovers()
}

// corrupt overwrites all pages of a database except the first, and returns the original
// content.
func corrupt(t *testing.T, file string) []byte {
	t.Helper()
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	if len(good) < 10*page {
		t.Fatalf("the file has only %d bytes, so it has no content yet", len(good))
	}
	bad := append(bytes.Clone(good[:page]), bytes.Repeat([]byte("?"), len(good)-page)...)
	if err := os.WriteFile(file, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	return good
}

// A gate does not start with a store error that waiting cannot fix, and its error names the
// cause.
func TestMisconfigured(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("text.db", strings.Repeat("this is no database\n", 1000))
	tests := map[string]struct{ store, want string }{
		"no database":     {"sqlite:" + path("text.db"), "damaged"},
		"a directory":     {"sqlite:" + dir, "directory"},
		"below a file":    {"sqlite:" + path("text.db/gate.db"), "not a directory"},
		"a bad URL":       {"postgres://u:secret@127.0.0.1:1/db?sslmode=perhaps", "sslmode"},
		"another bad URL": {"redis://127.0.0.1:1/abc?x=y", "URL"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := newApp(t, patientConfig(tt.store))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v; want one about %q", err, tt.want)
			}
		})
	}
}

// The server is available, but refuses the gate.
func TestMisconfiguredServer(t *testing.T) {
	db, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
	if !testenv.Available(t, err) {
		return
	}
	defer db.Stop()
	for want, store := range map[string]string{
		"does not exist": strings.Replace(db.URL(), "/postgres?", "/nowhere?", 1),
		"role":           strings.Replace(db.URL(), "postgres@", "nobody@", 1),
		"schema":         db.URL() + "&search_path=nowhere",
	} {
		_, err := newApp(t, patientConfig(store))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one about %q", err, want)
		}
	}
	cache, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
	if !testenv.Available(t, err) {
		return
	}
	defer cache.Stop()
	if _, err := cache.Do(t.Context(), "CONFIG", "SET", "requirepass", "right"); err != nil {
		t.Fatal(err)
	}
	for want, store := range map[string]string{
		"NOAUTH":    cache.URL(),
		"WRONGPASS": strings.Replace(cache.URL(), "redis://", "redis://:wrong@", 1),
		"DB index":  strings.Replace(cache.URL(), "redis://", "redis://:right@", 1) + "/99",
	} {
		_, err := newApp(t, patientConfig(store))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one about %q", err, want)
		}
	}
}
