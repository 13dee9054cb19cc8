package gate

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/lab/figures"
)

// crowd subscribes visitors in a room of ten places.
type crowd struct {
	subscribers
	t      testing.TB
	now    fleettime.Time
	lapsed map[uint64]bool
}

const roomFor = 10

// subscribe has a visitor from 10.net.0.0/24 subscribe, and returns what became of it: "", "refused" or "N gives way".
func (c *crowd) subscribe(visitor uint64, net byte) string {
	c.t.Helper()
	from := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, net}), 24)
	gone, ok := c.take(c.now, &ticket.Ticket{ID: visitor}, from, roomFor, func(t *ticket.Ticket) bool { return !c.lapsed[t.ID] })
	switch {
	case len(c.by) > roomFor || c.order.Len() != len(c.by):
		c.t.Fatalf("%d places, %d in order", len(c.by), c.order.Len())
	case !ok:
		return "refused"
	case gone != nil:
		return fmt.Sprintf("%d gives way", gone.ticket.ID)
	}
	return ""
}

// TestWhoGivesWayInAFullRoom of subscriptions.
func TestWhoGivesWayInAFullRoom(t *testing.T) {
	for name, script := range map[string]func(c *crowd) (got, want []string){
		"one ticket has one place": func(c *crowd) (got, want []string) {
			for range 100 {
				got, want = append(got, c.subscribe(1, 1)), append(want, "")
			}
			return got, want
		},
		"the newest of the prefix with the most": func(c *crowd) (got, want []string) {
			for v := uint64(1); v <= 8; v++ {
				c.subscribe(v, 1)
			}
			c.subscribe(20, 2)
			c.subscribe(21, 2)
			return []string{c.subscribe(30, 3), c.subscribe(22, 2), c.subscribe(9, 1)},
				[]string{"8 gives way", "7 gives way", "refused"}
		},
		"a confirmed one after the others": func(c *crowd) (got, want []string) {
			for v := uint64(1); v <= 10; v++ {
				c.subscribe(v, 1)
			}
			c.confirm(10)
			return []string{c.subscribe(20, 2), c.subscribe(30, 3)}, []string{"9 gives way", "8 gives way"}
		},
		"one whose place has lapsed": func(c *crowd) (got, want []string) {
			for v := uint64(1); v <= 10; v++ {
				c.subscribe(v, 1)
			}
			c.lapsed[3] = true
			return []string{c.subscribe(20, 2), c.subscribe(30, 3)}, []string{"", "10 gives way"}
		},
		"among equals one that was not confirmed": func(c *crowd) (got, want []string) {
			for v := uint64(1); v <= 10; v++ {
				c.subscribe(v, byte(v))
			}
			c.confirm(1)
			got = append(got, c.subscribe(20, 20))
			c.now = c.now.Add(confirmWithin + time.Second)
			return append(got, c.subscribe(20, 20), c.subscribe(2, 2)), []string{"refused", "2 gives way", "3 gives way"}
		},
		"an ended one makes room": func(c *crowd) (got, want []string) {
			for v := uint64(1); v <= 10; v++ {
				c.subscribe(v, 1)
			}
			if !c.drop(4) || c.drop(4) {
				got = append(got, "drop")
			}
			return append(got, c.subscribe(20, 2), c.subscribe(21, 3)), []string{"", "10 gives way"}
		},
	} {
		c := &crowd{t: t, lapsed: map[uint64]bool{}}
		if got, want := script(c); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestJunkRefusesNobody: after 100,000 subscriptions from 400 prefixes, a visitor from another one gets a place.
func TestJunkRefusesNobody(t *testing.T) {
	c := &crowd{t: t, lapsed: map[uint64]bool{}}
	take := func(visitor uint64, from netip.Addr) bool {
		_, ok := c.take(0, &ticket.Ticket{ID: visitor}, clientaddr.Prefix(from), pushesFree,
			func(*ticket.Ticket) bool { return true })
		return ok
	}
	refused := 0
	for v := range uint64(100_000) {
		take(v+1, netip.AddrFrom4([4]byte{198, 18 + byte(v%400/256), byte(v % 400), byte(v / 400)}))
		if v%500 == 0 && !take(1<<40+v, netip.AddrFrom4([4]byte{203, byte(v / 500), 0, 7})) {
			refused++
		}
	}
	figures.Check(t, "notify: subscribers refused beside 100,000 junk ones", "", float64(refused))
}
