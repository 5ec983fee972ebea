package stdioclient

import (
	"bytes"
	"crypto/rand"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// markVariable is an environment variable with a different value in each run of a server. Processes
// that the server starts inherit it, so that they are found after their parent has ended.
const markVariable = "MCP_SERVER_RUN"

// descendants are the processes that one run of a server has started, directly or indirectly. They
// may have left its process group. A process is found by its parent or by the mark in its
// environment. A process that has lost both is found only if it was known before.
type descendants struct {
	mark string // the environment variable, as NAME=value

	mu    sync.Mutex
	known map[int]string // start times by pid: pids are reused
}

func newDescendants() *descendants {
	//mutate:swap "Text()" "Text()[:0]" TestOnlyOwnDescendantsAreEnded a server ends processes of other servers
	return &descendants{mark: markVariable + "=" + rand.Text(), known: map[int]string{}}
}

// update finds the current descendants. Server is the pid of the server, or 0 if it has ended.
func (s *descendants) update(server int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := processes()
	family := map[int]bool{server: server != 0}
	for pid, p := range all {
		family[pid] = family[pid] || s.known[pid] == p.begun || s.isMarked(pid)
	}
	for pid := range all {
		s.adopt(pid, all, family)
	}
	clear(s.known)
	for pid, p := range all {
		if family[pid] && pid != server {
			s.known[pid] = p.begun
		}
	}
}

// adopt adds a process to the family if one of its ancestors belongs to it.
func (s *descendants) adopt(pid int, all map[int]process, family map[int]bool) {
	for at, steps := pid, 0; at > 1 && steps < len(all); at, steps = all[at].parent, steps+1 {
		if family[at] {
			family[pid] = true
			return
		}
	}
}

func (s *descendants) isMarked(pid int) bool {
	environ, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") // readable for processes of the same user
	return bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+s.mark+"\x00"))
}

// signal sends a signal to all known processes, and reports whether any of them runs.
func (s *descendants) signal(what syscall.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, begun := range s.known {
		p, err := os.FindProcess(pid) // with a pidfd, pid now means this process
		if err != nil {
			continue
		}
		if now, ok := readProcess(pid); ok && now.begun == begun {
			_ = p.Signal(what)
		} else {
			delete(s.known, pid)
		}
		_ = p.Release()
	}
	return len(s.known) > 0
}

// endPoll is how often end checks whether processes have ended.
const endPoll = 10 * time.Millisecond

// end sends SIGTERM to the descendants of a server that has ended, and SIGKILL after grace.
func (s *descendants) end(grace time.Duration) {
	s.update(0)
	s.signal(syscall.SIGTERM)
	for late := time.Now().Add(grace); s.signal(0) && time.Now().Before(late); {
		time.Sleep(endPoll)
	}
	// They may start others until all have ended. A process of another user cannot be killed.
	for late := time.Now().Add(grace); s.signal(syscall.SIGKILL) && time.Now().Before(late); s.update(0) {
		time.Sleep(endPoll)
	}
}

// A process is an entry of /proc.
type process struct {
	parent int
	begun  string // start time in clock ticks
}

// processes returns all running processes.
func processes() map[int]process {
	all := map[int]process{}
	proc, err := os.Open("/proc")
	if err != nil {
		return all
	}
	defer func() { _ = proc.Close() }()
	names, _ := proc.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok {
				all[pid] = p
			}
		}
	}
	return all
}

// readProcess reads the entry of a process. It returns false if the process has ended.
func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The name, in parentheses, may contain any characters.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const state, parent, begun = 0, 1, 19
	if len(fields) <= begun || bytes.ContainsAny(fields[state], "ZX") {
		return process{}, false
	}
	of, err := strconv.Atoi(string(fields[parent]))
	return process{parent: of, begun: string(fields[begun])}, err == nil
}
