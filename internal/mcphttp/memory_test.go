package mcphttp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

const (
	hugeSize   = 10 << 20
	hugeGrowth = 7 << 20 // maximum growth of the heap meanwhile: less than one copy
)

// writeHuge writes an answer of about hugeSize bytes, and returns the digest of its result.
func writeHuge(w io.Writer, id string) hash.Hash {
	digest := sha256.New()
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":`, id)
	both := io.MultiWriter(w, digest)
	io.WriteString(both, `{"resultType":"complete","content":[{"type":"text","text":"`)
	text := strings.Repeat("All work and no play makes Jack a dull boy.\\n", 1024)
	for n := 0; n < hugeSize; n += len(text) {
		io.WriteString(both, text)
		if n%8 == 0 {
			io.WriteString(both, "\"},\n{\"type\":\"text\",\"text\":\"")
		}
	}
	io.WriteString(both, `"}]}`)
	io.WriteString(w, "}")
	return digest
}

// A heapGauge measures the growth of the heap.
type heapGauge struct {
	start, peak uint64
	stop, done  chan struct{}
}

func heapNow() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func watchHeap() *heapGauge {
	runtime.GC()
	g := &heapGauge{start: heapNow(), stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(g.done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				g.peak = max(g.peak, heapNow())
			case <-g.stop:
				return
			}
		}
	}()
	return g
}

// check fails the test if the heap has grown too much.
func (g *heapGauge) check(t *testing.T, what string) {
	t.Helper()
	close(g.stop)
	<-g.done
	growth := int64(g.peak) - int64(g.start)
	t.Logf("%s: the heap grew by %.1f MiB", what, float64(growth)/(1<<20))
	if growth > hugeGrowth {
		t.Errorf("%s: the heap grew from %d to %d KiB", what, g.start>>10, g.peak>>10)
	}
}

// digest returns the digest of the result in an answer, without the related task in _meta and
// the task around it.
func digest(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	var body io.Reader = resp.Body
	if strings.HasPrefix(resp.Header.Get("Content-Type"), asEvents) {
		events := jsonrpc.NewDataReader(resp.Body)
		body = events
		if err := events.Next(); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.New()
	tail := &tailCutter{w: sum}
	if _, err := io.Copy(tail, &headCutter{r: body}); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

const hugeBegins, hugeEnds = `{"resultType":"complete","content":`, `"}]`

// A headCutter removes the bytes before the huge result.
type headCutter struct {
	r    io.Reader
	rest io.Reader
}

func (c *headCutter) Read(p []byte) (int, error) {
	if c.rest == nil {
		head := make([]byte, 2<<10)
		n, err := io.ReadFull(c.r, head)
		if err != nil {
			return 0, err
		}
		at := bytes.Index(head[:n], []byte(hugeBegins))
		if at < 0 {
			return 0, fmt.Errorf("no huge result in %.300q", head)
		}
		c.rest = io.MultiReader(bytes.NewReader(head[at:n]), c.r)
	}
	return c.rest.Read(p)
}

// A tailCutter removes the bytes after the content of the huge result, whose text has no
// brackets or quotes.
type tailCutter struct {
	w    io.Writer
	last []byte
	over bool
}

func (c *tailCutter) Write(p []byte) (int, error) {
	if c.over {
		return len(p), nil
	}
	text := slices.Concat(c.last, p)
	if at := bytes.Index(text, []byte(hugeEnds)); at >= 0 {
		c.over = true
		_, err := c.w.Write(append(text[:at:at], hugeEnds+"}"...))
		return len(p), err
	}
	keep := min(len(text), len(hugeEnds))
	_, err := c.w.Write(text[:len(text)-keep])
	c.last = bytes.Clone(text[len(text)-keep:])
	return len(p), err
}

// GOV-004 10.3 "Streaming 1GB result" (smaller here; the benchmark has full size), NF-002.2: a
// result of any size is stored and delivered with little memory.
func TestHugeResultInLittleMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // garbage does not count
	store, err := sqlitestore.Open(t.Context(), sqlitestore.Options{File: filepath.Join(t.TempDir(), "tasks.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, w *conversation.Waiting) {
		c.Store, c.Execution = store, time.Hour
		w.Hold, w.Heartbeat = time.Hour, time.Second
	})
	var want string
	answers := map[string]func(http.ResponseWriter, string){
		"JSON": func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", asJSON)
			want = fmt.Sprintf("%x", writeHuge(w, id).Sum(nil))
		},
		"events": func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", asEvents)
			event := jsonrpc.NewDataWriter(w)
			want = fmt.Sprintf("%x", writeHuge(event, id).Sum(nil))
			event.Close()
		},
	}
	for kind, answer := range answers {
		t.Run("legacy, "+kind, func(t *testing.T) {
			h.answer = answer
			id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
			h.approve(task.ID(id))
			for _, accept := range []string{asJSON, asJSON + ", " + asEvents} {
				heap := watchHeap()
				got := digest(t, h.answering(t.Context(), legacyAbout("tasks/result", id), "Accept", accept))
				heap.check(t, "tasks/result as "+accept)
				if got != want {
					t.Errorf("tasks/result as %s has another result", accept)
				}
			}
		})
		t.Run("modern, "+kind, func(t *testing.T) {
			h.answer = answer
			heap := watchHeap()
			result := make(chan string, 1)
			go func() {
				result <- digest(t, h.answering(t.Context(), modernCall("hold_x", ""), modernHeaders("hold_x")...))
			}()
			id := h.pending(1)[0]
			h.approve(id)
			if got := <-result; got != want {
				t.Error("the held request has another result")
			}
			heap.check(t, "held request")
			message, headers := about("tasks/get", string(id))
			heap = watchHeap()
			if got := digest(t, h.answering(t.Context(), message, headers...)); got != want {
				t.Error("tasks/get has another result")
			}
			heap.check(t, "tasks/get")
		})
	}
}

// answering sends a message as the client of a session, and returns the answer once it begins.
func (h *fixture) answering(ctx context.Context, message string, headers ...string) *http.Response {
	h.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+"/mcp", strings.NewReader(message))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", asJSON)
	r.Header.Set("Accept", asJSON+", "+asEvents)
	r.Header.Set("Mcp-Session-Id", "s-1")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := h.Client().Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp
}
