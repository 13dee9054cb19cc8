package edge

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/front"
)

// One address must not close an edge. While the edge has room nothing is limited per address. Above shedAt of the
// connections of visitors, of those to sites, or of the memory limit (GOMEMLIMIT), it closes connections that make no
// progress: first those of the prefix that has the most of them. A connection makes no progress while the visitor owes
// a head or a body, or does not take an answer. A connection whose requests the edge, the site or an event stream
// delays is not closed, except over HTTP/2 if other requests of it wait for the visitor and hold connections to sites.

const (
	// shedAt is the part of the connections, in percent, from which on the edge closes those without progress.
	shedAt = 70
	// owedFor is how long a visitor may owe bytes above shedAt. At the limit even the newest debtor is closed.
	owedFor = time.Second
	// owedForSession is the same for a connection whose last request had a valid session: for up to connsOfSession
	// connections of one session, more than any browser opens. At the limit it ends for a large prefix, if no other
	// connection can be closed: a client may have as many sessions as rooms admit.
	owedForSession = 5 * time.Second
	connsOfSession = 16
	// callsOfSession is how many requests of each of them may wait for the visitor and hold connections to sites.
	callsOfSession = 16
	// shedPart is the part of all connections that one search closes: 1/shedPart.
	shedPart = 64
	// shedPause is the least time between two searches above shedAt, and at the limit after one that found nothing.
	shedPause = 20 * time.Millisecond
	// After emptySearches in a row at the limit a new connection is refused at once. They are forgotten after
	// forgetSearches without a search.
	emptySearches  = 3
	forgetSearches = time.Second
	// A prefix is large from 1/largePart of the most connections on, and from largePrefix connections on, of visitors or
	// to sites.
	largePart, largePrefix = 16, 4
)

// debt is what a visitor owes on a connection. Any goroutine may use it.
type debt struct {
	busy   atomic.Int32 // requests that do not wait for the visitor
	since  atomic.Int64 // while busy is 0: Unix time in microseconds from which on the visitor owes bytes
	atSite calls
	tunnel atomic.Bool // the connection is upgraded
}

// calls are the requests of a connection that wait for the visitor and hold connections to sites. It is safe for
// concurrent use.
type calls struct {
	mu    sync.Mutex
	n     int
	since int64 // sum of the Unix times in microseconds from which on the visitor owes bytes
}

func (c *calls) add(n int, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	c.since += int64(n) * since.UnixMicro()
}

// mean returns their number, and since when the visitor owes bytes on average.
func (c *calls) mean() (n int, since int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return 0, 0
	}
	return c.n, c.since / int64(c.n)
}

func (c *visitorConn) Begin() { c.debt.busy.Add(1) }

func (c *visitorConn) End() { c.owe(time.Now()) }

// owe notes that a request waits for the visitor, who owes the next bytes since a time.
func (c *visitorConn) owe(since time.Time) {
	c.debt.since.Store(since.UnixMicro())
	c.debt.busy.Add(-1)
}

func (c *visitorConn) Await(atSite bool, since time.Time) {
	if atSite {
		c.debt.atSite.add(1, since)
	}
	c.owe(since)
}

func (c *visitorConn) Resume(atSite bool, since time.Time) {
	c.Begin()
	if atSite {
		c.debt.atSite.add(-1, since)
	}
}

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
	c.Await(true, time.Now())
}

// owes reports since when the visitor owes bytes, if it does so for at least patience, and for how many of what is
// wanted. large is that of its prefix; spare gives a session its patience. The caller holds the lock of the
// connections.
func (c *visitorConn) owes(
	now time.Time, patience time.Duration, of want, large, spare bool,
) (since int64, n int) {
	n, since = 1, c.debt.since.Load()
	busy := c.debt.busy.Load() > 0 || c.rests.Load()
	if of == wantSites {
		calls, mean := c.debt.atSite.mean()
		if calls == 0 {
			return 0, 0
		}
		// The connection of a proxy has requests of many visitors.
		if alone := c.direct || c.preface != nil; large && alone && !c.debt.tunnel.Load() {
			n, since = calls, mean
			if busy {
				busy, patience = false, max(patience, owedFor)
			}
		}
	}
	if busy {
		return 0, 0
	}
	if s := c.session.Load(); s != 0 && c.of.sessions[s] <= connsOfSession && n <= callsOfSession {
		switch {
		case c.debt.tunnel.Load(): // it may rest
			return 0, 0
		case spare:
			patience = max(patience, owedForSession)
		}
	}
	if now.UnixMicro()-since < patience.Microseconds() {
		return 0, 0
	}
	return since, n
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
	for kind, p := range [prefixKinds]netip.Prefix{clientaddr.PrefixOf(client, 32, 64), clientaddr.Prefix(client)} {
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

// isLarge reports whether a prefix has a large part of what is wanted. The caller holds the lock.
func (x *connections) isLarge(n *neighbours, of want) bool {
	if of != wantSites {
		return len(n.conns) >= max(largePrefix, x.max/largePart)
	}
	left := max(largePrefix, x.sites/largePart)
	for i := 0; i < len(n.conns) && left > 0; i++ {
		calls, _ := n.conns[i].debt.atSite.mean()
		left -= calls
	}
	return left <= 0
}

// debtors returns the connections without progress of one prefix, oldest debt first: of the prefix that keeps the most
// connections from others by debts. It is the prefix of one visitor, unless a network has many times as many. Only a
// large prefix is chosen by a debt younger than owedFor: a visitor that has just connected is not the cause. Without
// spare it is a large prefix, whose sessions have no patience of their own. The caller holds the lock.
func (x *connections) debtors(
	now time.Time, patience time.Duration, of want, spare bool,
) (near *neighbours, out []debtor) {
	var most [prefixKinds]*neighbours
	var owing [prefixKinds]int
	each := func(near *neighbours, debt func(c *visitorConn, since int64, n int)) {
		large, patience := x.isLarge(near, of), patience
		if !large {
			if !spare {
				return
			}
			patience = max(patience, owedFor)
		}
		for _, c := range near.conns {
			if since, n := c.owes(now, patience, of, large, spare); n > 0 {
				debt(c, since, n)
			}
		}
	}
	for kind := range prefixKinds {
		for _, near := range x.near[kind] {
			if of != wantSites && len(near.conns) <= owing[kind] {
				continue
			}
			sum := 0
			each(near, func(_ *visitorConn, _ int64, n int) { sum += n })
			if sum > owing[kind] {
				most[kind], owing[kind] = near, sum
			}
		}
	}
	chosen := most[ofHost]
	if owing[ofNetwork] > 4*owing[ofHost] {
		chosen = most[ofNetwork]
	}
	if chosen == nil {
		return nil, nil
	}
	each(chosen, func(c *visitorConn, since int64, _ int) { out = append(out, debtor{c, since}) })
	slices.SortFunc(out, func(a, b debtor) int { return cmp.Compare(a.since, b.since) })
	return chosen, out
}

// shed closes connections without progress for want of something, and returns how many. full reports that nothing of it
// is free: then patience ends.
func (x *connections) shed(of want, full bool) int {
	now, patience := time.Now(), owedFor
	last := &x.searches[of][index(full)]
	if full {
		patience = 0
	}
	x.mu.Lock()
	if now.Before(last.next) && (!full || last.empty > 0) {
		x.mu.Unlock()
		return 0
	}
	near, list := x.debtors(now, patience, of, true)
	if len(list) == 0 || !full && !x.isLarge(near, of) {
		large, more := x.debtors(now, 0, of, false)
		switch {
		case full && large != nil:
			near, list = large, more
		case large != nil:
			list = nil // a small prefix is not closed while a large one owes anything
		}
	}
	list = list[:min(len(list), max(1, x.max/shedPart))]
	if last.note(now, len(list)); len(list) > 0 {
		x.noteShed(now, near.prefix, len(list), of)
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
	empty int       // how many of the last searches in a row found nothing
}

// note notes a search that found n connections.
func (l *lastSearch) note(now time.Time, n int) {
	if n > 0 || now.Sub(l.next) > forgetSearches {
		l.empty = 0
	}
	if n == 0 {
		l.empty++
	}
	l.next = now.Add(shedPause)
}

// await waits until a place may be free or the next search is due. It reports false once the last searches found
// nothing: then the edge is full, and a visitor should not wait to hear so. A single search may find nothing because the
// requests of an attack are busy for a moment.
func (x *connections) await() bool {
	x.mu.Lock()
	last := x.searches[wantConnections][index(true)]
	x.mu.Unlock()
	if last.empty > emptySearches {
		return false
	}
	due := time.NewTimer(time.Until(last.next))
	defer due.Stop()
	select {
	case <-x.freed:
	case <-due.C:
	}
	return true
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
	last  time.Time    // of the newest
	of    netip.Prefix // of the newest
	want  want         // of the newest
	lines fleettime.Minutely[time.Time]
}

// noteShed counts closed connections. The caller holds the lock.
func (x *connections) noteShed(now time.Time, of netip.Prefix, n int, what want) {
	x.metrics.shed.WithLabelValues(wantNames[what]).Add(float64(n))
	s := &x.shedding
	s.last, s.of, s.want = now, of, what
	closed, due := s.lines.Count(now, n)
	if !due {
		return
	}
	x.log.Warn(shedAlarm+": block the prefix in front of the edge, or raise the limit of open files, or GOMEMLIMIT",
		slog.String("short_of", wantNames[what]), slog.String("prefix", of.String()), slog.Int("closed", closed))
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
	return fmt.Sprintf("%s (%s); most are of %s: block it in front of the edge, or raise the limit of open files, or GOMEMLIMIT",
		shedAlarm, wantNames[x.want], x.of)
}
