//go:build unix

package bridge_test

import "syscall"

// nullSignal asks whether a process is there.
const nullSignal = syscall.Signal(0)
