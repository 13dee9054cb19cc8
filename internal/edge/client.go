package edge

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// clients tells where a request comes from, and caps what one neighbourhood of
// addresses may hold open.
type clients struct {
	proxies []netip.Prefix
	held    *quota // requests held open
	streams *quota // event streams
}

// maxPrefixes bounds the neighbourhoods remembered; the one that was quiet for
// longest is forgotten first, which only loosens its cap.
const maxPrefixes = 1 << 16

func newClients(proxies []netip.Prefix, held, streams int) (*clients, error) {
	h, err := newQuota(held)
	if err != nil {
		return nil, fmt.Errorf("held.per_prefix: %w", err)
	}
	e, err := newQuota(streams)
	if err != nil {
		return nil, fmt.Errorf("events.per_prefix: %w", err)
	}
	return &clients{proxies: proxies, held: h, streams: e}, nil
}

func (c *clients) trusted(a netip.Addr) bool {
	for _, p := range c.proxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// origin returns the visitor's address, and whether the visitor came over TLS:
// by the connection itself, or by the word of listed proxies, read from right
// to left up to the first that is not listed.
func (c *clients) origin(r *http.Request) (addr netip.Addr, secure bool) {
	secure = r.TLS != nil
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, secure
	}
	addr = ap.Addr().Unmap()
	if len(c.proxies) == 0 || !c.trusted(addr) {
		return addr, secure
	}
	if proto := r.Header.Values("X-Forwarded-Proto"); len(proto) == 1 {
		secure = strings.EqualFold(proto[0], "https")
	}
	list := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(list) {
		a, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			break
		}
		addr = a.Unmap()
		if !c.trusted(addr) {
			break
		}
	}
	return addr, secure
}

// neighbourhood is what is capped together: an IPv4 /24 or an IPv6 /56.
func neighbourhood(a netip.Addr) netip.Prefix {
	bits := 24
	if a.Is6() {
		bits = 56
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// hold takes one of the places for held requests of the address's
// neighbourhood; release must be called if ok.
func (c *clients) hold(a netip.Addr) (release func(), ok bool) {
	p := neighbourhood(a)
	if !c.held.take(p) {
		return nil, false
	}
	return func() { c.held.give(p) }, true
}

// quota counts what neighbourhoods have open of one kind, up to a cap for each.
type quota struct {
	mu   sync.Mutex
	open *simplelru.LRU[netip.Prefix, int]
	max  int
}

func newQuota(perPrefix int) (*quota, error) {
	open, err := simplelru.NewLRU[netip.Prefix, int](maxPrefixes, nil)
	if err != nil {
		return nil, err
	}
	return &quota{open: open, max: perPrefix}, nil
}

// take reports whether one more may be open; then it is to be given back.
func (q *quota) take(p netip.Prefix) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, _ := q.open.Get(p)
	if n >= q.max {
		return false
	}
	q.open.Add(p, n+1)
	return true
}

func (q *quota) give(p netip.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n, ok := q.open.Peek(p); ok && n > 1 {
		q.open.Add(p, n-1)
	} else {
		q.open.Remove(p)
	}
}
