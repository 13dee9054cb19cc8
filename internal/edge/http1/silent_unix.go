//go:build unix

package http1

import (
	"errors"
	"net"
	"syscall"
)

// watch prepares the check of whether a connection is silent.
func (c *Conn) watch(conn net.Conn) {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	var b [1]byte
	c.step = c.send
	c.raw, c.peek = raw, func(fd uintptr) { // does not block
		for {
			_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
			if !errors.Is(err, syscall.EINTR) {
				c.quiet = errors.Is(err, syscall.EAGAIN)
				return
			}
		}
	}
}

// canTry reports whether non-blocking reads are possible.
const canTry = true

// try reads without blocking; none reports that no bytes are available.
func try(fd uintptr, b []byte) (n int, none bool, err error) {
	for {
		n, err = syscall.Read(int(fd), b)
		if !errors.Is(err, syscall.EINTR) {
			return max(n, 0), errors.Is(err, syscall.EAGAIN), err
		}
	}
}
