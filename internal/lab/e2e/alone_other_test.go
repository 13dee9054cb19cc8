//go:build !linux

package e2e

import "syscall"

// alone puts a process in its own group.
func alone() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
