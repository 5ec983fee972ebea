package stdioclient

import (
	"os/exec"
	"syscall"
)

// separate puts the program into a new process group, so that Ctrl-C reaches only the gate.
func separate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// signalGroup kills the program: Windows cannot ask a program without a window to end.
func signalGroup(cmd *exec.Cmd, _ syscall.Signal) { _ = cmd.Process.Kill() }
