package e2e

import "syscall"

// alone puts a process in its own group, which the kernel kills with us.
func alone() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
