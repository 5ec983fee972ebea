package crash_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// A ledger is an upstream that records each call before it answers. The arguments of a call
// contain its number and the behaviour of the ledger.
type ledger struct {
	url string

	mu      sync.Mutex
	runs    map[int]int
	jobs    int         // how many of them became nested tasks
	stopped map[int]int // how often each call was cancelled, as a task or as a request
	age     int         // the number of restarts: each makes earlier sessions and keys invalid

	started chan int      // the calls that wait for release
	release chan struct{} // lets them answer
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{runs: make(map[int]int), stopped: make(map[int]int), started: make(chan int, 100), release: make(chan struct{})}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	l.url = server.URL
	return l
}

// numberOf returns the number of the call in a text.
func numberOf(text string) (n int) {
	if m := number.FindStringSubmatch(text); m != nil {
		fmt.Sscan(m[1], &n)
	}
	return n
}

var number = regexp.MustCompile(`\bn"?:(\d+)`)

// ran returns how often a call ran.
func (l *ledger) ran(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[n]
}

// stop records that a call was cancelled.
func (l *ledger) stop(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped[n]++
}

// halted reports whether a call was cancelled.
func (l *ledger) halted(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped[n] > 0
}

// status returns the status of a nested task. A call of hold_job runs until it is cancelled;
// others have ended when their status is requested.
func (l *ledger) status(id string) string {
	switch {
	case !strings.HasPrefix(id, "job "):
		return "completed"
	case l.halted(numberOf(id)):
		return "cancelled"
	default:
		return "working"
	}
}

// restart makes all sessions and keys invalid.
func (l *ledger) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.age++
}

// key returns the current key, which clients with a key must send.
func (l *ledger) key() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint("key-", l.age)
}

// refuses returns the status of a refusal, or 0.
func (l *ledger) refuses(r *http.Request) int {
	key, session := r.Header.Get("X-Api-Key"), r.Header.Get("Mcp-Session-Id")
	switch {
	case key != "" && key != l.key():
		return http.StatusUnauthorized
	case strings.HasPrefix(session, "begun-") && session != "begun-"+l.key():
		return http.StatusNotFound
	default:
		return 0
	}
}

// ServeHTTP implements [http.Handler]. Calls of hold_task and hold_job become nested tasks.
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	asked := answer{body: string(data)}
	if status := l.refuses(r); status != 0 {
		w.WriteHeader(status)
		return
	}
	request := requestID.FindStringSubmatch(asked.body)
	if request == nil { // a notification
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var result string
	switch id := asked.after(`"taskId":"`); asked.after(`"method":"`) {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", "begun-"+l.key())
		result = `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"ledger","version":"1"}}`
	case "tools/call":
		result = l.run(r, asked)
	case "tools/list":
		result = `{"tools":[{"name":"hold_task","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}},` +
			`{"name":"hold_job","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}`
	case "tasks/get":
		result = job(id, l.status(id))
	case "tasks/cancel":
		l.stop(numberOf(id))
		result = job(id, "cancelled")
	case "tasks/result":
		result = textResult(outcome(numberOf(id), "quick"))
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, request[1], result)
}

var requestID = regexp.MustCompile(`"id":("[^"]*"|\d+)`)

// run runs a call and returns its result, or the created task.
func (l *ledger) run(r *http.Request, call answer) string {
	n := numberOf(call.body)
	l.mu.Lock()
	l.runs[n]++
	if call.has(`"name":"hold_job"`) || call.has(`"name":"hold_task"`) {
		l.jobs++
	}
	l.mu.Unlock()
	as := call.after(`"as":"`)
	switch {
	case call.has(`"name":"hold_job"`):
		return `{"task":` + job(fmt.Sprintf(`job n:%d`, n), "working") + `}`
	case call.has(`"name":"hold_task"`):
		return `{"task":` + job(fmt.Sprintf(`up n:%d`, n), "working") + `}`
	case as == "slow":
		select {
		case <-time.After(20 * time.Millisecond): // a slow tool
		case <-r.Context().Done():
		}
	case as == "told":
		l.started <- n
		select {
		case <-l.release:
		case <-r.Context().Done():
		}
	}
	return textResult(outcome(n, as))
}

func job(id, status string) string {
	now := time.Now().UTC().Format(time.RFC3339)
	return fmt.Sprintf(`{"taskId":%q,"status":%q,"createdAt":%q,"lastUpdatedAt":%[3]q,"ttl":600000,"pollInterval":10}`, id, status, now)
}

func textResult(text string) string {
	return fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, text)
}

// outcome returns the text of a call's result. A large one does not fit into a task, and a
// huge one does not fit into the SQLite database: its rest is in a separate file.
func outcome(n int, as string) string {
	text := fmt.Sprintf("outcome of %d.", n)
	switch as {
	case "large":
		text += strings.Repeat(" And so on.", 20_000)
	case "huge":
		text += strings.Repeat(" And so on.", 120_000)
	}
	return text
}

// howToAnswer returns a random behaviour, rarely huge.
func howToAnswer(dice *rand.Rand) string {
	if dice.IntN(12) == 0 {
		return "huge"
	}
	return []string{"quick", "slow", "large"}[dice.IntN(3)]
}
