package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/bench/proc"
	"github.com/thoughtgate/thoughtgate-go/bench/report"
)

// pipePeer is the argument with which this program starts itself as an MCP server over
// standard input and output.
const pipePeer = "pipe"

// servePipe answers every request with the same result.
func servePipe(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	result := `,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 256) + `"}]}}` + "\n"
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, rest, asks := strings.Cut(line, `"id":`)
		if !asks {
			continue
		}
		id, _, _ := strings.Cut(rest, ",")
		if _, err := io.WriteString(out, `{"jsonrpc":"2.0","id":`+id+result); err != nil {
			return err
		}
	}
}

// pipe measures forwarded calls over standard input and output, one at a time, with and
// without wrap.
func (b *bench) pipe(ctx context.Context) (err error) {
	server := []string{b.self, peerCommand, pipePeer}
	wrap := append([]string{b.gate, "wrap", "--config", filepath.Join(b.dir, rulesFile), "--name", "bench", "--"}, server...)
	bare, err := b.startPiped(ctx, server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.stop()) }()
	gated, err := b.startPiped(ctx, wrap)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gated.stop()) }()
	var added, added99, cpu []float64
	for range b.rounds {
		direct, err := bare.round(b)
		if err != nil {
			return err
		}
		through, err := gated.round(b)
		if err != nil {
			return err
		}
		added = append(added, through.p50-direct.p50)
		added99 = append(added99, through.p99-direct.p99)
		cpu = append(cpu, through.cpu)
	}
	b.rows = append(b.rows,
		report.Row{What: "call over a pipe: added p50", Value: report.Median(added), Unit: "µs", Note: "wrap with 100 rules, one call at a time, over the bare pipe"},
		report.Row{What: "call over a pipe: added p99", Value: report.Median(added99), Unit: "µs"},
		report.Row{What: "call over a pipe: CPU of wrap", Value: report.Median(cpu), Unit: "µs", Note: "without the server's"})
	return nil
}

// A piped is a program that answers over standard input and output.
type piped struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

func (b *bench) startPiped(ctx context.Context, command []string) (*piped, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+b.dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &piped{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 64<<10)}
	for range 200 { // warm up
		if err := p.call(); err != nil {
			return nil, errors.Join(err, p.stop())
		}
	}
	return p, nil
}

func (p *piped) stop() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// call makes one call.
func (p *piped) call() error {
	p.id++
	id := strconv.Itoa(p.id)
	_, err := io.WriteString(p.in, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"get_weather","arguments":{"city":"Paris"}}}`+"\n")
	if err != nil {
		return err
	}
	line, err := p.out.ReadString('\n')
	if err == nil && !strings.Contains(line, `"id":`+id+`,"result"`) {
		err = fmt.Errorf("the answer to %s is %.200s", id, line)
	}
	return err
}

// A pipeRound has the measurements of one round of calls, in microseconds.
type pipeRound struct{ p50, p99, cpu float64 }

// round makes calls for the duration of a round.
func (p *piped) round(b *bench) (pipeRound, error) {
	before, err := p.cpu()
	if err != nil {
		return pipeRound{}, err
	}
	var took []time.Duration
	for end := b.now().Add(b.round); b.now().Before(end); {
		began := b.now()
		if err := p.call(); err != nil {
			return pipeRound{}, err
		}
		took = append(took, b.now().Sub(began))
	}
	after, err := p.cpu()
	slices.Sort(took)
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return pipeRound{
		p50: micros(report.Quantile(took, 0.5)), p99: micros(report.Quantile(took, 0.99)), cpu: micros(after-before) / float64(len(took)),
	}, err
}

// cpu returns the CPU time of the program, without its children.
func (p *piped) cpu() (time.Duration, error) {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	var total time.Duration
	for _, name := range names {
		text, readErr := os.ReadFile(name)
		if readErr != nil {
			continue // the thread has just ended
		}
		ran, statErr := proc.SchedStat(text)
		err = errors.Join(err, statErr)
		total += ran
	}
	return total, err
}
