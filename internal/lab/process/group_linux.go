package process

import "syscall"

// Group puts a process in its own group, so that Ctrl-C does not reach it. The kernel kills it with us.
func Group() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
