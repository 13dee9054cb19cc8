package embedded_test

import (
	"syscall"
	"testing"
)

// mountSmall mounts a file system of 64 MiB. It needs root.
func mountSmall(dir string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m") }

func unmount(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Unmount(dir, 0); err != nil {
		t.Error(err)
	}
}
