package control

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Source returns the address that failures are counted for: a /64 network for IPv6.
func Source(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap(); a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// Throttle bounds how many invalid tokens an address may try. It never judges a valid token, so that a neighbour cannot
// lock anybody out. It is safe for concurrent use.
type Throttle struct {
	mu     sync.Mutex
	minute time.Time // in which logged failures were the first of their addresses
	logged int
	by     *simplelru.LRU[string, *failures]
}

type failures struct {
	since time.Time
	n     int
}

const (
	maxFailures    = 10 // per address
	failuresWithin = time.Minute
	maxSources     = 10_000
	maxLogged      = 30
)

// NewThrottle returns a throttle that has seen nothing.
func NewThrottle() *Throttle {
	by, err := simplelru.NewLRU[string, *failures](maxSources, nil)
	if err != nil {
		panic(err) // for a size below 1
	}
	return &Throttle{by: by}
}

// Failed records an invalid token, and returns how long the address has to wait.
func (t *Throttle) Failed(now time.Time, from string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.by.Get(from)
	if !ok || now.Sub(f.since) >= failuresWithin {
		f = &failures{since: now}
		t.by.Add(from, f)
	}
	if f.n >= maxFailures {
		return failuresWithin - now.Sub(f.since)
	}
	f.n++
	return 0
}

// First reports whether the last failure of an address was its first within a minute. It does so for at most maxLogged
// addresses a minute, which bounds the entries about them.
func (t *Throttle) First(now time.Time, from string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.by.Peek(from)
	if !ok || f.n != 1 || now.Sub(f.since) >= failuresWithin {
		return false
	}
	if now.Sub(t.minute) >= failuresWithin {
		t.minute, t.logged = now, 0
	}
	t.logged++
	return t.logged <= maxLogged
}
