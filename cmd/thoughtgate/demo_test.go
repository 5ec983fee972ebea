package main

import (
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// occupied returns an address that is in use until the test ends.
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
	free := demoAddress{"127.0.0.1:0", false}
	d, err := demoConfig{agents: demoAddress{taken, false}, operators: free, upstream: free, stdout: &out, stderr: io.Discard}.prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer d.upstream.Close()
	defer d.gate.Close()
	if notice := taken + " is in use, so the demo uses another port.\n\n"; !strings.HasPrefix(out.String(), notice) {
		t.Errorf("the new address is not announced in:\n%s", out.String())
	}
	if d.gate.AgentAddr() == taken || !strings.Contains(out.String(), "http://"+d.gate.AgentAddr()+"/mcp") {
		t.Errorf("the gate is at %s, but the output is:\n%s", d.gate.AgentAddr(), out.String())
	}
}

func TestDemoUsesOnlyTheChosenAddress(t *testing.T) {
	taken, free := demoAddress{occupied(t), true}, demoAddress{"127.0.0.1:0", false}
	for _, p := range []demoConfig{
		{agents: taken, operators: free, upstream: free, stdout: io.Discard, stderr: io.Discard},
		{agents: free, operators: taken, upstream: free, stdout: io.Discard, stderr: io.Discard},
	} {
		if _, err := p.prepare(); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("got %v, want %v", err, syscall.EADDRINUSE)
		}
	}
}

// A client's configuration for the demo works at every start of the demo.
func TestDemoListensAtTheSamePorts(t *testing.T) {
	free := func() demoAddress {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return demoAddress{l.Addr().String(), false}
	}
	p := demoConfig{agents: free(), operators: free(), upstream: free(), stdout: io.Discard, stderr: io.Discard}
	for range 2 {
		d, err := p.prepare()
		if err != nil {
			t.Fatal(err)
		}
		if d.gate.AgentAddr() != p.agents.address || d.gate.OperatorAddr() != p.operators.address || d.upstream.Addr().String() != p.upstream.address {
			t.Errorf("the demo is at %s, %s and %s; want %v", d.gate.AgentAddr(), d.gate.OperatorAddr(), d.upstream.Addr(), p)
		}
		d.upstream.Close()
		d.gate.Close()
	}
	flag := newDemo().Flags().Lookup("operators-listen")
	if flag == nil || flag.DefValue != "127.0.0.1:8081" {
		t.Errorf("operators-listen = %v; want a stable default", flag)
	}
}

// The printed commands quote every path of the program.
func TestDemoQuotesItsPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "it's; a $(gate)")
	testenv.WriteProgram(t, file, "#!/bin/sh\necho \"got $*\"\n")
	var out strings.Builder
	free := demoAddress{"127.0.0.1:0", false}
	d, err := demoConfig{agents: free, operators: free, upstream: free, program: file, stdout: &out, stderr: io.Discard}.prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer d.upstream.Close()
	defer d.gate.Close()
	line := regexp.MustCompile(`(?m)^    (.*) call --server \S+ read_file `).FindStringSubmatch(out.String())
	if line == nil {
		t.Fatalf("no call in:\n%s", out.String())
	}
	got, err := exec.CommandContext(t.Context(), "sh", "-euc", line[1]+" approvals 'a b'").CombinedOutput()
	if err != nil || string(got) != "got approvals a b\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

// The demo says little, and ends with the link to click.
func TestDemoIsShort(t *testing.T) {
	var out strings.Builder
	free := demoAddress{"127.0.0.1:0", false}
	d, err := demoConfig{agents: free, operators: free, upstream: free, program: "/usr/bin/thoughtgate", stdout: &out, stderr: io.Discard}.prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer d.upstream.Close()
	defer d.gate.Close()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if last := lines[len(lines)-1]; len(lines) > 10 || last != "inbox  "+d.gate.LoginLink() {
		t.Errorf("%d lines, the last one %q", len(lines), last)
	}
}
