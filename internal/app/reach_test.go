package app_test

import (
	"net"
	"runtime"
	"testing"
)

// An upstream that cannot be reached shows in the log at the start, once, and so
// does that it can be reached later. One that can be reached at once is not worth a
// line.
func TestUnreachableUpstream(t *testing.T) {
	free := "127.0.0.1:0"
	if runtime.GOOS == "linux" {
		free = "127.0.0.77:0" // nobody else takes a port there
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
	eventually(t, "the log tells that it can be reached", func() bool {
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
		t.Errorf("of an upstream that can be reached: %q", said)
	}
}
