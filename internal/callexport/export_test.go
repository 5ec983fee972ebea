package callexport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	logscollector "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/thoughtgate/thoughtgate-go/internal/callexport"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

var start = time.Date(2026, 11, 19, 12, 0, 0, 123456789, time.UTC)

// hostile is a text that looks like the beginning of another message.
const hostile = "x\r\n62 <107>1 2026-11-19T12:00:00Z h thoughtgate - judged - {}\n\x00\x7f\u2028\u0085é😀\"}\\"

func entry(n int) callrecord.Entry {
	e := callrecord.Entry{
		Time: start.Add(time.Duration(n) * time.Millisecond), Event: callrecord.Judged, ID: fmt.Sprint("tg_", n), Upstream: "files", Method: "tools/call",
		Name: fmt.Sprint("tool ", n, " ", hostile), Principal: "agent\n" + hostile, Action: policy.Forward, Rule: "rules[0]", Outcome: "success", Took: 5,
		Arguments: []byte(`{"path":` + quoted(hostile) + `}`),
	}
	if n%3 == 1 {
		e.Action, e.Outcome = policy.Deny, callrecord.Denied
	}
	return e
}

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// newLog returns a log that writes into a store.
func newLog(s gatestore.Records) *callrecord.Log {
	return callrecord.New(callrecord.Config{
		Store: s, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Key:      func(context.Context) ([]byte, error) { return []byte("a key"), nil },
		Settings: callrecord.Settings{Arguments: callrecord.Full, Wait: true},
	})
}

// recorded returns a store with entries, written in small blocks by several processes, and the entries by id.
func recorded(t *testing.T, n int) (gatestore.Store, map[string]callrecord.Entry) {
	t.Helper()
	s := memstore.New(memstore.Options{})
	t.Cleanup(func() { s.Close() })
	var logs []*callrecord.Log
	for i := range n {
		if i%50 == 0 {
			for _, l := range logs {
				l.Close(t.Context())
			}
			logs = []*callrecord.Log{newLog(s), newLog(s)}
		}
		logs[i%2].Add(entry(i))
	}
	for _, l := range logs {
		l.Close(t.Context())
	}
	all := map[string]callrecord.Entry{}
	for e, err := range callrecord.All(t.Context(), s, callrecord.Filter{}) {
		must(t, err)
		must(t, e.Arguments.Canonicalize()) // syslog escapes more
		all[e.ID] = e
	}
	if len(all) != n {
		t.Fatalf("%d entries were recorded; want %d", len(all), n)
	}
	return s, all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An exporter exports a store, from where the last run ended.
type exporter struct {
	callexport.Export

	cursor   string
	accepted int // how often the cursor was moved
	warnings []string
}

func newExporter(t *testing.T, s gatestore.Records, target callexport.Target) *exporter {
	t.Helper()
	to, err := callexport.Open(target)
	must(t, err)
	x := new(exporter)
	x.Export = callexport.Export{
		Find: func(ctx context.Context, f callrecord.Filter) (callrecord.Page, error) {
			return callrecord.Find(ctx, s, f)
		},
		To:       to,
		Accepted: func(cursor string) error { x.cursor = cursor; x.accepted++; return nil },
		Warn:     func(err error) { x.warnings = append(x.warnings, err.Error()) },
	}
	return x
}

func (x *exporter) run(ctx context.Context) error {
	return x.Run(ctx, callrecord.Filter{After: x.cursor, Limit: 20})
}

// A collector is an OTLP server that keeps the log records that it accepts.
type collector struct {
	*httptest.Server

	answer func(w http.ResponseWriter, n int) bool // answers request number n, from 0, or returns false to accept it

	mu       sync.Mutex
	requests int
	heads    []string
	records  []logRecord
}

type logRecord struct {
	body, event, severity string
	at                    uint64
	attributes            map[string]string
}

func newCollector(t *testing.T, answer func(w http.ResponseWriter, n int) bool) *collector {
	c := &collector{answer: answer}
	c.Server = httptest.NewUnstartedServer(c)
	c.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	c.Start()
	t.Cleanup(c.Close)
	return c
}

// ServeHTTP implements [http.Handler].
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	body := new(logscollector.ExportLogsServiceRequest)
	if err == nil {
		err = proto.Unmarshal(raw, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.heads = append(c.heads, strings.Join([]string{r.Method, r.URL.String(), r.Header.Get("X-Api-Key"), r.Header.Get("Content-Type")}, " "))
	if c.answer != nil && c.answer(w, c.requests-1) {
		return
	}
	for _, l := range body.GetResourceLogs()[0].GetScopeLogs()[0].GetLogRecords() {
		one := logRecord{
			body: l.GetBody().GetStringValue(), event: l.GetEventName(), severity: l.GetSeverityText(), at: l.GetTimeUnixNano(), attributes: map[string]string{},
		}
		for _, a := range l.GetAttributes() {
			switch v := a.GetValue().GetValue().(type) {
			case *commonpb.AnyValue_StringValue:
				one.attributes[a.GetKey()] = v.StringValue
			default:
				one.attributes[a.GetKey()] = a.GetValue().String()
			}
		}
		c.records = append(c.records, one)
	}
}

// check reports entries that differ from the recorded ones, and returns how often each arrived.
func check(t *testing.T, bodies []string, want map[string]callrecord.Entry) map[string]int {
	t.Helper()
	got := map[string]int{}
	for _, body := range bodies {
		for e, err := range callrecord.Read(strings.NewReader(body)) {
			must(t, err)
			got[e.ID]++
			if e.Arguments.Canonicalize() != nil || !reflect.DeepEqual(e, want[e.ID]) {
				t.Fatalf("received %+v; want %+v", e, want[e.ID])
			}
		}
	}
	return got
}

func (c *collector) bodies() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, r := range c.records {
		all = append(all, r.body)
	}
	return all
}

func TestOTLP(t *testing.T) {
	s, want := recorded(t, 400)
	c := newCollector(t, func(w http.ResponseWriter, n int) bool {
		switch n {
		case 1:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		case 4:
			panic(http.ErrAbortHandler) // the connection ends without an answer
		default:
			return false
		}
		return true
	})
	headers, err := callexport.ParseHeaders("x-api-key=a%20key%3D, ,other=1")
	must(t, err)
	x := newExporter(t, s, callexport.Target{URL: c.URL, Headers: headers, Version: "1.2.3"})
	must(t, x.run(t.Context()))
	got := check(t, c.bodies(), want)
	uids := map[string]bool{}
	for _, r := range c.records {
		uids[r.attributes["log.record.uid"]] = true
	}
	if len(got) != len(want) || len(c.records) != len(want) || len(uids) != len(want) || len(x.warnings) != 3 {
		t.Errorf("%d of %d entries arrived in %d log records with %d ids; warnings: %q", len(got), len(want), len(c.records), len(uids), x.warnings)
	}
	if heads := slices.Compact(c.heads); len(heads) != 1 || heads[0] != "POST /v1/logs a key= application/x-protobuf" {
		t.Errorf("requests: %q", heads)
	}
	for _, r := range c.records {
		e := want[r.attributes["thoughtgate.id"]]
		severity := "INFO"
		if e.Outcome == callrecord.Denied {
			severity = "WARN"
		}
		a := r.attributes
		if r.at != uint64(e.Time.UnixNano()) || r.event != "thoughtgate.call.judged" || r.severity != severity ||
			a["thoughtgate.name"] != e.Name || a["thoughtgate.principal"] != e.Principal || a["thoughtgate.outcome"] != e.Outcome || a["thoughtgate.took"] != "int_value:5" {
			t.Fatalf("log record %+v of %+v", r, e)
		}
	}
	before := c.requests
	if must(t, x.run(t.Context())); c.requests != before {
		t.Errorf("a second run sends %d more requests", c.requests-before)
	}
}

// A batch that is refused for good stops the export. The next run begins with it.
func TestRefusedBatchIsSentAgain(t *testing.T) {
	s, want := recorded(t, 400)
	refuse := true
	c := newCollector(t, func(w http.ResponseWriter, n int) bool {
		if n < 2 || !refuse {
			return false
		}
		w.WriteHeader(http.StatusBadRequest)
		return true
	})
	x := newExporter(t, s, callexport.Target{URL: c.URL})
	if err := x.run(t.Context()); err == nil || !strings.Contains(err.Error(), "400") || c.requests != 3 {
		t.Errorf("err = %v after %d requests", err, c.requests)
	}
	refuse = false
	must(t, x.run(t.Context()))
	if got := check(t, c.bodies(), want); len(got) != len(want) {
		t.Errorf("%d of %d entries arrived", len(got), len(want))
	}
}

// Log records that a collector has rejected are reported, and not sent again.
func TestRejectedRecordsAreReported(t *testing.T) {
	s, _ := recorded(t, 10)
	c := newCollector(t, func(w http.ResponseWriter, _ int) bool {
		answer, err := proto.Marshal(&logscollector.ExportLogsServiceResponse{
			PartialSuccess: &logscollector.ExportLogsPartialSuccess{RejectedLogRecords: 3, ErrorMessage: "quota"},
		})
		if err == nil {
			_, err = w.Write(answer)
		}
		return err == nil
	})
	x := newExporter(t, s, callexport.Target{URL: c.URL + "/own/path"})
	err := x.run(t.Context())
	if err == nil || err.Error() != "the receiver rejected 3 entries, which are not sent again" || x.accepted != 1 {
		t.Errorf("err = %v; %d pages were accepted", err, x.accepted)
	}
	if want := []string{"collector rejected 3 log records: quota"}; !slices.Equal(x.warnings, want) || c.requests != 1 || !strings.HasPrefix(c.heads[0], "POST /own/path ") {
		t.Errorf("warnings %q, requests %q", x.warnings, c.heads)
	}
}

// A receiver that is down makes the export fail after some attempts, without moving the cursor.
// With Follow, it waits.
func TestReceiverIsDown(t *testing.T) {
	s, want := recorded(t, 10)
	wait := "7200"
	c := newCollector(t, func(w http.ResponseWriter, n int) bool {
		w.Header().Set("Retry-After", wait)
		w.WriteHeader(http.StatusServiceUnavailable)
		return n < 9
	})
	x := newExporter(t, s, callexport.Target{URL: c.URL})
	if err := x.run(t.Context()); err == nil || x.accepted > 0 || c.requests != 1 { // two hours are too long to wait
		t.Errorf("err = %v after %d requests; %d pages were accepted", err, c.requests, x.accepted)
	}
	wait = "0"
	if err := x.run(t.Context()); err == nil || x.accepted > 0 || c.requests != 6 {
		t.Errorf("err = %v after %d requests; %d pages were accepted", err, c.requests, x.accepted)
	}
	x.Follow = true
	ctx, stop := context.WithCancel(t.Context())
	x.Accepted = func(string) error { stop(); return nil }
	c.answer = func(w http.ResponseWriter, n int) bool {
		if n < 14 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return n < 14
	}
	if err := x.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	if got := check(t, c.bodies(), want); len(got) != len(want) {
		t.Errorf("%d of %d entries arrived", len(got), len(want))
	}
}

// An export with Follow sends new entries.
func TestFollow(t *testing.T) {
	s, want := recorded(t, 1)
	c := newCollector(t, nil)
	x := newExporter(t, s, callexport.Target{URL: c.URL})
	x.Follow = true
	ctx, stop := context.WithCancel(t.Context())
	x.Accepted = func(string) error {
		if x.accepted++; x.accepted > 1 {
			stop()
			return nil
		}
		l := newLog(s)
		l.Add(entry(1))
		l.Close(t.Context())
		return nil
	}
	if err := x.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	for e, err := range callrecord.All(t.Context(), s, callrecord.Filter{}) {
		must(t, err)
		must(t, e.Arguments.Canonicalize())
		want[e.ID] = e
	}
	if got := check(t, c.bodies(), want); len(got) != 2 || len(c.records) != 2 {
		t.Errorf("received %v", got)
	}
}

// Whenever receiver and export stop, the next run goes on, and every entry arrives.
func TestNothingIsLost(t *testing.T) {
	s, want := recorded(t, 400)
	for _, kind := range []string{"otlp", "tcp", "tls"} {
		t.Run(kind, func(t *testing.T) {
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(1, 2))
			oneOf := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			var target callexport.Target
			var bodies func() []string
			var ended context.CancelFunc // ends the export
			stop := func() {
				mu.Lock()
				defer mu.Unlock()
				ended()
			}
			if kind == "otlp" {
				c := newCollector(t, func(w http.ResponseWriter, _ int) bool {
					switch oneOf(6) {
					case 0:
						stop()
					case 1:
						panic(http.ErrAbortHandler)
					case 2:
						w.WriteHeader(http.StatusInternalServerError)
						return true
					default:
					}
					return false
				})
				target, bodies = callexport.Target{URL: c.URL}, c.bodies
			} else {
				r := newSyslog(t, kind == "tls", func(int) ending {
					if oneOf(6) == 0 {
						stop()
					}
					return []ending{reset, early, whole, whole, whole}[oneOf(5)]
				})
				target, bodies = r.target, r.bodies
			}
			x := newExporter(t, s, target)
			runs := 0
			for {
				runs++
				ctx, cancel := context.WithCancel(t.Context())
				mu.Lock()
				ended = cancel
				mu.Unlock()
				died := errors.New("died")
				x.Accepted = func(cursor string) error {
					x.cursor = cursor
					if oneOf(8) == 0 {
						return died
					}
					return nil
				}
				x.Warn = func(error) { cancel() } // do not wait for the next attempt
				err := x.run(ctx)
				cancel()
				if err == nil {
					break
				}
			}
			got := check(t, bodies(), want)
			t.Logf("%d runs", runs)
			if len(got) != len(want) || runs < 3 {
				t.Errorf("%d of %d entries arrived in %d runs", len(got), len(want), runs)
			}
		})
	}
}

func TestTarget(t *testing.T) {
	for _, wrong := range []string{"", "siem:514", "udp://siem:514", "tcp://siem", "tls://:6514", "tcp://u:geheim@siem:1", "tls://siem:1/geheim", "tls://siem:1?geheim", "http://", "http://geheim\x7f"} {
		if _, err := callexport.Open(callexport.Target{URL: wrong}); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	for _, wrong := range []string{"geheim", "a=b,=geheim", "a=%geheim"} {
		if _, err := callexport.ParseHeaders(wrong); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if h, err := callexport.ParseHeaders(""); len(h) != 0 || err != nil {
		t.Errorf("no headers: %v, %v", h, err)
	}
}

func TestLines(t *testing.T) {
	s, want := recorded(t, 300)
	var out bytes.Buffer
	x := newExporter(t, s, callexport.Target{URL: "tcp://127.0.0.1:1"})
	x.To = callexport.Lines{Writer: &out}
	must(t, x.run(t.Context()))
	if got := check(t, []string{out.String()}, want); len(got) != len(want) || strings.Count(out.String(), "\n") != len(want) {
		t.Errorf("%d of %d entries in %d lines", len(got), len(want), strings.Count(out.String(), "\n"))
	}
}
