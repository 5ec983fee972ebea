//go:build unix

package stdioclient

import (
	"os/exec"
	"syscall"
)

// signalGroup sends a signal to all processes in the program's process group.
func signalGroup(cmd *exec.Cmd, what syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, what) }
