package stdioclient

import (
	"os/exec"
	"syscall"
)

// separate puts the program into a process group of its own, so that Ctrl-C
// reaches only the gate.
func separate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// terminate ends the program: Windows has no way to ask a program without a window.
func terminate(cmd *exec.Cmd) { kill(cmd) }

// kill ends the program.
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
