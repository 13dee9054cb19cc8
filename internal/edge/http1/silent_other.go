//go:build !unix

package http1

import "net"

// watch does nothing: no connection is reused.
func (*Conn) watch(net.Conn) {}

const canTry = false

func try(uintptr, []byte) (int, bool, error) { return 0, false, nil }
