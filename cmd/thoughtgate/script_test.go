//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/driver"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

	"github.com/thoughtgate/thoughtgate-go/internal/demo"
)

// patience limits every wait in a script.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	programs := map[string]func(){
		"thoughtgate": main,
		"browser":     failing(browse),
		"curl":        failing(curl),
		"spawn":       failing(spawn),
		"upstream":    failing(upstream),
		"receiver":    failing(receive),
		"sqlite":      failing(sqlite),
	}
	maps.Copy(programs, systemPrograms)
	testscript.Main(m, programs)
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise every program takes a second to end
			root, err := filepath.Abs("../..")
			env.Setenv("ROOT", root)
			if nobody, err := user.Lookup("nobody"); err == nil {
				env.Setenv("NOBODY_HOME", nobody.HomeDir)
			}
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await":   await,
			"private": private,
			"signal":  send,
		},
	})
}

func failing(f func() error) func() {
	return func() {
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// curl is a command with the flags that the demo prints, so that the demo's commands need only
// this module.
func curl() error {
	flags := pflag.NewFlagSet("curl", pflag.ContinueOnError)
	flags.BoolP("silent", "s", false, "")
	flags.BoolP("show-error", "S", false, "")
	flags.BoolP("no-buffer", "N", false, "")
	headers := flags.StringArrayP("header", "H", nil, "")
	data := flags.StringP("data", "d", "", "")
	dump := flags.StringP("dump-header", "D", "", "")
	output := flags.StringP("output", "o", "/dev/stdout", "")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	method := http.MethodGet
	if flags.Changed("data") {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(context.Background(), method, flags.Arg(0), strings.NewReader(*data))
	if err != nil {
		return err
	}
	for _, h := range *headers {
		name, value, _ := strings.Cut(h, ":")
		req.Header.Set(name, strings.TrimSpace(value))
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if *dump == "-" {
		fmt.Printf("HTTP/1.1 %s\r\n", resp.Status)
		resp.Header.Write(os.Stdout)
	}
	out, err := os.OpenFile(*output, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, resp.Body)
	return errors.Join(err, out.Close())
}

// receive prints its URL, and what it receives from connections, one after the other.
func receive() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("tcp://" + l.Addr().String())
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, conn)
		fmt.Println()
		if err = errors.Join(err, conn.Close()); err != nil {
			return err
		}
	}
}

// browse opens a link as a browser does, in which the person signs in.
func browse() error {
	resp, err := http.Get(os.Args[1])
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// spawn runs a program and writes files about it: NAME.out and NAME.err with the output so
// far, NAME.pid with the process id, and NAME.status with the exit status.
func spawn() error {
	name := os.Args[1]
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	stdout, err := os.Create(name + ".out")
	if err != nil {
		return err
	}
	stderr, err := os.Create(name + ".err")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, os.Args[2], os.Args[3:]...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(name+".pid", []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return err
	}
	_ = cmd.Wait() // the exit status is enough
	return os.WriteFile(name+".status", fmt.Appendln(nil, cmd.ProcessState.ExitCode()), 0o600)
}

// sqlite runs statements on a database without using a gate.
func sqlite() error {
	db, err := driver.Open("file:" + os.Args[1])
	if err != nil {
		return err
	}
	_, err = db.ExecContext(context.Background(), os.Args[2])
	return errors.Join(err, db.Close())
}

// upstream serves the demo's MCP server and prints its address.
func upstream() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String() + "/mcp")
	return http.Serve(l, demo.New())
}

// await waits until a file matches a pattern. A third argument names a variable for the
// pattern's first group.
func await(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: await FILE PATTERN [VARIABLE]")
	}
	file, pattern := ts.MkAbs(args[0]), regexp.MustCompile("(?m)"+args[1])
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			ts.Fatalf("%v", err)
		}
		if m := pattern.FindSubmatch(text); m != nil {
			if len(args) == 3 {
				ts.Setenv(args[2], string(m[1]))
			}
			return
		}
		select {
		case <-deadline:
			ts.Fatalf("%s does not match %s:\n%s", args[0], args[1], text)
		case <-tick.C:
		}
	}
}

// private checks that only the owner can use a file.
func private(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: private FILE")
	}
	about, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if about.Mode() != 0o600 {
		ts.Fatalf("%s has mode %s", args[0], about.Mode())
	}
}

// send sends INT or TERM to a spawned program.
func send(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM}
	if len(args) != 2 || signals[args[1]] == 0 {
		ts.Fatalf("usage: signal NAME INT|TERM")
	}
	pid := 0
	for deadline := time.Now().Add(time.Minute); pid == 0; time.Sleep(10 * time.Millisecond) { // spawn may not have written it yet
		text, err := os.ReadFile(ts.MkAbs(args[0] + ".pid"))
		if err == nil {
			pid, err = strconv.Atoi(string(text))
		}
		if err != nil && time.Now().After(deadline) {
			ts.Fatalf("%v", err)
		}
	}
	ts.Check(syscall.Kill(pid, signals[args[1]]))
}
