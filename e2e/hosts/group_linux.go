package main

import (
	"errors"
	"os/exec"
	"syscall"
)

// group puts a program and all that it starts into a group of their own.
func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends a program and all that it has started.
func killGroup(cmd *exec.Cmd) error {
	err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil // all have ended
	}
	return err
}
