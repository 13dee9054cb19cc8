// Package clientaddr tells where a request comes from, and caps what one
// neighbourhood of addresses may hold open.
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

// Proxies are the addresses whose word is believed about whom they speak for.
type Proxies []netip.Prefix

// ParseProxies reads addresses and prefixes, and returns all faults at once.
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

// Trusts reports whether the word of a peer (see [Peer]) is believed.
func (p Proxies) Trusts(peer netip.Addr) bool { return peer.IsValid() && p.trusted(peer) }

// Text returns an address as sites are told, empty for none.
func Text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// Peer returns the address in host:port, which is invalid where there is none.
func Peer(peer string) netip.Addr {
	ap, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// Client returns the visitor's address, and whether the visitor came over TLS:
// by the connection itself (its [Peer], secure its TLS), or by the word of
// listed proxies, whose X-Forwarded-For lines are read from right to left up to the
// first that is not listed. The address is invalid where peer is.
func (p Proxies) Client(peer netip.Addr, secure bool, forwardedFor, forwardedProto []string) (netip.Addr, bool) {
	addr := peer
	if len(p) == 0 || !addr.IsValid() || !p.trusted(addr) {
		return addr, secure
	}
	if len(forwardedProto) == 1 {
		secure = strings.EqualFold(forwardedProto[0], "https")
	}
	for _, line := range slices.Backward(forwardedFor) {
		for more := true; more; {
			comma := strings.LastIndexByte(line, ',')
			a, err := netip.ParseAddr(strings.TrimSpace(line[comma+1:]))
			if err != nil {
				return addr, secure
			}
			if addr = a.Unmap(); !p.trusted(addr) {
				return addr, secure
			}
			if more = comma >= 0; more {
				line = line[:comma]
			}
		}
	}
	return addr, secure
}

// Prefix is what is capped together: an IPv4 /24 or an IPv6 /56.
func Prefix(a netip.Addr) netip.Prefix {
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

// maxPrefixes bounds the neighbourhoods remembered; the one that was quiet for
// longest is forgotten first, which only loosens its cap.
const maxPrefixes = 1 << 16

// Quota counts what neighbourhoods have open of one kind, up to a cap for each. It is
// safe for concurrent use.
type Quota struct {
	mu   sync.Mutex
	open *simplelru.LRU[netip.Prefix, int]
	max  int
}

// NewQuota returns a quota of so many for each neighbourhood.
func NewQuota(perPrefix int) (*Quota, error) {
	open, err := simplelru.NewLRU[netip.Prefix, int](maxPrefixes, nil)
	if err != nil {
		return nil, err
	}
	return &Quota{open: open, max: perPrefix}, nil
}

// Take reports whether one more may be open; then it is to be given back by Give.
func (q *Quota) Take(p netip.Prefix) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, _ := q.open.Get(p)
	if n >= q.max {
		return false
	}
	q.open.Add(p, n+1)
	return true
}

// Give gives one back.
func (q *Quota) Give(p netip.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n, ok := q.open.Peek(p); ok && n > 1 {
		q.open.Add(p, n-1)
	} else {
		q.open.Remove(p)
	}
}

// Prefixes returns how many neighbourhoods have something open.
func (q *Quota) Prefixes() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open.Len()
}

// Rate counts what neighbourhoods do per minute, up to a cap for each. It is safe for
// concurrent use.
type Rate struct {
	mu   sync.Mutex
	done *simplelru.LRU[netip.Prefix, minute]
	max  int
}

type minute struct {
	number int64
	n      int
}

// NewRate returns a rate of so many a minute for each neighbourhood.
func NewRate(perPrefix int) (*Rate, error) {
	done, err := simplelru.NewLRU[netip.Prefix, minute](maxPrefixes, nil)
	if err != nil {
		return nil, err
	}
	return &Rate{done: done, max: perPrefix}, nil
}

// Full reports whether p has done as much as it may in the minute of this number.
func (r *Rate) Full(number int64, p netip.Prefix) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, _ := r.done.Peek(p)
	return m.number == number && m.n >= r.max
}

// Add notes that p has done it once more.
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
