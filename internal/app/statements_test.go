package app_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// The limits for one held call in PostgreSQL, from its arrival to its delivery.
const (
	maxStatements = 15 // that the call waits for
	maxTaskReads  = 4  // among them
	maxInAll      = 40 // with those that run beside the call, on a busy machine too
)

// The test counts the statements that a gate sends to PostgreSQL while one call is held as a
// task, shown, approved, run and delivered, and lists them. How many statements run beside the
// call depends on the moment: notes and notifications in quick succession are sent together, and
// housekeeping may run in between. So these have a wide limit, and the best of several attempts
// counts.
func TestHeldCallTakesFewStatements(t *testing.T) {
	server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
	if !testenv.Available(t, err) {
		return
	}
	t.Cleanup(func() { server.Stop() })
	proxy := newStatementProxy(t, server.Addr())
	direct := server.Schema(t)
	through, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	through.Host = proxy.address
	conn, err := pgx.Connect(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	rig := startGrantRig(t, through.String(), 1)

	var best life
	rig.liveOnce(proxy, conn, `{"path":"/first"}`) // also prepares statements
	for i := 0; i < 50 && (i == 0 || !best.within()); i++ {
		one := rig.liveOnce(proxy, conn, fmt.Sprintf(`{"path":"/tmp/file-%d"}`, i))
		if i == 0 || one.ownStatements() < best.ownStatements() || one.within() {
			best = one
		}
	}
	best.list(t)
	if n := best.ownStatements(); n > maxStatements {
		t.Errorf("%d statements that the call waits for; want at most %d", n, maxStatements)
	}
	if n := len(best.statements); n > maxInAll {
		t.Errorf("%d statements; want at most %d", n, maxInAll)
	}
	if n := best.taskReads(); n > maxTaskReads {
		t.Errorf("%d reads of the task; want at most %d", n, maxTaskReads)
	}
}

// A life has the database statements of one held call.
type life struct{ statements []statement }

// liveOnce has one call held, shown, approved, run and delivered.
func (r *grantRig) liveOnce(p *statementProxy, conn *pgx.Conn, arguments string) life {
	r.Helper()
	p.begin("create")
	id := r.call(0, "ann", arguments, "")
	awaitChained(r.T, conn, id, "asked")

	p.step("look")
	_, text := r.api(0, "GET", "/api/approvals/"+id+"?arguments=all", "")
	var shown review.Approval
	decode(r.T, text, &shown)

	p.step("approve and run")
	if status, text := r.api(0, "POST", "/api/approvals/"+id+"/approve", `{"shownDigest":"`+shown.ShownDigest+`"}`); status != 200 {
		r.Fatalf("approve: %d %s", status, text)
	}
	awaitChained(r.T, conn, id, "finished")

	p.step("deliver")
	if answer := r.result(0, id); !strings.Contains(answer, "done") {
		r.Fatalf("the result: %s", answer)
	}
	awaitChained(r.T, conn, id, "delivered")
	return life{p.end()}
}

// awaitChained waits until the journal has a step of a call.
func awaitChained(t *testing.T, conn *pgx.Conn, id, step string) {
	t.Helper()
	for there := false; !there; time.Sleep(time.Millisecond) {
		err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM journal WHERE task = $1 AND note::jsonb->>'step' = $2)", id, step).Scan(&there)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (l life) within() bool {
	return l.ownStatements() <= maxStatements && l.taskReads() <= maxTaskReads && len(l.statements) <= maxInAll
}

// ownStatements returns how many statements the call waits for: all but those that chain notes,
// wake other replicas, or look for work.
func (l life) ownStatements() int {
	n := len(l.statements)
	for _, s := range l.statements {
		for _, beside := range []string{"journal_ends", "pg_notify", "WHERE state IN"} {
			if strings.Contains(s.text, beside) {
				n--
				break
			}
		}
	}
	return n
}

// list logs the statements, each with its step of the call and its round trip.
func (l life) list(t *testing.T) {
	t.Helper()
	var text strings.Builder
	trips := map[int]bool{}
	for i, s := range l.statements {
		trips[s.trip] = true
		fmt.Fprintf(&text, "%3d  trip %-3d %-16s %s\n", i+1, len(trips), s.step, strings.Join(strings.Fields(s.text), " "))
	}
	t.Logf("%d statements in %d round trips; the call waits for %d, and %d read the task:\n%s",
		len(l.statements), len(trips), l.ownStatements(), l.taskReads(), &text)
}

// taskReads returns how many statements return tasks.
func (l life) taskReads() int {
	n := 0
	for _, s := range l.statements {
		if words := strings.Join(strings.Fields(s.text), " "); strings.HasPrefix(words, "SELECT") && strings.Contains(words, "document FROM tasks") {
			n++
		}
	}
	return n
}

// A statement is one that the gate has executed.
type statement struct {
	step string
	trip int // the number of its round trip
	text string
}

// A statementProxy is a proxy between the gate and the database that records statements.
type statementProxy struct {
	address string

	mu    sync.Mutex
	now   string // the step of the call; empty if nothing is recorded
	trips int
	seen  []statement
}

func newStatementProxy(t *testing.T, server string) *statementProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &statementProxy{address: listener.Addr().String()}
	var running sync.WaitGroup
	t.Cleanup(func() { listener.Close(); running.Wait() })
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(client, server) })
		}
	})
	return p
}

// serve forwards the messages of one connection in both directions.
func (p *statementProxy) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	var back sync.WaitGroup
	back.Go(func() { io.Copy(client, server); client.Close() })
	defer back.Wait()
	defer server.Close()
	messages := pgproto3.NewBackend(io.TeeReader(client, server), &bytes.Buffer{})
	if _, err := messages.ReceiveStartupMessage(); err != nil {
		return
	}
	prepared, bound, trip := map[string]string{}, map[string]string{}, p.nextTrip()
	for {
		m, err := messages.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.Parse:
			prepared[m.Name] = m.Query
		case *pgproto3.Bind:
			bound[m.DestinationPortal] = prepared[m.PreparedStatement]
		case *pgproto3.Execute:
			p.note(trip, bound[m.Portal])
		case *pgproto3.Query:
			p.note(trip, m.String)
			trip = p.nextTrip()
		case *pgproto3.Sync:
			trip = p.nextTrip()
		}
	}
}

func (p *statementProxy) nextTrip() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trips++
	return p.trips
}

func (p *statementProxy) note(trip int, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != "" {
		p.seen = append(p.seen, statement{p.now, trip, text})
	}
}

// begin starts the recording.
func (p *statementProxy) begin(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.seen = step, nil
}

func (p *statementProxy) step(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = name
}

// end returns the statements since begin.
func (p *statementProxy) end() []statement {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = ""
	return p.seen
}
