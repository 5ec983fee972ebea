//go:build unix

package stdioclient

import (
	"os/exec"
	"syscall"
)

// terminate asks the program and all that it has started to end.
func terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// kill ends the program and all that it has started.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
