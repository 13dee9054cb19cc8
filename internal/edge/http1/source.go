package http1

import (
	"io"
	"net"
	"os"
	"syscall"
)

// Source reads from a connection and reports idle times, in which its buffer can be used otherwise. One goroutine
// at a time uses it.
type Source struct {
	// Waits is called before blocking for the next bytes; nil for no call. If it returns true the buffer was given
	// away, and Room is called for another one once bytes may be available; that needs Direct.
	Waits func() bool
	Room  func() []byte

	conn net.Conn
	raw  syscall.RawConn // nil without non-blocking reads
	try  func(fd uintptr) bool

	buf []byte
	n   int
	err error
}

// Of sets the connection.
func (s *Source) Of(conn net.Conn) {
	s.conn, s.raw = conn, nil
	if c, ok := conn.(syscall.Conn); ok && canTry {
		if raw, err := c.SyscallConn(); err == nil {
			s.raw, s.try = raw, s.look
		}
	}
}

// Direct reports whether s reads with system calls.
func (s *Source) Direct() bool { return s.raw != nil }

// Read implements [io.Reader]. Errors are those of the connection.
func (s *Source) Read(b []byte) (int, error) {
	if s.raw == nil || len(b) == 0 {
		if s.Waits != nil {
			s.Waits()
		}
		return s.conn.Read(b)
	}
	s.buf, s.n, s.err = b, 0, nil
	err := s.raw.Read(s.try)
	s.buf = nil
	if err != nil {
		return 0, err
	}
	if s.err != nil {
		return 0, os.NewSyscallError("read", s.err)
	}
	if s.n == 0 {
		return 0, io.EOF
	}
	return s.n, nil
}

// look is called with the file descriptor, and again after it found nothing.
func (s *Source) look(fd uintptr) bool {
	if s.buf == nil {
		s.buf = s.Room()
	}
	n, none, err := try(fd, s.buf)
	if none {
		if s.Waits != nil && s.Waits() {
			s.buf = nil
		}
		return false
	}
	s.n, s.err = n, err
	return true
}
