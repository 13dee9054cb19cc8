package e2e

import "syscall"

// alone puts a process in a group of its own, which the kernel kills with us.
func alone() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
