//go:build unix && !solaris && !illumos && !aix

package node

import (
	"errors"
	"os"
	"syscall"

	"vestibule/internal/fleet"
)

// lockPlace locks a file until it is closed, and tells where it lies.
func lockPlace(f *os.File) (fleet.Place, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fleet.Place{}, ErrFolderInUse
	}
	if err != nil {
		return fleet.Place{}, err
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return fleet.Place{}, err
	}
	return fleet.Place{
		Device: uint64(st.Dev), Inode: uint64(st.Ino), //nolint:unconvert,nolintlint // their types differ by system
		Boot: firstLine("/proc/sys/kernel/random/boot_id"), Machine: firstLine("/etc/machine-id"),
	}, nil
}
