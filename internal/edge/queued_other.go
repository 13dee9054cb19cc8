//go:build !linux

package edge

import "net"

// stopListening does nothing: closing the listener resets the connections of its backlog.
func stopListening(*net.TCPListener) (conns []*net.TCPConn, stopped bool, err error) {
	return nil, false, nil
}
