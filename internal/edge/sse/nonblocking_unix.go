//go:build unix

package sse

import (
	"errors"
	"io"
	"sync"
	"syscall"
)

// CanTakeOver is true if sockets can be written without blocking.
const CanTakeOver = true

// attempt is one system call on a socket, so that the runtime neither waits for the socket nor allocates.
type attempt struct {
	p   []byte
	n   int
	err error

	write, peek func(fd uintptr) bool
}

var attempts = sync.Pool{New: func() any {
	a := &attempt{}
	a.write = func(fd uintptr) bool {
		for {
			a.n, a.err = syscall.Write(int(fd), a.p)
			if !errors.Is(a.err, syscall.EINTR) {
				return true // even if nothing was written
			}
		}
	}
	a.peek = func(fd uintptr) bool {
		var b [1]byte
		for {
			a.n, _, a.err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
			if !errors.Is(a.err, syscall.EINTR) {
				return true
			}
		}
	}
	return a
}}

// writeNow writes as much as possible without blocking.
func writeNow(raw syscall.RawConn, p []byte) (int, error) {
	a := attempts.Get().(*attempt)
	a.p = p
	err := raw.Write(a.write)
	n, failed := max(a.n, 0), a.err
	a.p, a.n, a.err = nil, 0, nil
	attempts.Put(a)
	if err == nil && !errors.Is(failed, syscall.EAGAIN) {
		err = failed
	}
	if err == nil && failed == nil && n == 0 && len(p) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// silent reports whether the peer has neither sent anything nor closed.
func silent(raw syscall.RawConn) bool {
	a := attempts.Get().(*attempt)
	err := raw.Read(a.peek)
	failed := a.err
	a.n, a.err = 0, nil
	attempts.Put(a)
	return err == nil && errors.Is(failed, syscall.EAGAIN)
}
