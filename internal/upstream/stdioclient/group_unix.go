//go:build unix && !linux

package stdioclient

import (
	"os/exec"
	"syscall"
)

// separate puts the program into a new process group, so that signals of a terminal reach only the
// gate.
func separate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
