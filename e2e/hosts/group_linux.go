package main

import (
	"errors"
	"os/exec"
	"syscall"
)

// group puts a program and all its children into a new process group.
func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends a program and all its children.
func killGroup(cmd *exec.Cmd) error {
	err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil // all have ended
	}
	return err
}
