//go:build !unix

package sse

import (
	"errors"
	"syscall"
)

// CanTakeOver is false if sockets cannot be written without blocking: every stream then has a goroutine.
const CanTakeOver = false

func writeNow(syscall.RawConn, []byte) (int, error) { return 0, errors.ErrUnsupported }

func silent(syscall.RawConn) bool { return false }
