package region_test

import (
	"errors"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// An aggregator over an empty store waits for edges that the store may have lost, until an operator says that there
// never were any. The word is stored before it counts. Anything that shows a past is believed more than the operator.
func TestRule9ANewDataCentreBeginsByWord(t *testing.T) {
	const second = 1_800_000_000
	sale := room.IDOf("sale")
	own := wire.Term{N: 2, Nonce: 1}
	for what, c := range map[string]struct {
		stored wire.Durable
		past   func(a *region.Aggregator, now fleettime.Mono)
		new    bool
	}{
		"an empty store": {new: true},
		"a predecessor that waited too": {new: true, stored: wire.Durable{Version: 4, Roster: []wire.RosterEntry{
			{Edge: wire.UnknownPast}, {Edge: "d9", Instance: 3, LeaseEpoch: 1},
		}}},
		"a store with promises": {stored: wire.Durable{Version: 4, Life: 300}},
		"a store that lost a part, and knows a list": {stored: wire.Durable{
			Version: 4, Members: 3, Roster: []wire.RosterEntry{{Edge: wire.UnknownPast}},
		}},
		"a list of data centres": {past: func(a *region.Aggregator, now fleettime.Mono) {
			a.SetMembers(now, ledger.Members{Version: 3, List: []ledger.Member{{Name: "dublin"}}})
		}},
		"an edge with a session": {past: func(a *region.Aggregator, now fleettime.Mono) {
			m := joining("d2", 9, 1, own, wire.RoomReport{
				Room: sale, Permits: granted(1), Spent: 1, Sessions: stamped(second+200, 1),
			})
			m.AsOf = second * 1000
			a.Observe(now, m)
		}},
	} {
		now := fleettime.Mono(time.Hour)
		a := lead(now, region.Config{Term: own, Time: fleettime.Known{Time: second * 1000, Bound: 1}}, c.stored)
		a.SetRooms(now, []ledger.RoomConfig{{
			ID: sale, Total: 50, Rate: 600, Session: 5 * time.Minute, LostWait: 15 * time.Minute,
		}})
		save(a, now)
		join := func(edge string, instance, seq uint64, seen wire.Term) {
			m := joining(edge, instance, seq, seen)
			m.AsOf = second * 1000
			a.Observe(now, m)
		}
		join("d1", 7, 1, own)
		save(a, now)
		if c.past != nil {
			c.past(a, now)
		}
		for range 10 { // a while: the wait goes on
			now = now.Add(time.Second)
			join("d1", 7, uint64(now), own)
			a.Grants(now)
			save(a, now)
		}
		waits := func() bool {
			for _, w := range a.Waits(now) {
				if w.Why == region.WaitEdge {
					return true
				}
			}
			return false
		}
		if a.Uninitialized() != c.new {
			t.Errorf("%s: uninitialized %v", what, a.Uninitialized())
			continue
		}
		waited := waits()
		err := a.Begin(now)
		if c.new != (err == nil) || !c.new && !errors.Is(err, region.ErrBegun) {
			t.Errorf("%s: %v", what, err)
		}
		if !c.new {
			if a.Grants(now); waits() != waited {
				t.Errorf("%s: the refused word changed the waits", what)
			}
			continue
		}
		if a.Grants(now); !waited || !waits() {
			t.Errorf("%s: waits %v before the word, %v before it is stored", what, waited, waits())
		}
		save(a, now)
		a.Grants(now)
		a.Report(now) // makes the cluster ID
		save(a, now)
		if out := a.Report(now); waits() || a.Uninitialized() || len(out) == 0 || out[0].Recovering {
			t.Errorf("%s: it waits after the word: %+v", what, a.Waits(now))
		}
		if err := a.Begin(now); err != nil {
			t.Errorf("%s: the word cannot be repeated: %v", what, err)
		}
		for _, r := range a.Durable().Roster {
			if r.Edge != "d1" {
				t.Errorf("%s: a successor would wait for %s", what, r.Edge)
			}
		}
		if c.stored.Version > 0 {
			continue // its edges followed leaders that waited
		}
		join("d3", 11, 1, wire.Term{N: 1, Nonce: 9})
		if save(a, now); !waits() {
			t.Errorf("%s: an edge that followed another leader is not believed", what)
		}
	}
}
