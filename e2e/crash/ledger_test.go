package crash_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// A ledger is an upstream that notes what it runs before it answers. What a
// call does is said by its arguments: its number, and how to behave.
type ledger struct {
	url string

	mu   sync.Mutex
	runs map[int]int

	started chan int      // the calls that wait for release
	release chan struct{} // lets them answer
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{runs: make(map[int]int), started: make(chan int, 100), release: make(chan struct{})}
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

var number = regexp.MustCompile(`"n":(\d+)`)

// ran returns how often a call was run.
func (l *ledger) ran(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[n]
}

// ServeHTTP implements [http.Handler].
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	body := string(data)
	n := numberOf(body)
	if asked := (answer{body: body}); !asked.has(`"method":"tools/call"`) { // the gate wants to know what there is
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%q,"result":{"tools":[]}}`, asked.after(`"id":"`))
		return
	}
	l.mu.Lock()
	l.runs[n]++
	l.mu.Unlock()
	as := answer{body: body}.after(`"as":"`)
	switch as {
	case "slow":
		select {
		case <-time.After(20 * time.Millisecond): // a tool that takes its time
		case <-r.Context().Done():
		}
	case "told":
		l.started <- n
		select {
		case <-l.release:
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":%q}]}}`, outcome(n, as))
}

// outcome is what a call answers. A large one does not fit into a task.
func outcome(n int, as string) string {
	text := fmt.Sprintf("outcome of %d.", n)
	if as == "large" {
		text += strings.Repeat(" And so on.", 20_000)
	}
	return text
}
