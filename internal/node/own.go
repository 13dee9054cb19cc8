package node

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/room"
)

// Listeners are the listeners of a process, which no site may have: it would be a loop, or what only operators may
// read. It is safe for concurrent use.
type Listeners struct {
	mu  sync.Mutex
	all []net.Addr
}

// Add adds the addresses of listeners.
func (l *Listeners) Add(addrs ...net.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, addrs...)
}

// All returns the addresses of all listeners.
func (l *Listeners) All() []net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// maxListens bounds the addresses that a process tells of itself.
const maxListens = 32

// Listens returns the addresses of listeners, in order and separated by blanks. One at all addresses of the machine is
// told by each of them.
func Listens(listeners []net.Addr) string {
	var all []string
	for _, l := range listeners {
		if tcp, ok := l.(*net.TCPAddr); ok {
			all = append(all, told(tcp.AddrPort())...)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return strings.Join(all[:min(len(all), maxListens)], " ")
}

// Configured returns the addresses of the listeners that a configuration asks for, each as host:port. It leaves out
// empty ones and those with any free port.
func Configured(listen ...string) (all []string) {
	for _, l := range listen {
		host, port, err := net.SplitHostPort(l)
		if err != nil || port == "0" {
			continue
		}
		if host == "" {
			host = netip.IPv6Unspecified().String()
		}
		if at, err := netip.ParseAddrPort(net.JoinHostPort(host, port)); err == nil {
			all = append(all, told(at)...)
		} else {
			all = append(all, l)
		}
	}
	return all
}

// told returns the address of a listener as host:port, one for each address of the machine if it listens at all.
func told(at netip.AddrPort) (all []string) {
	if a := at.Addr().Unmap(); !a.IsUnspecified() {
		return []string{netip.AddrPortFrom(a, at.Port()).String()}
	}
	for _, a := range machine() {
		all = append(all, netip.AddrPortFrom(a, at.Port()).String())
	}
	return all
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

// LookUp finds the addresses of a name, as [net.Resolver.LookupNetIP]. A nil one finds none.
type LookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)

// Names are looked up within lookUpWithin, lookUpsAtOnce at a time. A name without an answer is no fault: edges refuse
// the connection.
const (
	lookUpWithin  = 3 * time.Second
	lookUpsAtOnce = 16
)

// OwnSites returns the origins that lead to a listener, by any spelling or name, with that listener. listens are the
// listeners of the fleet, each as host:port. All loopback addresses are one: the listener may be at all of them.
func OwnSites(ctx context.Context, origins, listens []string, lookUp LookUp) map[string]string {
	byPort := map[string][]string{}
	for _, l := range listens {
		if _, port, err := net.SplitHostPort(l); err == nil {
			byPort[port] = append(byPort[port], l)
		}
	}
	own, hosts := map[string]string{}, map[string]string{} // of origins
	near := map[string][]string{}                          // listeners with the port of an origin
	names := addresses{}
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil {
			continue
		}
		host, port := HostPort(u)
		if len(byPort[port]) == 0 {
			continue
		}
		hosts[o], near[o] = host, byPort[port]
		names.add(host)
		for _, l := range near[o] {
			at, _, _ := net.SplitHostPort(l)
			names.add(at)
		}
	}
	names.find(ctx, lookUp)
	for o, host := range hosts {
		for _, l := range near[o] {
			if at, _, _ := net.SplitHostPort(l); names.same(host, at) {
				own[o] = l
				break
			}
		}
	}
	return own
}

// HostPort returns the host and the port of an origin, which may be that of its scheme.
func HostPort(origin *url.URL) (host, port string) {
	if port = origin.Port(); port == "" {
		port = map[string]string{"http": "80", "https": "443"}[origin.Scheme]
	}
	return origin.Hostname(), port
}

// addresses are those of hosts, without a wrapping in IPv6.
type addresses map[string][]netip.Addr

// spelled returns the host in lower case without the last dot.
func spelled(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// add adds a host, with its addresses unless it is a name.
func (n addresses) add(host string) {
	host = spelled(host)
	switch a, err := netip.ParseAddr(host); {
	case err == nil:
		n[host] = []netip.Addr{room.Unwrap(a)}
	case room.LoopbackName(host):
		n[host] = []netip.Addr{netip.IPv6Loopback()}
	default:
		n[host] = nil
	}
}

// find looks the names up.
func (n addresses) find(ctx context.Context, lookUp LookUp) {
	if lookUp == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpWithin)
	defer cancel()
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(lookUpsAtOnce)
	var names []string
	for host, known := range n {
		if known == nil {
			names = append(names, host)
		}
	}
	for _, host := range names {
		g.Go(func() error {
			found, err := lookUp(ctx, "ip", host)
			if err != nil {
				return nil //nolint:nilerr // without an answer
			}
			for i := range found {
				found[i] = room.Unwrap(found[i])
			}
			mu.Lock()
			defer mu.Unlock()
			n[host] = found
			return nil
		})
	}
	g.Wait() //nolint:errcheck // no error is returned
}

// same reports whether two hosts are the same name, or have an address in common.
func (n addresses) same(a, b string) bool {
	if a, b = spelled(a), spelled(b); a == b {
		return true
	}
	return slices.ContainsFunc(n[a], func(x netip.Addr) bool {
		return slices.ContainsFunc(n[b], func(y netip.Addr) bool { return x == y || x.IsLoopback() && y.IsLoopback() })
	})
}
