package main

import "golang.org/x/sys/unix"

// hideMemory hides the memory and the environment of the process, which contain tokens, from
// other programs of the same user. It also prevents core dumps. It does not protect child
// processes. If the kernel returns an error, the gate runs without this protection.
//
//mutate:swap "PR_SET_DUMPABLE, 0" "PR_SET_DUMPABLE, 1" TestOtherProgramsCannotReadTheGate programs of the same user read the gate's memory
func hideMemory() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// showProcess undoes [hideMemory], so that the gate can see which program sends a decision. A
// command may do that if its token comes from a file, which other programs of the user can read
// anyway.
func showProcess() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) }
