//go:build unix

package inbox_test

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/textproto"
	"net/url"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/email"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/slack"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/webhook"
	"github.com/thoughtgate/thoughtgate-go/internal/doctest"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/highlight"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A workload is work of the gate whose cost depends on foreign input.
type workload struct {
	name string
	test string // the subtest of TestCostGrowsWithInput
	try  func(*testing.T)
}

// workloads returns all workloads. The table in docs/security.md lists them.
func workloads() []workload {
	return []workload{
		{"parsing a message", "parse", tryArguments(parse)},
		{"rules with globs", "glob", tryGlobs},
		{"Cedar policies", "cedar", tryArguments(judge)},
		{"holding a call: digest, redaction, preview", "hold", tryArguments(hold)},
		{"the API's view of a call, and its digest", "view", tryArguments(onePage("/api/approvals/ID"))},
		{"the API's view of a call with all arguments", "viewall", tryArguments(onePage("/api/approvals/ID?arguments=all"))},
		{"the page of a call: outline, colours, look-alikes", "page", tryArguments(onePage("/approvals/ID"))},
		{"the page of a call with everything", "pageall", tryArguments(onePage("/approvals/ID?view=all"))},
		{"a search in the arguments", "find", tryArguments(onePage("/approvals/ID?find=aab"))},
		{"the arguments as text", "text", tryArguments(onePage("/approvals/ID/arguments"))},
		{"a decision", "decide", tryArguments(check)},
		{"the result of a call", "result", tryArguments(result)},
		{"secrets in the result of a call", "secrets", trySecrets},
		{"a message to a webhook, Slack or by e-mail", "channel", tryMessages},
		{"standing approvals", "grant", tryArguments(scope)},
		{"lists of calls, and the search in them", "list", tryLists},
		{"events for operators", "events", tryWatch},
		{"filters of the audit log", "audit", tryAudit},
		{"look-alikes and hidden characters", "letters", tryLetters},
		{"colours: diffs, shell, SQL, JSON, code", "colours", tryColours},
		{"streams of an upstream, in pieces of any size", "streams", tryStreams},
		{"lists of an upstream's tools", "tools", tryTools},
	}
}

// TestCostGrowsWithInput checks that the cost of foreign input grows at most as n log n: 16
// times the input takes at most 32 times the processor time and memory.
func TestCostGrowsWithInput(t *testing.T) {
	if testenv.Race {
		t.Skip("make test measures this, without the race detector")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // costOf collects garbage
	var rows [][]string
	for _, p := range workloads() {
		t.Run(p.test, p.try)
		rows = append(rows, []string{p.name, "`" + p.test + "`"})
	}
	doctest.Table(t, "../../docs/security.md", "| place | test | input that grows, and what bounds it |", rows)
}

// input is the size of the small input, in bytes. The large input is 16 times that size.
const input = 4 << 10

// noise is the additional time that work may take because of caches and slow clocks.
const noise = 2 * time.Millisecond

// sample is the number of runs on the small input in one measurement.
const sample = 2

// tries is the maximum number of measurements of each input. The smallest result counts, so
// that other programs on the machine do not make the test fail. Most workloads pass at the
// first try.
const tries = 12

// heap is the memory in use from which garbage is collected before a measurement. There is no
// collection during a measurement.
const heap = 256 << 20

// grow checks that work on 16 times the input costs at most 32 times as much.
func grow(t *testing.T, what string, n int, prepare func(n int) (work func())) {
	t.Helper()
	small, large := prepare(n), prepare(16*n)
	least, most := cost{1 << 62, 1 << 62}, cost{1 << 62, 1 << 62}
	for range tries {
		least = least.min(costOf(func() {
			for range sample {
				small()
			}
		}))
		most = most.min(costOf(large))
		if most.time <= 32/sample*least.time+noise && most.bytes <= max(32/sample*least.bytes, uint64(32*16*n)) { // slices grow in steps
			return
		}
	}
	t.Errorf("%s: %d bytes take %v and %d bytes of memory; 16 times as many take %v and %d",
		what, n, least.time/sample, least.bytes/sample, most.time, most.bytes)
}

// A cost is processor time and allocated memory.
type cost struct {
	time  time.Duration
	bytes uint64
}

func (c cost) min(d cost) cost { return cost{min(c.time, d.time), min(c.bytes, d.bytes)} }

func costOf(work func()) cost {
	var before, after runtime.MemStats
	if runtime.ReadMemStats(&before); before.HeapAlloc > heap {
		runtime.GC()
		runtime.ReadMemStats(&before)
	}
	start := processTime()
	work()
	end := processTime()
	runtime.ReadMemStats(&after)
	return cost{end - start, after.TotalAlloc - before.TotalAlloc}
}

func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fill returns part repeated to about n bytes.
func fill(part string, n int) string { return strings.Repeat(part, max(1, n/len(part))) }

// distinctParts returns different parts with commas between them, about n bytes.
func distinctParts(format string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// costlyArguments return expensive arguments of about n bytes.
var costlyArguments = map[string]func(n int) string{
	"long name, many values": func(n int) string { return `{"k":"x","` + fill("n", n/4) + `":[1` + fill(",1", n*3/4) + `]}` },
	"long name, many secrets": func(n int) string {
		return `{"` + fill("n", n/4) + `":[{"password":1}` + fill(`,{"password":1}`, n*3/4) + `]}`
	},
	"long name, many texts":    func(n int) string { return `{"` + fill("n", n/4) + `":["aaaa"` + fill(`,"aaaa"`, n*3/4) + `]}` },
	"many names":               func(n int) string { return `{` + distinctParts(`"n%d":{"password":"p"}`, n) + `}` },
	"many secrets":             func(n int) string { return `{"users":[` + distinctParts(`{"key":"secret %d"}`, n) + `]}` },
	"long names inside others": func(n int) string { return fill(`{"`+fill("n", n/100)+`":`, n) + "1" + fill("}", n/(n/100+4)) },
	"nested lists":             func(n int) string { return `{"a":[` + fill(fill("[", 90)+"1"+fill("]", 90)+",", n) + `1]}` },
	"one text":                 func(n int) string { return `{"text":"` + fill("a", n) + `"}` },
	"lines":                    func(n int) string { return `{"text":"` + fill(`ab\n`, n) + `"}` },
	"escapes":                  func(n int) string { return `{"code":"func ` + fill(`\"\\`, n) + `"}` },
	"quotes of a program":      func(n int) string { return `{"code":"func ` + fill(`\\\"`, n) + `\n"}` },
	"many programs":            func(n int) string { return `{` + distinctParts(`"code%d":"func `+fill(`\\\"`, 900)+`\n"`, n) + `}` },
	"hidden characters":        func(n int) string { return `{"text":"` + fill("\u202e", n) + `"}` },
	"letters of two scripts":   func(n int) string { return `{"text":"` + fill("p\u0430y ", n) + `"}` },
	"names of two scripts":     func(n int) string { return `{` + distinctParts("\"p\u0430y%d\":1", n) + `}` },
	"an address":               func(n int) string { return `{"url":"` + fill("\u0430.", n) + `com"}` },
	"spaces in a name":         func(n int) string { return `{"` + fill(" ", n) + `":1}` },
	"base64":                   func(n int) string { return `{"data":"` + fill("aB3+", n) + `"}` },
	"one number":               func(n int) string { return `{"n":` + fill("1", n) + `}` },
	"JSON in texts":            func(n int) string { return `{"text":["{}"` + fill(`,"{\"password\":1}"`, n) + `]}` },
	"almost what is found":     func(n int) string { return `{"text":"` + fill("aaaaac", n) + `"}` },
}

// An argumentsWork prepares work on arguments.
type argumentsWork func(t *testing.T, o *fixture, arguments string) (work func())

func tryArguments(at argumentsWork) func(*testing.T) {
	return func(t *testing.T) {
		o := open(t)
		for _, shape := range slices.Sorted(maps.Keys(costlyArguments)) {
			grow(t, shape, input, func(n int) func() { return at(t, o, costlyArguments[shape](n)) })
		}
	}
}

func callOf(arguments string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":` + arguments + `}}`)
}

func parse(t *testing.T, _ *fixture, arguments string) func() {
	message := callOf(arguments)
	return func() {
		if _, err := jsonrpc.Parse(message, jsonrpc.Limits{}); err != nil {
			t.Error(err)
		}
	}
}

func judge(t *testing.T, _ *fixture, arguments string) func() {
	s, _, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{{Match: "*", Action: policy.AskPolicies}}, Default: policy.Rule{Action: policy.Deny},
		Cedar: []policy.Source{{Name: "a.cedar", Text: []byte(`permit (principal, action, resource) when { context.arguments has text && context.arguments.text like "*b*c*" };`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		s.Judge(policy.Call{Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: []byte(arguments), Principal: policy.Principal{ID: "ann"}})
	}
}

// starWorkflow is a workflow that redacts passwords at any path.
const starWorkflow = "star"

func hold(t *testing.T, o *fixture, arguments string) func() {
	n := 0
	return func() {
		n++
		o.hold(t, held{args: arguments, workflow: starWorkflow, by: fmt.Sprintf("ann%d", n)})
	}
}

// onePage returns the work of serving a page about one call.
func onePage(path string) argumentsWork {
	return func(t *testing.T, o *fixture, arguments string) func() {
		id := o.hold(t, held{args: arguments, workflow: starWorkflow})
		return func() { o.serve(t, strings.ReplaceAll(path, "ID", string(id))) }
	}
}

// serve handles a request of alice without a network.
func (o *fixture) serve(t *testing.T, path string) {
	t.Helper()
	o.pass(100 * time.Millisecond) // stay below the rate limit for alice
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	r.Header.Set("Authorization", "Bearer alice's own long token")
	w := httptest.NewRecorder()
	o.routes.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("%s: %d %.200s", path, w.Code, w.Body)
	}
}

func check(t *testing.T, o *fixture, arguments string) func() {
	held, err := o.store.Get(t.Context(), task.AnyOwner().Ref(o.hold(t, held{args: arguments, workflow: starWorkflow})))
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := o.approvals.Viewer().CheckShown(t.Context(), held, strings.Repeat("0", 64), 0); err == nil {
			t.Error("a digest of another call counts")
		}
	}
}

func result(t *testing.T, o *fixture, answer string) func() {
	return o.ran(t, `{"password":"hunter2"}`, `{"structuredContent":`+answer+`}`)
}

// ran runs a call and returns the work of opening its page.
func (o *fixture) ran(t *testing.T, arguments, answer string) func() {
	t.Helper()
	o.rule(policy.Verdict{Action: policy.Approve, Workflow: "default"})
	owner := fmt.Sprintf("bert%d", o.gets.Load()) // a new owner, since a repeated call attaches to the first
	id := o.hold(t, held{args: arguments, by: owner})
	if _, err := decide(t.Context(), o.approvals, id, approval.Approver{Name: "alice"}, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	if ended, err := o.approvals.Wait(t.Context(), task.OwnedBy(owner).Ref(id), sender{answer: answer}); err != nil || !ended.State.Terminal() {
		t.Fatalf("%s, %v", ended.State, err)
	}
	return func() { o.serve(t, "/approvals/"+string(id)) }
}

// trySecrets redacts results, which takes time for each secret in the arguments.
func trySecrets(t *testing.T) {
	o := open(t)
	for name, secrets := range map[string]func(n int) string{
		"many": func(n int) string { return distinctParts(`{"key":"secret %d"}`, n) },
		"few":  func(n int) string { return distinctParts(`{"key":"`+fill("a", n/10)+`%d"}`, n) },
	} {
		grow(t, name, input, func(n int) func() {
			return o.ran(t, `{"users":[`+secrets(n)+`]}`, `{"content":[`+distinctParts(`"text %d"`, n)+`,"`+fill("a", n)+`"]}`)
		})
	}
}

// tryMessages sends questions on the channels whose messages contain arguments.
func tryMessages(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ok":true,"channel":"C1","ts":"1"}`) // as Slack answers
	}))
	t.Cleanup(web.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	at, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	channels := []channel.Channel{
		webhook.New(webhook.Config{URL: at, Key: webhook.Key("a key for a test of a webhook"), Private: true, Timeout: time.Minute, Now: time.Now}),
		slack.New(slack.Config{URL: web.URL + "/", BotToken: "xoxb-bot", AppToken: "xapp-app", Channel: "C1", Now: time.Now, Log: log}),
		email.New(email.Config{
			Server: mailServer(t), Security: email.None, From: mail.Address{Address: "gate@example.com"}, To: []mail.Address{{Address: "ann@example.com"}},
			Arguments: true, Timeout: time.Minute, Now: time.Now, Log: log,
		}),
	}
	tryArguments(func(t *testing.T, o *fixture, arguments string) func() {
		id := o.hold(t, held{args: arguments, workflow: starWorkflow})
		return func() {
			a, changed, err := o.approvals.Viewer().ShowWithChange(t.Context(), id)
			if err != nil {
				t.Error(err)
			}
			for _, c := range channels {
				if _, err := c.Ask(t.Context(), channel.Question{Stage: channel.Pending, Approval: a, Changed: changed}); err != nil {
					t.Error(err)
				}
			}
		}
	})(t)
}

// mailServer returns the address of a server that accepts every e-mail until the test ends.
func mailServer(t *testing.T) string {
	t.Helper()
	var c net.ListenConfig
	l, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serveMail(textproto.NewConn(conn)) })
		}
	})
	return l.Addr().String()
}

// serveMail serves one connection until the client closes it.
func serveMail(c *textproto.Conn) {
	defer c.Close()
	err := c.PrintfLine("220 ready")
	for err == nil {
		var line string
		if line, err = c.ReadLine(); err != nil {
			return
		}
		if line == "DATA" {
			_ = c.PrintfLine("354 go on")
			_, _ = io.Copy(io.Discard, c.DotReader())
		}
		err = c.PrintfLine("250 ok")
	}
}

func scope(t *testing.T, o *fixture, arguments string) func() {
	held, err := o.store.Get(t.Context(), task.AnyOwner().Ref(o.hold(t, held{args: arguments, workflow: "again", toolDigest: "sha256:1"})))
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		offer, err := o.approvals.Viewer().Offer(held)
		if err == nil {
			_, err = grantstore.Scope{Call: held.Call, GrantShape: gatetask.GrantShape{Free: offer.Free}}.Digest()
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func tryLists(t *testing.T) {
	for _, path := range []string{"/", "/?q=aab", "/api/approvals?q=aab&limit=100"} {
		grow(t, path, 20, func(n int) func() {
			o := open(t)
			for i := range n {
				o.hold(t, held{args: fmt.Sprintf(`{"n":%d,"text":"`+fill("a", 5000)+`"}`, i)})
			}
			return func() { o.serve(t, path) }
		})
	}
	const history = "/history?q=aab"
	grow(t, history, 20, func(n int) func() {
		o := open(t)
		for range n {
			o.log.Add(callrecord.Entry{Time: o.now(), Event: callrecord.Ended, Outcome: "completed", Shown: []byte(`"` + fill("a", 2000) + `"`)})
		}
		o.log.Flush(t.Context())
		return func() { o.serve(t, history) }
	})
}

func tryWatch(t *testing.T) {
	grow(t, "calls", 20, func(n int) func() {
		o := open(t)
		for i := range n {
			o.hold(t, held{args: fmt.Sprintf(`{"n":%d,"text":"`+fill("a", 5000)+`"}`, i)})
		}
		return func() {
			left := n
			for _, err := range o.approvals.Viewer().Watch(t.Context()) {
				if left--; left == 0 || err != nil {
					return
				}
			}
		}
	})
}

func tryAudit(t *testing.T) {
	grow(t, "entries", 200, func(n int) func() {
		o := open(t)
		for i := range n {
			if err := o.store.Append(t.Context(), task.Note{At: time.Unix(int64(i), 0), Step: "held", Tool: fill("a", 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		return func() {
			for _, err := range audit.All(t.Context(), o.approvals.Viewer().Audit, audit.Filter{Tool: fill("a", 1000) + "b"}) {
				if err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// letters are expensive texts for package safetext.
var letters = []string{
	"a", " ", "a ", "\u202e", "p\u0430y ", "\u0430.", "a\u2215", "\u2215", ".", "\u0966a", "\u03b1", "\u03b1A", "\\u0020", "\xff", "\u05d5a-", "\U0001d41a", "1\u2044", "//", "@\u0430",
}

func tryLetters(t *testing.T) {
	for _, part := range letters {
		grow(t, fmt.Sprintf("%q", part), input, func(n int) func() {
			text := fill(part, n)
			return func() {
				safetext.Confusables(text)
				safetext.ConfusablesWarning(safetext.Confusables(text))
				safetext.NameWarning(text)
				safetext.Name(text, 100)
				safetext.Truncate(text, 100)
				safetext.Text(text, 100)
				safetext.Line(text, 100)
			}
		})
	}
}

func tryColours(t *testing.T) {
	for _, language := range []highlight.Language{highlight.Diff, highlight.Shell, highlight.SQL, highlight.JSON, highlight.Code} {
		for _, part := range []string{`"`, `\"`, `'`, "`", `"'`, "'\n", "\\\"x'\\'", "/*", "*/", "--", "#", " #", "//", "$", "${", "\n+", "\n", "1", "a", "a ", " "} {
			grow(t, fmt.Sprintf("%s %q", language, part), input, func(n int) func() {
				text := fill(part, n) + "\n"
				return func() {
					highlight.Guess("text", text)
					highlight.Tokens(language, text)
				}
			})
		}
	}
}

func tryStreams(t *testing.T) {
	const limit = 1 << 30
	readers := map[string]func(io.Reader) error{
		"events": func(r io.Reader) (err error) {
			for events := jsonrpc.NewEventReader(r, limit); err == nil; {
				_, err = events.Next()
			}
			return err
		},
		"data": func(r io.Reader) (err error) {
			for data := jsonrpc.NewDataReader(r); err == nil; {
				err = data.Next()
			}
			return err
		},
		"lines": func(r io.Reader) (err error) {
			for lines := jsonrpc.NewLineReader(r, limit); err == nil; {
				_, err = lines.Next()
			}
			return err
		},
		"frames": func(r io.Reader) error { var f jsonrpc.Framer; return inPieces(r, func(p []byte) { f.Advance(p) }) },
		"answers": func(r io.Reader) error {
			var s jsonrpc.AnswerScanner
			return inPieces(r, func(p []byte) { _ = s.Scan(p) })
		},
	}
	for name, read := range readers {
		for _, part := range []string{"data: a\n", "data:a\r", "data: a\n\n", "a", "\n", "\r", ":\n", "id: 1\n", `{"id":1,`, `{"a":"\"`, `[`} {
			for pieces, cut := range map[string]func(io.Reader) io.Reader{"one": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader} {
				grow(t, fmt.Sprintf("%s %q in %s", name, part, pieces), input, func(n int) func() {
					text := fill(part, n)
					return func() { _ = read(cut(strings.NewReader(text))) }
				})
			}
		}
	}
}

// inPieces calls take for each read from r.
func inPieces(r io.Reader, take func([]byte)) error {
	piece := make([]byte, 4<<10)
	for {
		n, err := r.Read(piece)
		take(piece[:n])
		if err != nil {
			return err
		}
	}
}

func tryTools(t *testing.T) {
	grow(t, "tools", input, func(n int) func() {
		text := `{"jsonrpc":"2.0","id":1,"result":{"tools":[` + distinctParts(`{"name":"tool%d","inputSchema":{"type":"object"}}`, n) + `]}}`
		return func() {
			m, err := jsonrpc.ParseMessage([]byte(text), jsonrpc.Limits{})
			if err != nil {
				t.Error(err)
				return
			}
			mcp.RewriteList(m, "tools/list", func(l mcp.ListEntry) mcp.View { return mcp.View{Hidden: len(l.Name)%2 == 0, TaskSupport: "optional"} })
		}
	})
}

// tryGlobs matches names and URIs with patterns that have several stars.
func tryGlobs(t *testing.T) {
	s, _, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{
			{Match: "*delete*user*", Action: policy.Approve},
			{Match: "*a*a*a*b", Action: policy.Deny},
			{Match: "*[a-c]?*x*", Action: policy.Deny},
			{Match: "*", Principals: []string{"*delete*user*"}, Action: policy.Deny},
		},
		Default: policy.Rule{Action: policy.Forward},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"deleteuse", "a", "ab", "abc", "/", "%61", "\u0430"} {
		grow(t, fmt.Sprintf("%q", part), 1<<10, func(n int) func() {
			name := fill(part, n)
			return func() {
				s.Judge(policy.Call{Upstream: "files", Method: "tools/call", Name: name, Principal: policy.Principal{ID: name}})
				s.Judge(policy.Call{Upstream: "files", Method: "resources/read", Name: "file:///" + name, Principal: policy.Principal{ID: "ann"}})
			}
		})
	}
}
