//go:build unix && !solaris && !illumos && !aix

package node

import (
	"errors"
	"os"
	"syscall"

	"vestibule/internal/core/fleettime"
)

// lockPlace locks a file until it is closed, and returns its place.
func lockPlace(f *os.File) (fleettime.Place, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fleettime.Place{}, ErrFolderInUse
	}
	if err != nil {
		return fleettime.Place{}, err
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return fleettime.Place{}, err
	}
	return fleettime.Place{
		Device: uint64(st.Dev), Inode: uint64(st.Ino), //nolint:unconvert,nolintlint // their types differ by system
		Boot: bootID(), Machine: firstLine("/etc/machine-id"),
	}, nil
}
