//go:build !unix

package sse

import (
	"errors"
	"syscall"
)

// CanTakeOver tells that sockets cannot be written without waiting: every stream
// has its goroutine here.
const CanTakeOver = false

func writeNow(syscall.RawConn, []byte) (int, error) { return 0, errors.ErrUnsupported }

func silent(syscall.RawConn) bool { return false }
