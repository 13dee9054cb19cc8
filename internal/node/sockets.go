package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// Sockets are listening sockets passed to this process by systemd (sd_listen_fds(3), "socket activation"). They
// stay open in the supervisor while the process restarts: connections wait in the backlog instead of being refused.
// The zero value is empty.
type Sockets struct {
	listeners []*net.TCPListener // not taken yet
}

// firstSocket is the first file descriptor that a supervisor passes.
const firstSocket = 3

// PassedSockets takes the sockets of LISTEN_FDS and LISTEN_PID. It is called once, before the process starts
// others: it removes these variables from the environment.
func PassedSockets() (*Sockets, error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	if pid != strconv.Itoa(os.Getpid()) { // none, or for the parent process
		return &Sockets{}, nil
	}
	errs := []error{os.Unsetenv("LISTEN_PID"), os.Unsetenv("LISTEN_FDS"), os.Unsetenv("LISTEN_FDNAMES")}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > maxSockets {
		return nil, fmt.Errorf("LISTEN_FDS: must be 0 to %d, got %q", maxSockets, count)
	}
	s := &Sockets{}
	for i := range n {
		l, err := passed(uintptr(firstSocket + i))
		if err != nil {
			errs = append(errs, fmt.Errorf("LISTEN_FDS: file %d of %d: %w", i+1, n, err))
			continue
		}
		s.listeners = append(s.listeners, l)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// maxSockets bounds the number of passed sockets.
const maxSockets = 64

// passed returns the listener of a passed file descriptor.
func passed(fd uintptr) (*net.TCPListener, error) {
	f := os.NewFile(fd, "socket")
	if f == nil {
		return nil, errors.New("is no file")
	}
	l, err := net.FileListener(f) // a duplicate
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("must be a listening TCP socket: %w", err)
	}
	if t, ok := l.(*net.TCPListener); ok {
		return t, nil
	}
	return nil, errors.Join(fmt.Errorf("must be a listening TCP socket, is one of %s", l.Addr().Network()), l.Close())
}

// Take returns the socket that listens at addr, or nil. The caller closes it.
func (s *Sockets) Take(addr string) *net.TCPListener {
	if s == nil || len(s.listeners) == 0 {
		return nil
	}
	want, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil // the following listen reports it
	}
	everywhere := func(ip net.IP) bool { return ip == nil || ip.IsUnspecified() }
	for i, l := range s.listeners {
		is, ok := l.Addr().(*net.TCPAddr)
		if ok && is.Port == want.Port && (is.IP.Equal(want.IP) || everywhere(is.IP) && everywhere(want.IP)) {
			s.listeners = append(s.listeners[:i:i], s.listeners[i+1:]...)
			return l
		}
	}
	return nil
}

// Left returns the addresses of the sockets not taken.
func (s *Sockets) Left() (addrs []string) {
	if s == nil {
		return nil
	}
	for _, l := range s.listeners {
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// Close closes the sockets not taken.
func (s *Sockets) Close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	s.listeners = nil
	return errors.Join(errs...)
}
