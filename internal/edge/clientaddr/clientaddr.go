// Package clientaddr determines the client address of a request, and limits the resources of one address prefix.
package clientaddr

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Proxies are the addresses of trusted proxies.
type Proxies []netip.Prefix

// ParseProxies parses addresses and prefixes. The error lists all faults.
func ParseProxies(list []string) (Proxies, error) {
	var out Proxies
	var errs []error
	for _, s := range list {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("must be an address or a prefix, got %q", s))
			continue
		}
		out = append(out, p.Masked())
	}
	return out, errors.Join(errs...)
}

func (p Proxies) trusted(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(q netip.Prefix) bool { return q.Contains(a) })
}

// Trusts reports whether a peer (see [Peer]) is a trusted proxy.
func (p Proxies) Trusts(peer netip.Addr) bool { return peer.IsValid() && p.trusted(peer) }

// Text returns an address for X-Forwarded-For, empty for none.
func Text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// Peer returns the address of host:port, which is invalid without one.
func Peer(peer string) netip.Addr { return Conn(peer).Addr() }

// Conn returns the address and port of host:port, invalid ones without.
func Conn(peer string) netip.AddrPort {
	ap, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// Client returns the visitor's address, and whether the visitor used TLS. They come from the connection (its
// [Peer], secure its TLS) or from trusted proxies, whose X-Forwarded-For lines are read from right to left up to
// the first address that is not trusted. The address is invalid if peer is. unread reports that the search ended at
// an element that is no address.
func (p Proxies) Client(
	peer netip.Addr, secure bool, forwardedFor, forwardedProto []string,
) (addr netip.Addr, tls, unread bool) {
	addr = peer
	if len(p) == 0 || !addr.IsValid() || !p.trusted(addr) {
		return addr, secure, false
	}
	if overTLS, ok := ForwardedProto(forwardedProto); ok {
		secure = overTLS
	}
	for _, line := range slices.Backward(forwardedFor) {
		for more := true; more; {
			comma := strings.LastIndexByte(line, ',')
			a, ok := Forwarded(line[comma+1:])
			if !ok {
				return addr, secure, true
			}
			if addr = a; !p.trusted(addr) {
				return addr, secure, false
			}
			if more = comma >= 0; more {
				line = line[:comma]
			}
		}
	}
	return addr, secure, false
}

// Forwarded reads one address of X-Forwarded-For. Some balancers add the port, and brackets to an IPv6 address.
func Forwarded(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap(), true
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if text, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(text, ":") {
			return netip.Addr{}, false
		}
	}
	a, err := netip.ParseAddr(text)
	return a.Unmap(), err == nil
}

// ForwardedProto reads the lines of X-Forwarded-Proto: whether the visitor used TLS. Some proxies say wss and ws of
// websockets, and each of several proxies may add an element. Elements that contradict each other say nothing.
func ForwardedProto(lines []string) (overTLS, ok bool) {
	for _, line := range lines {
		for text := range strings.SplitSeq(line, ",") {
			is := false
			switch strings.ToLower(strings.TrimSpace(text)) {
			case "https", "wss":
				is = true
			case "http", "ws":
			default:
				return false, false
			}
			if ok && is != overTLS {
				return false, false
			}
			overTLS, ok = is, true
		}
	}
	return overTLS, ok
}

// Prefix returns the unit of the limits: an IPv4 /24 or an IPv6 /56.
func Prefix(a netip.Addr) netip.Prefix { return PrefixOf(a, 24, 56) }

// PrefixOf returns the prefix of an address with so many bits, an invalid one for an invalid address.
func PrefixOf(a netip.Addr, bits4, bits6 int) netip.Prefix {
	bits := bits4
	if a.Is6() {
		bits = bits6
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// maxPrefixes bounds the remembered prefixes. The least recently used is dropped first, which only loosens its
// limit.
const maxPrefixes = 1 << 16

// newByPrefix returns an empty memory of prefixes.
func newByPrefix[V any]() *simplelru.LRU[netip.Prefix, V] {
	by, err := simplelru.NewLRU[netip.Prefix, V](maxPrefixes, nil)
	if err != nil {
		panic(err) // of a size that is not positive
	}
	return by
}

// Quota limits the open resources per prefix. It is safe for concurrent use.
type Quota struct {
	mu   sync.Mutex
	open *simplelru.LRU[netip.Prefix, int]
	max  int
}

// NewQuota returns a quota of perPrefix per prefix.
func NewQuota(perPrefix int) *Quota { return &Quota{open: newByPrefix[int](), max: perPrefix} }

// Take reserves one resource and reports whether the quota allowed it; Give returns it.
func (q *Quota) Take(p netip.Prefix) bool { return q.take(p, q.max) }

func (q *Quota) take(p netip.Prefix, most int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, _ := q.open.Get(p)
	if n >= most {
		return false
	}
	q.open.Add(p, n+1)
	return true
}

// Give returns one resource.
func (q *Quota) Give(p netip.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n, ok := q.open.Peek(p); ok && n > 1 {
		q.open.Add(p, n-1)
	} else {
		q.open.Remove(p)
	}
}

// Prefixes returns the number of prefixes with open resources.
func (q *Quota) Prefixes() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open.Len()
}

// Shares divides a number of places among prefixes. A prefix may hold as many as are free: one prefix gets half of all,
// each of n prefixes 1/(n+1) of them, and something is left for the next prefix. It is safe for concurrent use.
type Shares struct {
	mu   sync.Mutex
	free int
	held *Quota // its maximum is not used
}

// NewShares returns n free places.
func NewShares(n int) *Shares { return &Shares{free: n, held: NewQuota(n)} }

// Take takes a place and reports whether the share of the prefix allowed it; Give returns it.
func (s *Shares) Take(p netip.Prefix) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.held.take(p, s.free) {
		return false
	}
	s.free--
	return true
}

// Give returns one place.
func (s *Shares) Give(p netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.Give(p)
	s.free++
}

// Free returns the number of free places.
func (s *Shares) Free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// Prefixes returns the number of prefixes that hold places.
func (s *Shares) Prefixes() int { return s.held.Prefixes() }

// Rate limits events per minute and prefix. It is safe for concurrent use.
type Rate struct {
	mu   sync.Mutex
	done *simplelru.LRU[netip.Prefix, minute]
	max  int
}

type minute struct {
	number int64
	n      int
}

// NewRate returns a rate limit of perPrefix events a minute per prefix.
func NewRate(perPrefix int) *Rate { return &Rate{done: newByPrefix[minute](), max: perPrefix} }

// Full reports whether p has reached the limit in the minute number.
func (r *Rate) Full(number int64, p netip.Prefix) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, _ := r.done.Peek(p)
	return m.number == number && m.n >= r.max
}

// Add counts an event of p.
func (r *Rate) Add(number int64, p netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, _ := r.done.Get(p)
	if m.number != number {
		m = minute{number: number}
	}
	m.n++
	r.done.Add(p, m)
}
