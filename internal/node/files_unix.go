//go:build unix

package node

import (
	"math"
	"syscall"
)

// MaxFiles raises the limit of open files as far as possible and returns it.
func MaxFiles() (int, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	if l.Cur < l.Max {
		more := l
		more.Cur = l.Max
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more); err == nil { // otherwise unchanged
			l = more
		}
	}
	return int(min(l.Cur, math.MaxInt32)), nil
}
