package testenv

import "syscall"

// attributes has a process run as the account, if there is one, and end with
// the test that started it.
func attributes(a *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}
