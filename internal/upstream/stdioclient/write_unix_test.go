//go:build unix

package stdioclient

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// testTimeout limits how long a test waits; only failing tests wait that long.
const testTimeout = time.Minute

// A receiver gets the lines of the server.
type receiver chan string

func (r receiver) Received(line upstream.Line)           { r <- string(line.Text) }
func (r receiver) Unanswered(_ [][]byte, _ *mcp.Problem) {}

// next returns the next line.
func (r receiver) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-r:
		return line
	case <-time.After(testTimeout):
		t.Fatal("the server writes nothing")
		return ""
	}
}

// script returns a client whose server is a shell script.
func script(text string, args ...string) *Client {
	return New(Config{
		Name: "test", Command: append([]string{"sh", "-c", text}, args...), MaxLine: 4 << 20, Grace: time.Second, Log: slog.New(slog.DiscardHandler),
	})
}

// run starts a server that is a shell script.
func run(t *testing.T, text string, args ...string) (*Client, receiver) {
	t.Helper()
	c, lines := script(text, args...), make(receiver, 10_000)
	if err := c.Start(lines); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, lines
}

// await waits for a file.
func await(t *testing.T, file string) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return
		}
	}
	t.Fatalf("the server does not make %s", file)
}

// A client that leaves while the server reads its request does not end the server, which gets the
// whole request and its cancellation. Other writers wait only as long as their contexts allow.
func TestCancelDuringWriteCompletesMessage(t *testing.T) {
	t.Parallel()
	begun, goOn := filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "go-on")
	c, lines := run(t, `dd bs=1 count=1 2>/dev/null; : >"$0"; until test -e "$1"; do sleep 0.02; done; exec cat`, begun, goOn)
	ask := func(ctx context.Context, text string) error {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"` + text + `"}}`
		m, err := jsonrpc.ParseMessage([]byte(body), jsonrpc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Ask(ctx, NewQueue(func(int) error { return nil }), m, m.Raw, nil)
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- ask(ctx, strings.Repeat("x", 1<<20)) }()
	await(t, begun)
	leave()
	if err, unsent := <-left, new(upstream.UnsentError); !errors.Is(err, context.Canceled) || errors.As(err, &unsent) {
		t.Fatalf("a client that left while the server was reading: %v", err)
	}
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err, unsent := ask(short, "short"), new(upstream.UnsentError); !errors.As(err, &unsent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another client of a server that does not read: %v", err)
	}
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ask(t.Context(), "next"); err != nil {
		t.Errorf("the next request: %v", err)
	}
	for _, want := range []string{`x"}}`, `"method":"notifications/cancelled"`, `"next"`} {
		if line := lines.next(t); !strings.Contains(line, want) || !strings.HasPrefix(line, "{") {
			t.Errorf("the server read %.200s; want %s", line, want)
		}
	}
}

// Close does not wait for the rest of a request.
func TestCloseDuringWrite(t *testing.T) {
	t.Parallel()
	begun := filepath.Join(t.TempDir(), "begun")
	c, _ := run(t, `dd bs=1 count=1 2>/dev/null; : >"$0"; exec sleep 1000`, begun)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- c.current.Load().write(ctx, message{text: make([]byte, 1<<20)}) }()
	await(t, begun)
	leave()
	if err := <-left; !errors.Is(err, errInterrupted) {
		t.Errorf("a client that left while the server was reading: %v", err)
	}
	c.Close()
}

// A client that leaves at the end of its write does not prevent later writes.
func TestCancelAtEndOfWriteKeepsOthersWriting(t *testing.T) {
	t.Parallel()
	c, lines := run(t, `exec cat`)
	ch := c.current.Load()
	for range 2000 {
		ctx, leave := context.WithCancel(t.Context())
		m := message{text: []byte(`{}`), begin: func() error { leave(); return nil }}
		if err := ch.write(ctx, m); err == nil {
			lines.next(t)
		}
		if err := ch.write(t.Context(), message{text: []byte(`{}`)}); err != nil {
			t.Fatalf("after a client has left: %v", err)
		}
		lines.next(t)
	}
}
