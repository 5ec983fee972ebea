package app_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// A wrap ends with its agent, and after a signal, even if its server has stopped reading.
func TestWrapOfServerThatReadsNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("sleep is not installed")
	}
	large := strings.Repeat("x", 100<<10) // more than a pipe holds
	for name, messages := range map[string][]string{
		"many": strings.Split(strings.Repeat(strings.Repeat("x", 1<<10)+" ", 199), " "), "one": {large},
	} {
		t.Run(name+", the agent leaves", func(t *testing.T) {
			t.Parallel()
			_, in, done := startStuckWrap(t, "", io.Discard)
			callAll(t, in, messages)
			in.Close()
			wantEnd(t, done)
		})
		t.Run(name+", a signal", func(t *testing.T) {
			t.Parallel()
			stop, in, done := startStuckWrap(t, "", io.Discard)
			callAll(t, in, messages)
			stop()
			wantEnd(t, done)
			in.Close()
		})
	}
}

// The time limits of forwarded requests apply to a server that is a program.
func TestWrapLimitsForwardedCalls(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("sleep is not installed")
	}
	read, out := io.Pipe()
	_, in, done := startStuckWrap(t, "limits: {call_timeout: 100ms, request_timeout: 100ms}\n", out)
	answers := bufio.NewReader(read)
	for _, method := range []string{"tools/call", "prompts/list"} {
		fmt.Fprintf(in, `{"jsonrpc":"2.0","id":1,"method":%q,"params":{"name":"x"}}`+"\n", method)
		if answer, err := answers.ReadString('\n'); err != nil || !strings.Contains(answer, `"upstream_timeout"`) {
			t.Errorf("%s was answered %s, %v", method, answer, err)
		}
	}
	in.Close()
	wantEnd(t, done)
}

// startStuckWrap starts a wrap of a server that reads nothing. It returns a function that
// signals the wrap, the pipe to which the agent writes, and a channel with the wrap's result.
func startStuckWrap(t *testing.T, settings string, out io.Writer) (stop context.CancelFunc, in *io.PipeWriter, done chan error) {
	t.Helper()
	cfg := load(t, "version: 1\noperators: {listen: 127.0.0.1:0, token: secret-of-the-operators}\nstore: 'sqlite:"+filepath.Join(t.TempDir(), "own.db")+
		"'\nupstreams: [{url: http://127.0.0.1:1/}]\nrules: [{match: 'hold_*', action: approve}]\ndefault: forward\nshutdown: {drain: 1s}\n"+settings)
	server := config.DefaultUpstream()
	server.Name, server.URL, server.Command = "stuck", (*url.URL)(nil), []string{"sleep", "600"}
	cfg.Upstreams = []config.Upstream{server}
	read, in := io.Pipe()
	w, err := app.NewWrap(cfg, slog.New(slog.DiscardHandler), app.Wrap{In: read, Out: out, Stderr: io.Discard, User: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	done = make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return stop, in, done
}

// callAll calls a tool with each of the texts.
func callAll(t *testing.T, in io.Writer, texts []string) {
	t.Helper()
	written := make(chan error, 1)
	go func() {
		for i, text := range texts {
			if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"get_x","arguments":{"text":"%s"}}}`+"\n", i, text); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	wantEnd(t, written)
}

func wantEnd(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(45 * time.Second):
		t.Fatal("the wrap did not end")
	}
}
