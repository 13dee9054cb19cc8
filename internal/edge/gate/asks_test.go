package gate

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"vestibule/internal/core/ticket"
)

// TestAsks: how many questions of connections of one address may reach a site.
func TestAsks(t *testing.T) {
	const perMinute, perSession = 4, 10
	start := time.Unix(6000, 0)
	conn := func(n int) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), uint16(n)) }
	q := func(c netip.AddrPort) *Asker {
		return &Asker{Room: 1, Client: conn(0).Addr(), Conn: c, PerMinute: perMinute, PerSession: perSession}
	}
	asked := func(a *Asks, at time.Time, times int, by *Asker) (n int) {
		for range times {
			if a.May(at, by) {
				n++
			}
		}
		return n
	}
	saw := func(a *Asks, at time.Time, session int, from string, c netip.AddrPort) {
		a.Saw(at, &Stay{1, ticket.Ticket{ID: uint64(session)}}, netip.MustParseAddr(from), c)
	}
	for name, c := range map[string]struct {
		do   func(a *Asks) int
		want int
	}{
		"a stranger": {func(a *Asks) int { return asked(a, start, 100, q(conn(1))) }, perMinute},
		"a stranger with many connections": {func(a *Asks) (n int) {
			for i := range 100 {
				n += asked(a, start, 1, q(conn(i+1)))
			}
			return n
		}, perMinute},
		"in the next minute": {func(a *Asks) int {
			asked(a, start, 100, q(conn(1)))
			return asked(a, start.Add(time.Minute), 100, q(conn(1)))
		}, perMinute},
		"a room with space": {func(a *Asks) int {
			free := q(conn(1))
			free.Free = true
			return asked(a, start, 100, free)
		}, 100},
		"the connection of a session, and the address": {func(a *Asks) int {
			saw(a, start, 5, "192.0.2.7", conn(1))
			return asked(a, start, 100, q(conn(1)))
		}, perSession + perMinute + perSession},
		"another connection beside a session": {func(a *Asks) int {
			saw(a, start, 5, "192.0.2.7", conn(1))
			return asked(a, start, 100, q(conn(2)))
		}, perMinute + perSession},
		"a session on many connections": {func(a *Asks) (n int) {
			for i := range 100 {
				saw(a, start, 5, "192.0.2.7", conn(i+1))
				n += asked(a, start, 1, q(conn(i+1)))
			}
			return n
		}, perSession + perMinute + 2*perSession},
		"behind a proxy": {func(a *Asks) int {
			saw(a, start, 5, "192.0.2.7", netip.AddrPort{})
			saw(a, start, 6, "192.0.2.8", netip.AddrPort{})
			return asked(a, start, 100, q(netip.AddrPort{}))
		}, perMinute + 2*perSession},
		"eleven minutes after a session": {func(a *Asks) int {
			saw(a, start, 5, "192.0.2.7", conn(1))
			return asked(a, start.Add(11*time.Minute), 100, q(conn(1)))
		}, perMinute},
		"a session that was seen again": {func(a *Asks) int {
			for i := range 3 {
				saw(a, start.Add(time.Duration(i)*5*time.Minute), 5, "192.0.2.7", conn(9))
			}
			return asked(a, start.Add(11*time.Minute), 100, q(conn(1)))
		}, perMinute + perSession},
		"a session that went to another network": {func(a *Asks) int {
			saw(a, start, 5, "192.0.2.7", conn(9))
			saw(a, start, 5, "198.51.100.1", conn(9))
			return asked(a, start, 100, q(conn(1)))
		}, perMinute},
		"a session of another room": {func(a *Asks) int {
			a.Saw(start, &Stay{2, ticket.Ticket{ID: 5}}, conn(1).Addr(), conn(1))
			return asked(a, start, 100, q(conn(1)))
		}, perMinute},
		"an honest connection beside one that took all": {func(a *Asks) int {
			for i := range 5 {
				saw(a, start, i+1, "192.0.2.7", conn(i+1))
			}
			if n := asked(a, start, 1000, q(conn(100))); n != perMinute+5*perSession {
				t.Errorf("the first one asks %d times", n)
			}
			n := 0
			for i := range 8 {
				n += asked(a, start, 5, q(conn(200+i)))
			}
			return n
		}, 8 * 5},
	} {
		if got := c.do(NewAsks()); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// The memory is bounded, and counts of forgotten sessions go.
func TestAsksForget(t *testing.T) {
	a, now := NewAsks(), time.Unix(6000, 0)
	for i := range maxSessions + 1000 {
		a.Saw(now, &Stay{1, ticket.Ticket{ID: uint64(i + 1)}}, netip.MustParseAddr(fmt.Sprintf("10.%d.%d.1", i>>16, i>>8&255)),
			netip.AddrPort{})
	}
	total := 0
	for _, n := range a.sessions {
		total += n
	}
	if total != maxSessions || a.seen.Len() != maxSessions {
		t.Errorf("%d sessions by prefix, %d seen", total, a.seen.Len())
	}
	a.May(now.Add(seenFor), &Asker{Room: 1, PerMinute: 1, PerSession: 1})
	if len(a.sessions) != 0 || a.seen.Len() != 0 {
		t.Errorf("%d prefixes, %d sessions after their time", len(a.sessions), a.seen.Len())
	}
}
