package root_test

import (
	"testing"

	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// leaves makes a session of the data centre go to another one with its permit.
func (c *member) leaves(r *roster, to string) {
	c.active, c.returned = c.active-1, c.returned+1
	c.transfers = append(c.transfers, wire.Transfer{
		ID: 7, From: wire.HomeOf(c.name), To: wire.HomeOf(to), Tag: 1, N: uint64(len(c.transfers) + 1),
		Until: uint32(r.root.Known(r.now).Time.Second() + 60),
	})
}

// TestRule7APermitOnItsWay: a session leaves with its permit. Its new home gets one more, whoever leads; a data centre
// that may be lent nothing gets none, and nobody else does.
func TestRule7APermitOnItsWay(t *testing.T) {
	leaving := ledger.Members{Version: 2, List: []ledger.Member{{Name: "dublin"}, {Name: "nairobi", Draining: true}}}
	for _, c := range []struct {
		name   string
		change func(r *roster)
		moves  uint64 // the permits that nairobi gets
	}{
		{"to a member", func(*roster) {}, 1},
		{"to one that has returned everything and is to leave the list", func(r *roster) {
			r.root.SetMembers(r.now, leaving)
			r.centres["nairobi"].knows = 2
			r.exchange(4)
			r.centres["dublin"].knows = 2
		}, 0},
		{"by a new coordinator", func(r *roster) {
			r.lead(3, false, founding("dublin", "nairobi"))
			r.exchange(4)
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoster(t, 2, true, founding("dublin", "nairobi"))
			r.add("dublin", "nairobi")
			dublin, nairobi := r.centres["dublin"], r.centres["nairobi"]
			dublin.moves, nairobi.moves, dublin.knows, nairobi.knows = true, true, 1, 1
			r.exchange(4)
			dublin.active = dublin.granted - dublin.returned // all that it has
			r.exchange(2)
			c.change(r)
			r.exchange(2)
			was := nairobi.granted - nairobi.returned
			dublin.leaves(r, "nairobi")
			r.exchange(3)
			l := r.root.Ledger(sale)
			if got := nairobi.granted - nairobi.returned - was; got != c.moves {
				t.Errorf("nairobi has %d permits more, want %d", got, c.moves)
			}
			if sum := l.Free + r.held("dublin") + r.held("nairobi") + 1 - int64(c.moves); sum != rosterTotal {
				t.Errorf("held, free and on their way are %d of %d: %+v", sum, rosterTotal, l)
			}
		})
	}
}

// TestRule7APermitOnItsWayIsNotLentToOthers: a new coordinator, which does not know all ledgers, lends what comes back to
// it. A permit that came back with a session goes to its new home alone.
func TestRule7APermitOnItsWayIsNotLentToOthers(t *testing.T) {
	r := newRoster(t, 2, false, founding("dublin", "lima", "nairobi"))
	r.add("dublin", "lima", "nairobi")
	dublin, lima, nairobi := r.centres["dublin"], r.centres["lima"], r.centres["nairobi"]
	dublin.moves, nairobi.moves = true, true
	dublin.granted, dublin.active, lima.granted, lima.active = 50, 50, 50, 50
	lima.cut = true
	r.exchange(4)
	was := r.held("dublin") + r.held("nairobi")
	dublin.leaves(r, "nairobi")
	r.exchange(4)
	if l := r.root.Ledger(sale); l.Complete || r.held("dublin")+r.held("nairobi") != was || nairobi.granted != 1 {
		t.Errorf("%d permits are lent, %d before; nairobi has %d of one session: %+v", r.held("dublin")+r.held("nairobi"), was,
			nairobi.granted, l)
	}
}
