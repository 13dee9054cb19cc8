package edge

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// stopListening ends a listener and returns the connections of its backlog. Their clients are connected and may have
// sent a request already; closing the listener would reset them. stopped is false if the listener goes on.
func stopListening(l *net.TCPListener) (conns []*net.TCPConn, stopped bool, err error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, false, err
	}
	var taken []int
	var end error
	err = raw.Control(func(fd uintptr) {
		for {
			conn, _, err := syscall.Accept4(int(fd), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
			if errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.ECONNABORTED) {
				continue
			}
			if err != nil {
				break // EAGAIN: the backlog is empty
			}
			taken = append(taken, conn)
		}
		end = syscall.Shutdown(int(fd), syscall.SHUT_RD) // at once: no connection is accepted from here on
	})
	errs := []error{err, end}
	for _, fd := range taken {
		f := os.NewFile(uintptr(fd), "connection")
		conn, connErr := net.FileConn(f)
		errs = append(errs, connErr, f.Close())
		if tcp, ok := conn.(*net.TCPConn); ok {
			conns = append(conns, tcp)
		}
	}
	return conns, err == nil && end == nil, errors.Join(errs...)
}
