package main

import "syscall"

// raiseFileLimit raises the limit of open files for this process and its children to n, if it
// may. It returns the new limit, at most n.
func raiseFileLimit(n int) int {
	want := uint64(max(n, 0))
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		return 0
	}
	for _, raised := range []syscall.Rlimit{
		{Cur: max(want, now.Cur), Max: max(want, now.Max)}, // exceeding now.Max needs a privilege
		{Cur: now.Max, Max: now.Max},
		now,
	} {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err == nil {
			return int(min(want, raised.Cur)) // not more than n
		}
	}
	return 0
}
