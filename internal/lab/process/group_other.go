//go:build !linux

package process

import "syscall"

// Group puts a process in its own group, so that Ctrl-C does not reach it.
func Group() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
