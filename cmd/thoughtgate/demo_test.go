package main

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
)

// occupied returns an address that is taken until the test ends.
func occupied(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func TestDemoFindsAnotherAddress(t *testing.T) {
	taken := occupied(t)
	var out strings.Builder
	d, err := demoPlan{listen: taken, stdout: &out, stderr: io.Discard}.prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer d.upstream.Close()
	defer d.gate.Close()
	if notice := taken + " is taken, so the demo listens elsewhere.\n\n"; !strings.HasPrefix(out.String(), notice) {
		t.Errorf("there is no notice in:\n%s", out.String())
	}
	if d.gate.AgentAddr() == taken || !strings.Contains(out.String(), "http://"+d.gate.AgentAddr()+"/mcp") {
		t.Errorf("the gate is at %s, but this is told:\n%s", d.gate.AgentAddr(), out.String())
	}
}

func TestDemoKeepsToAChosenAddress(t *testing.T) {
	p := demoPlan{listen: occupied(t), fixed: true, stdout: io.Discard, stderr: io.Discard}
	if _, err := p.prepare(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v, want %v", err, syscall.EADDRINUSE)
	}
}
