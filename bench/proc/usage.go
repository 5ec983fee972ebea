package proc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU returns the CPU time, user and system, of the process. It uses the scheduler's counters,
// because those in /proc/PID/stat have a resolution of 10 ms.
func (p *Process) CPU() (time.Duration, error) {
	names, err := filepath.Glob(p.file("task/*/schedstat"))
	if err != nil {
		return 0, err
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("no CPU time of %s: /proc with schedstat (Linux) is needed", p.name)
	}
	var total time.Duration
	for _, name := range names {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has just ended
		}
		if err != nil {
			return 0, err
		}
		ran, err := SchedStat(text)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		total += ran
	}
	return total, nil
}

// SchedStat returns the CPU time of a thread from the text of its schedstat.
func SchedStat(text []byte) (time.Duration, error) {
	first, _, _ := strings.Cut(string(text), " ")
	ran, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, err
	}
	return time.Duration(ran), nil
}

// Memory is the memory of a process.
type Memory struct {
	RSS  int64 // resident bytes
	Peak int64 // the peak of RSS since the start or [Process.ResetPeak]
}

// Memory returns the current memory of the process.
func (p *Process) Memory() (Memory, error) {
	text, err := os.ReadFile(p.file("status"))
	if err != nil {
		return Memory{}, err
	}
	return Status(text)
}

// Status returns the memory from the text of /proc/PID/status.
func Status(text []byte) (Memory, error) {
	var m Memory
	fields := map[string]*int64{"VmRSS": &m.RSS, "VmHWM": &m.Peak}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		field, wanted := fields[name]
		if !wanted {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("%s: %w", name, err)
		}
		*field = kib << 10
		delete(fields, name)
	}
	if len(fields) > 0 {
		return Memory{}, errors.New("status without VmRSS or VmHWM")
	}
	return m, nil
}

// ResetPeak sets [Memory.Peak] to the current memory.
func (p *Process) ResetPeak() error {
	const resetPeak = "5"
	return os.WriteFile(p.file("clear_refs"), []byte(resetPeak), 0)
}

// LoadAverage returns the load of the machine in the last minute, because measurements on a
// busy machine are inaccurate.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	minute, _, _ := strings.Cut(string(text), " ")
	return minute
}

func (p *Process) file(name string) string {
	return fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name)
}

// Mallocs returns the number of allocations of the process since its start, or NaN if it has
// no such metric.
func (p *Process) Mallocs(ctx context.Context) (float64, error) {
	if p.Operators == "" {
		return math.NaN(), nil
	}
	text, err := p.operators(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	return Metric(text, "go_memstats_mallocs_total")
}

// Ready reports whether the process reports that it is ready.
func (p *Process) Ready(ctx context.Context) error {
	_, err := p.operators(ctx, "/readyz")
	return err
}

func (p *Process) operators(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Operators+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s of %s: %s", path, p.name, resp.Status)
	}
	return text, nil
}

// Metric returns the value of a metric without labels in Prometheus text.
func Metric(text []byte, name string) (float64, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}
