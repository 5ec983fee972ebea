package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
)

func TestRetry(t *testing.T) {
	const lost = "tracing: spans lost: 1"
	type wait struct{ min, max time.Duration } // before an attempt
	exactly := func(d time.Duration) wait { return wait{d, d} }
	first, second, third := wait{500 * time.Millisecond, time.Second}, wait{time.Second, 2 * time.Second}, wait{2 * time.Second, 4 * time.Second}
	tests := []struct {
		name    string
		answers string // each with the status and Retry-After; the last one is repeated
		want    []wait
		err     string // the error of Close
	}{
		{"taken", "200", nil, ""},
		{"502 and 504 pass", "502; 504; 200", []wait{first, second}, ""},
		{"429 without a time passes", "429; 200", []wait{first}, ""},
		{"503 does not pass", "503", []wait{first, second, third}, lost},
		{"at once", "503 0; 200", []wait{exactly(0)}, ""},
		{"after seconds", "503 7; 429 1; 200", []wait{exactly(7 * time.Second), exactly(time.Second)}, ""},
		{"after a date", "503 Sat, 01 Jan 2000 00:00:04 GMT; 200", []wait{exactly(4 * time.Second)}, ""},
		{"after a date that is over", "503 Fri, 31 Dec 1999 00:00:00 GMT; 200", []wait{exactly(0)}, ""},
		{"after nonsense", "503 soon; 503 -1; 200", []wait{first, second}, ""},
		{"too late to wait", "503 11", nil, lost},
		{"absurdly late", "429 9223372036854775807", nil, lost},
		{"refused for good", "400", nil, lost},
		{"not there", "404", nil, lost},
		{"broken", "500", nil, lost},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := new(collector)
				c.answer = script(tt.answers)
				tr := openOver(t, c, slog.DiscardHandler)
				_, s := tr.StartRequest(t.Context(), tracing.Parent{})
				s.End()
				err := tr.Close(t.Context())

				if got := text(err); got != tt.err {
					t.Errorf("Close = %q; want %q", got, tt.err)
				}
				if got := len(c.received) - 1; got != len(tt.want) {
					t.Fatalf("%d retries; want %d", got, len(tt.want))
				}
				for i, w := range tt.want {
					if got := c.received[i+1].at.Sub(c.received[i].at); got < w.min || got > w.max {
						t.Errorf("retry %d came after %v; want %v to %v", i+1, got, w.min, w.max)
					}
				}
			})
		})
	}
}

func TestFinishedSpansAreSentWithoutClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(collector)
		tr := openOver(t, c, slog.DiscardHandler)
		for range 3 {
			_, s := tr.StartRequest(t.Context(), tracing.Parent{})
			s.End()
		}
		<-time.After(6 * time.Second)
		if got := len(flatten(c.only(t).body)); got != 3 {
			t.Errorf("%d spans; want 3", got)
		}
		closeTracing(t, tr)
		c.only(t)
	})
}

// TestOutageIsLoggedRarely checks that an outage causes a few log lines, not one for each
// batch.
func TestOutageIsLoggedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 9 // failed batches
		c := new(collector)
		c.answer = script(strings.Repeat("500; ", outage) + "200")
		var log bytes.Buffer
		tr := openOver(t, c, slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
		for range outage + 2 {
			_, s := tr.StartRequest(t.Context(), tracing.Parent{})
			s.End()
			<-time.After(6 * time.Second)
		}
		closeTracing(t, tr)

		const want = `level=WARN msg="trace export failed" err="collector answered 500 Internal Server Error" failed_batches=1 lost_spans=1
level=WARN msg="trace export failed" err="collector answered 500 Internal Server Error" failed_batches=2 lost_spans=2
level=WARN msg="trace export failed" err="collector answered 500 Internal Server Error" failed_batches=4 lost_spans=4
level=WARN msg="trace export failed" err="collector answered 500 Internal Server Error" failed_batches=8 lost_spans=8
level=INFO msg="traces are exported again" lost_spans=9
`
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func TestRejectedSpansAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(collector)
		c.answer = func(w http.ResponseWriter, _ *http.Request, _ int) {
			body, err := proto.Marshal(&collectorpb.ExportTraceServiceResponse{
				PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: 2, ErrorMessage: "quota"},
			})
			if err != nil {
				t.Error(err)
			}
			w.Write(body)
		}
		var log bytes.Buffer
		tr := openOver(t, c, slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
		for range 5 {
			_, s := tr.StartRequest(t.Context(), tracing.Parent{})
			s.End()
		}
		err := tr.Close(t.Context())

		if want := "tracing: spans lost: 2"; text(err) != want {
			t.Errorf("Close = %v; want %s", err, want)
		}
		c.only(t)
		const want = `level=WARN msg="trace export failed" err="collector rejected 2 spans: quota" failed_batches=1 lost_spans=2` + "\n"
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// TestConnectionErrorHidesURL checks that the log has the cause of a connection failure without the URL,
// which may contain a key.
func TestConnectionErrorHidesURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			dials++
			return nil, errors.New("no route")
		}}
		var log bytes.Buffer
		tr, err := tracing.NewOver(tracing.Config{Endpoint: "http://u:hunter2@collector/?key=hunter3", Sample: 1},
			slog.New(slog.NewTextHandler(&log, nil)), transport)
		if err != nil {
			t.Fatal(err)
		}
		_, s := tr.StartRequest(t.Context(), tracing.Parent{})
		s.End()
		if err := tr.Close(t.Context()); err == nil {
			t.Error("Close = nil")
		}
		if dials != 4 {
			t.Errorf("%d attempts; want 4", dials)
		}
		if got := log.String(); !strings.Contains(got, "no route") || strings.Contains(got, "hunter") {
			t.Errorf("log = %s", got)
		}
	})
}

func TestCloseStopsAtDeadline(t *testing.T) {
	tests := []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request, int)
	}{
		{"while the collector hangs", func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() }},
		{"between two attempts", script("503 9")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := new(collector)
				c.answer = tt.answer
				tr := openOver(t, c, slog.DiscardHandler)
				for range 1000 { // two batches
					_, s := tr.StartRequest(t.Context(), tracing.Parent{})
					s.End()
				}
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				err := tr.Close(ctx)

				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "spans lost: 1000") {
					t.Errorf("Close = %v; want the deadline and 1000 lost spans", err)
				}
				if took := time.Since(start); took != 2*time.Second {
					t.Errorf("Close took %v; want 2s", took)
				}
			})
		})
	}
}

func TestHangingCollectorTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(collector)
		c.answer = func(_ http.ResponseWriter, r *http.Request, n int) {
			if n == 0 {
				<-r.Context().Done()
			}
		}
		tr := openOver(t, c, slog.DiscardHandler)
		_, s := tr.StartRequest(t.Context(), tracing.Parent{})
		s.End()
		start := time.Now()
		closeTracing(t, tr)
		if took := time.Since(start); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("Close took %v; want one timeout of 10s and one backoff", took)
		}
	})
}

// openOver returns a Tracing that exports to c through pipes, so that both ends use the clock
// of the synctest bubble.
func openOver(t *testing.T, c *collector, log slog.Handler) *tracing.Tracing {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: c}
	served := make(chan error)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Close()
		<-served
	})
	tr, err := tracing.NewOver(tracing.Config{Endpoint: "http://collector", Sample: 1},
		slog.New(log), &http.Transport{DialContext: l.dial})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// pipes is a listener on an in-memory network.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// script returns a function that answers with the given statuses in order, each with an
// optional Retry-After. The last one is repeated.
func script(answers string) func(http.ResponseWriter, *http.Request, int) {
	all := strings.Split(answers, "; ")
	return func(w http.ResponseWriter, _ *http.Request, n int) {
		code, retryAfter, asked := strings.Cut(all[min(n, len(all)-1)], " ")
		if asked {
			w.Header().Set("Retry-After", retryAfter)
		}
		status, err := strconv.Atoi(code)
		if err != nil {
			panic(err)
		}
		w.WriteHeader(status)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
