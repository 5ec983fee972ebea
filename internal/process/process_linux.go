package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
)

const proc = "/proc"

// maxDepth is the largest number of ancestors that are looked at.
const maxDepth = 1000

// supported returns an error if the system does not tell about connections.
var supported = sync.OnceValue(localuser.Check)

// Behind returns the processes at the other end of a connection. The error is [ErrUnknown],
// [ErrRemote] or [ErrClosed].
func Behind(c net.Conn) (Peer, error) {
	s, err := socketOf(c)
	if err != nil {
		return Peer{}, err
	}
	return peerOf(s, math.MaxInt), nil
}

// OneBehind is like [Behind], but returns only one of the processes that have the socket open: if
// it still has, the last one that was found.
func OneBehind(c net.Conn, last ID) (Peer, error) {
	s, err := socketOf(c)
	if err != nil {
		return Peer{}, err
	}
	if last != (ID{}) && Exists(last) {
		if open, _ := hasOpen(last.PID, linkTo(s)); open {
			return Peer{UID: s.UID, Holders: []ID{last}}, nil
		}
	}
	return peerOf(s, 1), nil
}

// socketOf returns the other end of a connection.
func socketOf(c net.Conn) (localuser.Socket, error) {
	if err := supported(); err != nil {
		return localuser.Socket{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	s, err := localuser.SocketOf(c)
	switch {
	case errors.Is(err, localuser.ErrClosed), errors.Is(err, localuser.ErrNoSocket) && isLocal(c.RemoteAddr()):
		return s, ErrClosed
	case errors.Is(err, localuser.ErrNoSocket):
		return s, ErrRemote
	case err != nil:
		return s, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return s, nil
}

// linkTo returns the link of an open file that is the socket.
func linkTo(s localuser.Socket) string { return fmt.Sprintf("socket:[%d]", s.Inode) }

// peerOf returns the processes that have a socket open, at most so many.
func peerOf(s localuser.Socket, most int) Peer {
	p := Peer{UID: s.UID}
	link := linkTo(s)
	for pid := range numbersIn(proc) {
		open, err := hasOpen(pid, link)
		if !open && !errors.Is(err, fs.ErrPermission) {
			continue
		}
		about, failed := Read(pid)
		switch {
		case failed != nil:
		case open:
			p.Holders = append(p.Holders, about.ID)
		case about.UID == s.UID && s.UID == os.Geteuid() && pid != os.Getpid(): // the files of other users are always hidden
			p.Hidden = append(p.Hidden, about.ID)
		}
		if len(p.Holders) >= most {
			break
		}
	}
	if len(p.Holders) > 0 {
		p.Hidden = nil
	}
	return p
}

// isLocal reports whether an address belongs to this machine.
func isLocal(addr net.Addr) bool {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return false
	}
	ip := at.Addr().Unmap()
	if ip.IsLoopback() {
		return true
	}
	own, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == ip.WithZone("")
	})
}

// numbersIn yields the numbers among the names of files in a directory.
func numbersIn(dir string) iter.Seq[int] {
	return func(yield func(int) bool) {
		names, _ := namesIn(dir)
		for _, name := range names {
			if n, err := strconv.Atoi(name); err == nil && !yield(n) {
				return
			}
		}
	}
}

// namesIn returns the names of the files in a directory, in no order.
func namesIn(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Readdirnames(-1)
}

// hasOpen reports whether a process has a file open, given its link. Threads can have files that
// their process does not have.
func hasOpen(pid int, link string) (bool, error) {
	seen := 0 // the last thread whose files were looked at
	for thread := range numbersIn(proc + "/" + strconv.Itoa(pid) + "/task") {
		if seen != 0 && shareFiles(seen, thread) {
			continue
		}
		dir := proc + "/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(thread) + "/fd"
		files, err := namesIn(dir)
		if errors.Is(err, fs.ErrPermission) {
			return false, err
		}
		for _, file := range files {
			switch to, err := os.Readlink(dir + "/" + file); {
			case to == link:
				return true, nil
			case errors.Is(err, fs.ErrPermission): // then the names of all files can be read, but no link
				return false, err
			}
		}
		seen = thread
	}
	return false, nil
}

// shareFiles reports whether two threads have the same open files. It reports false if the system
// does not tell.
func shareFiles(one, other int) bool {
	const files = 2 // KCMP_FILES; see kcmp(2)
	order, _, failed := unix.RawSyscall6(unix.SYS_KCMP, uintptr(one), uintptr(other), files, 0, 0, 0)
	return failed == 0 && order == 0
}

// Read returns the process with this id.
func Read(pid int) (Process, error) {
	s, err := readStat(pid)
	if err != nil {
		return Process{}, err
	}
	p := Process{ID: ID{pid, s.start}, Program: s.name, Terminal: s.terminal, Session: s.session}
	if file, err := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "exe")); err == nil {
		p.Program = file
	}
	p.UID, err = readUID(pid)
	return p, err
}

// Ancestors returns a process and those that started it, directly or not, from the last to the
// first. A process whose parent has ended belongs to the one that the system gave it to, which is
// usually the first process.
func Ancestors(id ID) []ID {
	var chain []ID
	for range maxDepth {
		s, err := readStat(id.PID)
		//mutate:swap "s.start != id.Start" "false" TestReusedNumberIsAnotherProcess a later process with the same number counts as the earlier one
		if err != nil || s.start != id.Start {
			return chain
		}
		chain = append(chain, id)
		parent, err := readStat(s.parent)
		if err != nil || parent.start > s.start { // it has ended meanwhile
			return chain
		}
		id = ID{s.parent, parent.start}
	}
	return chain
}

// Exists reports whether the process still runs.
func Exists(id ID) bool {
	s, err := readStat(id.PID)
	return err == nil && s.start == id.Start
}

// Self returns this process.
func Self() (ID, error) {
	s, err := readStat(os.Getpid())
	return ID{os.Getpid(), s.start}, err
}

// Starter returns the process that started this one with the given arguments. Programs that only
// pass them on, such as a shell or sudo, do not count. The error is [ErrUnknown] if that process
// has ended.
func Starter(args []string) (ID, error) {
	pid := os.Getppid()
	for range maxDepth {
		s, err := readStat(pid)
		if err != nil || pid <= 1 {
			break // the first process gets what others have left
		}
		line, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cmdline"))
		if !isLauncher(strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00"), args) {
			return ID{pid, s.start}, nil
		}
		pid = s.parent
	}
	return ID{}, ErrUnknown
}

// Machine returns a text that distinguishes this run of this system, and this set of process ids,
// from all others.
func Machine() (string, error) {
	boot, err := os.ReadFile(proc + "/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	ids, err := os.Readlink(proc + "/self/ns/pid")
	return strings.TrimSpace(string(boot)) + "-" + strings.Trim(strings.TrimPrefix(ids, "pid:"), "[]"), err
}

// A stat has fields of the file /proc/PID/stat; see proc_pid_stat(5).
type stat struct {
	name     string
	parent   int
	session  int
	terminal string
	start    uint64
}

func readStat(pid int) (s stat, err error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return s, err
	}
	// The name is in parentheses and can contain any character.
	from, to := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return s, fmt.Errorf("stat of process %d: no name", pid)
	}
	s.name = string(text[from+1 : to])
	fields := strings.Fields(string(text[to+1:]))
	if len(fields) < 20 {
		return s, fmt.Errorf("stat of process %d: %d fields", pid, len(fields))
	}
	var failed [4]error
	var device int
	s.parent, failed[0] = strconv.Atoi(fields[1])
	s.session, failed[1] = strconv.Atoi(fields[3])
	device, failed[2] = strconv.Atoi(fields[4])
	s.start, failed[3] = strconv.ParseUint(fields[19], 10, 64)
	s.terminal = terminal(device)
	return s, errors.Join(failed[:]...)
}

// terminal returns the name of a terminal, given the number of its device.
func terminal(device int) string {
	const consoles, pseudo = 4, 136
	major, minor := device>>8&0xfff, device&0xff|device>>12&0xfff00
	switch {
	case device == 0:
		return ""
	case major == pseudo:
		return fmt.Sprintf("pts/%d", minor)
	case major == consoles:
		return fmt.Sprintf("tty%d", minor)
	default:
		return fmt.Sprintf("%d:%d", major, minor)
	}
}

// readUID returns the effective user of a process.
func readUID(pid int) (int, error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			if fields := strings.Fields(ids); len(fields) > 1 {
				return strconv.Atoi(fields[1])
			}
		}
	}
	return 0, fmt.Errorf("status of process %d: no user", pid)
}
