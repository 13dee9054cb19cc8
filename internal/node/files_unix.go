//go:build unix

package node

import (
	"math"
	"syscall"
)

// MaxFiles returns how many files this process may have open, after it has asked for
// as many as it may get.
func MaxFiles() (int, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	if l.Cur < l.Max {
		more := l
		more.Cur = l.Max
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more); err == nil { // else as before
			l = more
		}
	}
	return int(min(l.Cur, math.MaxInt32)), nil
}
