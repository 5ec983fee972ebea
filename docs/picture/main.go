// Command picture makes docs/demo.svg, an animated picture of the demo, from a real
// run of it: it starts "thoughtgate demo", types the commands that the demo prints,
// and draws what it reads.
//
//	go run ./docs/picture PROGRAM docs/demo.svg
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"time"
)

// patience is how long any step may take.
const patience = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	err := run(ctx, os.Args[1:])
	cancel()
	stop()
	if err != nil {
		log.New(os.Stderr, "picture: ", 0).Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: picture PROGRAM FILE")
	}
	shots, err := record(ctx, args[0])
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], draw(shots), 0o644) // a picture for everybody
}

// A shot is text that appears in one of the two terminals.
type shot struct {
	approver bool // it is the approver's terminal, not the agent's
	command  bool // typed by a person
	text     string
}

// A demo is one that runs.
type demo struct {
	lines    *bufio.Scanner
	agent    string // commands that make a shell the agent's
	approver string // and the approver's
}

// record plays the demo: the agent reads a file and wants to delete another one, the
// approver lets it.
func record(ctx context.Context, program string) ([]shot, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "demo", "--listen", "127.0.0.1:0", "--operators-listen", "127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	d := &demo{lines: bufio.NewScanner(out)}
	d.setUp(program)
	shots, err := d.play(ctx)
	cancel()
	if ended := cmd.Wait(); err == nil && ctx.Err() == nil {
		err = ended
	}
	return shots, err
}

// setUp reads what the demo prints before the first call.
func (d *demo) setUp(program string) {
	thoughtgate := "thoughtgate() { '" + strings.ReplaceAll(program, "'", `'\''`) + `' "$@"`
	d.approver, d.agent = thoughtgate+"; }\n", thoughtgate+" --server %s; }\n"
	for d.lines.Scan() {
		line := d.lines.Text()
		if at := endpoint.FindStringSubmatch(line); at != nil {
			d.agent = fmt.Sprintf(d.agent, at[1])
		}
		if strings.HasPrefix(line, "    export ") {
			d.approver += strings.TrimSpace(line) + "\n"
		}
		if strings.HasPrefix(line, "inbox  ") {
			return
		}
	}
}

const (
	reading  = "thoughtgate call read_file path=/notes/todo.txt"
	deleting = "thoughtgate call delete_file path=/notes/todo.txt"
	waiting  = "Waiting for approval"
)

var (
	endpoint = regexp.MustCompile(` MCP client at (\S+):$`)
	heldCall = regexp.MustCompile(`^(tg_\S+)  pending  `)
	digest   = regexp.MustCompile(`(?m)^shown\s+([0-9a-f]{16})`)
	page     = regexp.MustCompile(` · http\S+`)
)

// play has the agent make its calls and the approver decide.
func (d *demo) play(ctx context.Context) ([]shot, error) {
	text, err := shell(ctx, d.agent+reading)
	if err != nil {
		return nil, err
	}
	shots := []shot{{text: reading, command: true}, {text: strings.TrimSpace(text)}, {text: deleting, command: true}}
	deletion, err := start(ctx, d.agent+deleting)
	if err != nil {
		return nil, err
	}
	id, held := d.held()
	if id == "" {
		return nil, errors.New("the demo holds no call")
	}
	if err := deletion.until(waiting); err != nil {
		return nil, err
	}
	shots = append(shots, shot{text: page.ReplaceAllString(deletion.line, " · http://127.0.0.1:8081/…")})
	for _, line := range held {
		shots = append(shots, shot{approver: true, text: line})
	}
	details, err := shell(ctx, d.approver+"thoughtgate approvals show "+id)
	if err != nil {
		return nil, err
	}
	shown := digest.FindStringSubmatch(details)
	if shown == nil {
		return nil, fmt.Errorf("no digest in %s", details)
	}
	approve := "thoughtgate approvals approve " + id + " --shown " + shown[1]
	said, err := shell(ctx, d.approver+approve)
	if err != nil {
		return nil, err
	}
	shots = append(shots, shot{approver: true, command: true, text: approve}, shot{approver: true, text: strings.TrimSpace(said)})
	if err := deletion.until("deleted "); err != nil {
		return nil, err
	}
	return append(shots, shot{text: deletion.line}), deletion.cmd.Wait()
}

// A command is one that runs.
type command struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	line  string // the last that was read
}

func start(ctx context.Context, script string) (*command, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec 2>&1\n"+script) // what the demo prints for users to type
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &command{cmd: cmd, lines: bufio.NewScanner(out)}, cmd.Start()
}

// until reads what the command prints up to a line with a text.
func (c *command) until(text string) error {
	for c.lines.Scan() {
		if c.line = c.lines.Text(); strings.Contains(c.line, text) {
			return nil
		}
	}
	return fmt.Errorf("the agent did not read %q: %w", text, c.lines.Err())
}

// held reads the next call that the demo prints, with what it says of it.
func (d *demo) held() (id string, lines []string) {
	for d.lines.Scan() {
		if m := heldCall.FindStringSubmatch(d.lines.Text()); m != nil {
			id, lines = m[1], append(lines, d.lines.Text())
			break
		}
	}
	if d.lines.Scan() {
		lines = append(lines, d.lines.Text())
	}
	return id, lines
}

// shell runs commands and returns what they print.
func shell(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script) // what the demo prints for users to type
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}
