//go:build !linux

package e2e

import "syscall"

// alone puts a process in a group of its own.
func alone() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
