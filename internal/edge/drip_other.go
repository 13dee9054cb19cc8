//go:build !unix

package edge

import (
	"errors"
	"syscall"
)

// canDrip tells that sockets cannot be written without waiting: every stream
// has its goroutine here.
const canDrip = false

func writeNow(syscall.RawConn, []byte) (int, error) { return 0, errors.ErrUnsupported }

func silent(syscall.RawConn) bool { return false }
