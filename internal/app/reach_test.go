package app_test

import (
	"net"
	"runtime"
	"testing"
)

// An unreachable upstream is logged once at the start, and again when it can be reached. An
// upstream that is reachable at the start is not logged.
func TestUnreachableUpstream(t *testing.T) {
	free := "127.0.0.1:0"
	if runtime.GOOS == "linux" {
		free = "127.0.0.77:0" // no other program binds ports there
	}
	l, err := net.Listen("tcp", free)
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, log, stop := startLogged(t, gatewayFor("http://"+address+"/mcp"))
	eventually(t, "the log warns", func() bool {
		return len(log.with("upstream cannot be reached", `"level":"WARN"`, `"upstream":"default"`, address)) > 0
	})
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	eventually(t, "the log says that the upstream can be reached", func() bool {
		return len(log.with("upstream can be reached now", `"level":"INFO"`, `"upstream":"default"`)) == 1
	})
	if n := len(log.with("upstream cannot be reached")); n != 1 {
		t.Errorf("%d warnings; want 1", n)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	_, log, stop = startLogged(t, gatewayFor(answering(t, "done")))
	if err := stop(); err != nil {
		t.Error(err)
	}
	if said := log.with("be reached"); said != nil {
		t.Errorf("logged about a reachable upstream: %q", said)
	}
}
