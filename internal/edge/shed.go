package edge

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"vestibule/internal/edge/front"
)

// One address must not close an edge. While the edge has room nothing is limited per address. Above shedAt of the
// connections of visitors, of those to sites, or of the memory limit (GOMEMLIMIT), it closes connections that make no
// progress: first those of the prefix that has the most of them. A connection makes no progress while the visitor owes a head or a body, or does not take
// an answer. A connection whose requests the edge, the site or an event stream delays is never closed.

const (
	// shedAt is the part of the connections, in percent, from which on the edge closes those without progress.
	shedAt = 70
	// owedFor is how long a visitor may owe bytes above shedAt. At the limit even the newest debtor is closed.
	owedFor = time.Second
	// owedForSession is the same for a connection whose last request had a valid session, also at the limit: for up to
	// connsOfSession connections of one session, more than any browser opens.
	owedForSession = 5 * time.Second
	connsOfSession = 16
	// shedPart is the part of all connections that one search closes: 1/shedPart.
	shedPart = 64
	// shedPause is the least time between two searches above shedAt, and at the limit after one that found nothing.
	shedPause = 20 * time.Millisecond
	// A prefix is large from 1/largePart of the most connections on, and from largePrefix connections on.
	largePart, largePrefix = 16, 4
)

// debt is what a visitor owes on a connection. Any goroutine may use it.
type debt struct {
	busy   atomic.Int32 // requests that do not wait for the visitor
	since  atomic.Int64 // while busy is 0: Unix time in nanoseconds from which on the visitor owes bytes
	atSite atomic.Int32 // requests that wait for the visitor and hold a connection to a site
	tunnel atomic.Bool  // the connection is upgraded, outside of sessions
}

// Begin implements [front.Progress].
func (c *visitorConn) Begin() { c.debt.busy.Add(1) }

// End implements [front.Progress].
func (c *visitorConn) End() { c.owe(0) }

// owe notes that a request waits for the visitor, who owes the next bytes for lag already.
func (c *visitorConn) owe(lag time.Duration) {
	c.debt.since.Store(time.Now().Add(-lag).UnixNano())
	c.debt.busy.Add(-1)
}

// Await implements [front.Progress].
func (c *visitorConn) Await(atSite bool, lag time.Duration) {
	if atSite {
		c.debt.atSite.Add(1)
	}
	c.owe(lag)
}

// Resume implements [front.Progress].
func (c *visitorConn) Resume(atSite bool) {
	c.Begin()
	if atSite {
		c.debt.atSite.Add(-1)
	}
}

// Identify implements [front.Progress].
func (c *visitorConn) Identify(client netip.Addr, session uint64) {
	if was := c.client.Load(); was == nil || *was != client {
		c.of.assign(c, client)
	}
	if c.session.Load() != session {
		c.of.join(c, session)
	}
}

// tunnels notes that the connection is upgraded: from now on each read is progress.
func (c *visitorConn) tunnels() {
	c.debt.tunnel.Store(true)
	c.Await(true, 0)
}

// owes reports since when the visitor owes bytes, if it does so for at least patience. The caller holds the lock of the
// connections.
func (c *visitorConn) owes(now time.Time, patience time.Duration, atSite bool) (since int64, ok bool) {
	if c.debt.busy.Load() > 0 || c.rests.Load() || atSite && c.debt.atSite.Load() == 0 {
		return 0, false
	}
	if s := c.session.Load(); s != 0 && c.of.sessions[s] <= connsOfSession {
		patience = max(patience, owedForSession)
	}
	since = c.debt.since.Load()
	return since, now.UnixNano()-since >= int64(patience)
}

var _ front.Progress = (*visitorConn)(nil)

// neighbours are the connections of one visitor's address prefix.
type neighbours struct {
	prefix netip.Prefix
	conns  []*visitorConn
}

// Two prefixes of an address: of one visitor or household, and of one network.
const (
	ofHost    = iota // IPv4 /32, IPv6 /64
	ofNetwork        // IPv4 /24, IPv6 /56
	prefixKinds
)

func prefixOf(a netip.Addr, kind int) netip.Prefix {
	bits := [prefixKinds]int{32, 24}
	if a.Is6() {
		bits = [prefixKinds]int{64, 56}
	}
	p, err := a.Prefix(bits[kind])
	if err != nil {
		return netip.Prefix{} // of an invalid address
	}
	return p
}

// assign notes the address of a connection's visitor, an invalid one for unknown.
func (x *connections) assign(c *visitorConn, client netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.place(c, client)
}

// place does what assign does. The caller holds the lock.
func (x *connections) place(c *visitorConn, client netip.Addr) {
	c.client.Store(&client)
	x.unassign(c)
	if c.closed || !client.IsValid() {
		return
	}
	for kind := range prefixKinds {
		p := prefixOf(client, kind)
		n := x.near[kind][p]
		if n == nil {
			n = &neighbours{prefix: p}
			x.near[kind][p] = n
		}
		c.near[kind], c.at[kind] = n, len(n.conns)
		n.conns = append(n.conns, c)
	}
}

// unassign removes a connection from those of its prefixes. The caller holds the lock.
func (x *connections) unassign(c *visitorConn) {
	for kind, n := range c.near {
		if n == nil {
			continue
		}
		end := len(n.conns) - 1
		moved := n.conns[end]
		n.conns[c.at[kind]], moved.at[kind] = moved, c.at[kind]
		n.conns[end] = nil
		if n.conns = n.conns[:end]; end == 0 {
			delete(x.near[kind], n.prefix)
		}
		c.near[kind] = nil
	}
}

// join notes the session of a connection's last request, 0 for none.
func (x *connections) join(c *visitorConn, session uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.part(c)
	if session != 0 && !c.closed {
		c.session.Store(session)
		x.sessions[session]++
	}
}

// part removes a connection from those of its session. The caller holds the lock.
func (x *connections) part(c *visitorConn) {
	session := c.session.Swap(0)
	if session == 0 {
		return
	}
	if x.sessions[session]--; x.sessions[session] == 0 {
		delete(x.sessions, session)
	}
}

// debtor is a connection and since when its visitor owes bytes.
type debtor struct {
	*visitorConn
	since int64
}

// debtors returns the connections without progress of the prefix that has the most of them, oldest debt first. It is
// the prefix of one visitor, unless a network has many times as many. Only a prefix with a large part of all
// connections is chosen by a debt younger than owedFor: a visitor that has just connected is not the cause. The caller
// holds the lock.
func (x *connections) debtors(now time.Time, patience time.Duration, atSite bool) (of netip.Prefix, out []debtor) {
	var most [prefixKinds]*neighbours
	var owing [prefixKinds]int
	patienceOf := func(n *neighbours) time.Duration {
		if len(n.conns) < max(largePrefix, x.max/largePart) {
			return max(patience, owedFor)
		}
		return patience
	}
	for kind := range prefixKinds {
		for _, near := range x.near[kind] {
			if len(near.conns) <= owing[kind] {
				continue
			}
			n, patience := 0, patienceOf(near)
			for _, c := range near.conns {
				if _, ok := c.owes(now, patience, atSite); ok {
					n++
				}
			}
			if n > owing[kind] {
				most[kind], owing[kind] = near, n
			}
		}
	}
	chosen := most[ofHost]
	if owing[ofNetwork] > 4*owing[ofHost] {
		chosen = most[ofNetwork]
	}
	if chosen == nil {
		return of, nil
	}
	for _, c := range chosen.conns {
		if since, ok := c.owes(now, patienceOf(chosen), atSite); ok {
			out = append(out, debtor{c, since})
		}
	}
	slices.SortFunc(out, func(a, b debtor) int { return cmp.Compare(a.since, b.since) })
	return chosen.prefix, out
}

// shed closes connections without progress for want of something, and returns how many. full reports that nothing of it
// is free: then patience ends.
func (x *connections) shed(of want, full bool) int {
	now, patience, atSite := time.Now(), owedFor, of == wantSites
	last := &x.searches[of][index(full)]
	if full {
		patience = 0
	}
	x.mu.Lock()
	if now.Before(last.next) && (!full || last.empty) {
		x.mu.Unlock()
		return 0
	}
	prefix, list := x.debtors(now, patience, atSite)
	list = list[:min(len(list), max(1, x.max/shedPart))]
	if *last = (lastSearch{now.Add(shedPause), len(list) == 0}); len(list) > 0 {
		x.noteShed(now, prefix, len(list), of)
	}
	for _, d := range list {
		x.free(d.visitorConn)
	}
	x.mu.Unlock()
	for _, d := range list {
		x.Close(d.TCPConn)
	}
	return len(list)
}

// lastSearch is the last search for connections without progress.
type lastSearch struct {
	next  time.Time // not before
	empty bool      // it found nothing
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// want is what an edge is short of.
type want uint8

const (
	wantConnections want = iota // of visitors, each with a descriptor
	wantSites                   // connections to sites
	wantMemory
	numWants
)

// wantNames are the values of a label.
var wantNames = [numWants]string{"connections", "connections_to_origins", "memory"}

// shedding is what an edge says about connections that it has closed. It is under the lock of its connections.
type shedding struct {
	last   time.Time    // of the newest
	of     netip.Prefix // of the newest
	want   want         // of the newest
	logged time.Time
	n      int // since the log
}

// noteShed counts closed connections. The caller holds the lock.
func (x *connections) noteShed(now time.Time, of netip.Prefix, n int, what want) {
	x.metrics.shed.WithLabelValues(wantNames[what]).Add(float64(n))
	s := &x.shedding
	s.last, s.of, s.want = now, of, what
	if s.n += n; now.Sub(s.logged) < time.Minute {
		return
	}
	x.log.Warn(shedAlarm+": block the prefix in front of the edge, or raise the limit of open files, or GOMEMLIMIT", slog.String("short_of", wantNames[what]), slog.String("prefix", of.String()), slog.Int("closed", s.n))
	s.logged, s.n = now, 0
}

// shedAlarm is the alarm of an edge that closes connections for want of free ones.
const shedAlarm = "connections that make no progress are closed, for the edge is short of connections or memory"

// alarm returns the alarm of the last minute, empty for none.
func (x *connections) alarm(now time.Time) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last.IsZero() || now.Sub(x.last) > time.Minute {
		return ""
	}
	return fmt.Sprintf("%s (%s); most are of %s: block it in front of the edge, or raise the limit of open files, or GOMEMLIMIT", shedAlarm, wantNames[x.want], x.of)
}
