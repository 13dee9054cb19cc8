package node

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// maxListens bounds the addresses that a process tells of itself.
const maxListens = 16

// Listens returns the addresses of listeners, in order and separated by blanks. One at all addresses of the machine is
// told by each of them.
func Listens(listeners []net.Addr) string {
	var all []string
	for _, l := range listeners {
		tcp, ok := l.(*net.TCPAddr)
		if !ok {
			continue
		}
		at := tcp.AddrPort()
		if !at.Addr().IsUnspecified() {
			all = append(all, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String())
			continue
		}
		for _, a := range machine() {
			all = append(all, netip.AddrPortFrom(a, at.Port()).String())
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return strings.Join(all[:min(len(all), maxListens)], " ")
}

// machine returns the addresses of this machine, without link-local ones.
func machine() (all []netip.Addr) {
	list, err := net.InterfaceAddrs()
	if err != nil { // the loopback address at least
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && !own.IsLinkLocalUnicast() {
				all = append(all, own.Unmap())
			}
		}
	}
	return all
}
