package stdioclient

import (
	"os/exec"
	"syscall"
)

// separate puts the program into a new process group, so that signals of a terminal reach only the
// gate, and makes the kernel kill it if the gate dies. A program that ends at the end of its input
// would also end by itself.
func separate(cmd *exec.Cmd) {
	//mutate:swap "SIGKILL" "SIGTERM" cmd/thoughtgate.TestServerEndsWithKilledGate a server outlives a gate that is killed
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
