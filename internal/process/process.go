// Package process tells which processes of this machine have opened a connection, and which
// processes started them:
//
//	found, err := process.Behind(conn)
//	for _, p := range found.Holders {
//		chain := process.Ancestors(p)
//	}
//
// Only Linux supports that. On other systems, nothing is known of other processes.
package process

import (
	"errors"
	"strconv"
	"strings"
)

// An ID names a process. Systems give a process id again when its process has ended, but not with
// the same start time.
type ID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in ticks since the system started
}

// String returns the two numbers of id.
func (id ID) String() string { return strconv.Itoa(id.PID) + "-" + strconv.FormatUint(id.Start, 10) }

// A Process is a process as it is now.
type Process struct {
	ID

	UID      int
	Program  string // the file, or only its name if the system does not tell more
	Terminal string // the controlling terminal, such as pts/3; empty without one
	Session  int    // the id of the process that began the session
}

// A Peer is the other end of a connection.
type Peer struct {
	UID     int
	Holders []ID // the processes that have the socket open

	// Hidden are the processes that may have the socket open, if Holders is empty: those of the same
	// user that hide their files, as programs with secrets do.
	Hidden []ID
}

// Errors of [Behind].
var (
	ErrUnknown = errors.New("the system does not tell")
	ErrRemote  = errors.New("not a connection of this machine")
	ErrClosed  = errors.New("the program has closed the connection") // and cannot be found any more
)

// quotes are the characters by which the arguments of a program and the text of a shell differ.
var quotes = strings.NewReplacer(`'`, "", `"`, "", `\`, "")

// isLauncher reports whether a program with these arguments only passes on the arguments of another
// one, which it starts: a shell, sudo, or npx.
func isLauncher(args, passed []string) bool {
	if len(passed) == 0 {
		return false
	}
	flat := func(args []string) string { return " " + quotes.Replace(strings.Join(args, " ")) + " " }
	return strings.Contains(flat(args), flat(passed))
}
