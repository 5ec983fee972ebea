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

// A ledger is an upstream that notes what it runs before it answers. The arguments of
// a call have its number, and say how the ledger behaves.
type ledger struct {
	url string

	mu      sync.Mutex
	runs    map[int]int
	jobs    int         // how many of them became tasks of the upstream's own
	stopped map[int]int // how often each call was cancelled, as a task or as a request

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

// numberOf returns the number of the call that a text is about.
func numberOf(text string) (n int) {
	if m := number.FindStringSubmatch(text); m != nil {
		fmt.Sscan(m[1], &n)
	}
	return n
}

var number = regexp.MustCompile(`\bn"?:(\d+)`)

// ran returns how often a call was run.
func (l *ledger) ran(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[n]
}

// stop notes that a call was cancelled.
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

// status returns how far a task of the upstream's own is. That of a call of
// hold_job goes on until it is cancelled; others have ended when somebody asks.
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

// ServeHTTP implements [http.Handler]. Calls of hold_task and hold_job become
// tasks of the upstream's own.
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	asked := answer{body: string(data)}
	request := requestID.FindStringSubmatch(asked.body)
	if request == nil { // a notification
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var result string
	switch id := asked.after(`"taskId":"`); asked.after(`"method":"`) {
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

// run runs a call and returns its result, or that of making it a task.
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
		case <-time.After(20 * time.Millisecond): // a tool that takes its time
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

// outcome is what a call answers. A large one does not fit into a task, and a huge
// one does not fit into the SQLite database: a file beside it keeps the rest.
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

// howToAnswer returns a way to answer, of which huge is the rarest.
func howToAnswer(dice *rand.Rand) string {
	if dice.IntN(12) == 0 {
		return "huge"
	}
	return []string{"quick", "slow", "large"}[dice.IntN(3)]
}
