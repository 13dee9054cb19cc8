package region_test

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// TestALastReportSettlesAnEdge: the last report of a killed edge, made from its data folder, is a goodbye, unless the
// folder is older than the one that the edge reported, or void.
func TestALastReportSettlesAnEdge(t *testing.T) {
	const second = 1622133200
	sale := room.IDOf("sale")
	for _, c := range []struct {
		what             string
		reported, folder uint64 // numbers of snapshots
		later            uint64 // number reported twelve seconds later
		void             bool   // the edge reports later that its folder settles nothing
		takeover         bool
		lost             bool // the store
		settled          bool
	}{
		{what: "the newest snapshot", reported: 5, folder: 5, settled: true},
		{what: "a snapshot that it could not report", reported: 5, folder: 6, settled: true},
		{what: "an older folder", reported: 5, folder: 4},
		{what: "a folder that settled nothing", folder: 4},
		{what: "a folder that became void", reported: 5, folder: 5, void: true},
		{what: "the newest snapshot, after a takeover", reported: 5, folder: 5, takeover: true, settled: true},
		{what: "an older folder, after a takeover", reported: 5, folder: 4, takeover: true},
		{
			what:     "a folder as of a store that is ten seconds old, after a takeover",
			reported: 5, later: 17, folder: 16, takeover: true,
		},
		{what: "a folder that became void, after a takeover", reported: 5, folder: 5, void: true, takeover: true},
		{
			what:     "a folder, and a store that lost the roster",
			reported: 5, folder: 5, takeover: true, lost: true, settled: true,
		},
	} {
		now := fleettime.Mono(time.Hour)
		var agg *region.Aggregator
		var saved wire.Durable
		begin := func(n uint64, stored wire.Durable, bootstrap bool) (term wire.Term) {
			term = wire.Term{N: n, Nonce: 1}
			agg = lead(now, region.Config{
				Term: term, Bootstrap: bootstrap, Time: fleettime.Known{Time: second * 1000, Bound: 1},
			}, stored)
			agg.SetRooms(now, []ledger.RoomConfig{{
				ID: sale, Total: 50, Rate: 600, Session: 5 * time.Minute, LostWait: time.Hour,
			}})
			return term
		}
		answers := func(instance uint64) (out []wire.Grant) {
			for range 2 {
				if d, ok := agg.Unsaved(); ok {
					saved = d.Clone()
					agg.Saved(now, d.Version)
				}
				for _, g := range agg.Grants(now) {
					if g.Instance == instance {
						out = append(out, g)
					}
				}
			}
			return out
		}
		term := begin(2, wire.Durable{}, true)
		m := joining("d1", 7, 2, term, wire.RoomReport{
			Room: sale, Permits: granted(9), Spent: 4, Sessions: stamped(second+200, 4),
		})
		m.AsOf, m.Stored = second*1000, c.reported
		agg.Observe(now, m)
		answers(7)
		if c.later != 0 {
			now = now.Add(12 * time.Second)
			m.Seq, m.Stored, m.AsOf = 3, c.later, m.AsOf+12_000
			agg.Observe(now, m)
			answers(7)
		}
		if c.void {
			m.Seq, m.Stored = 3, 0
			agg.Observe(now, m)
			if all := answers(7); len(all) == 0 || all[len(all)-1].Folder != wire.FolderVoid {
				t.Errorf("%s: the edge does not learn that its folder is void: %+v", c.what, all)
			}
		}
		if c.takeover {
			stored := saved
			if c.lost {
				stored = wire.Durable{}
			}
			term = begin(3, stored, false)
		}
		last := m
		last.Seen, last.Seq, last.Final, last.Bye, last.Settles, last.Stored = term, 1<<48, true, true, true, c.folder
		last.Rooms = []wire.RoomReport{m.Rooms[0]}
		last.Rooms[0].Sessions = []wire.Expiry{{Until: second + 200, Stamped: 4}, {Until: second + 300, Stamped: 2}}
		dead := 0
		for range 3 {
			last.Seq++
			agg.Observe(now, last)
			for _, g := range answers(7) {
				if g.Handshake == wire.Dead {
					dead++
				}
			}
		}
		state := ""
		for _, e := range agg.Status(now).Edges {
			if e.Instance == 7 {
				state = e.State
			}
		}
		if (state == region.Left) != c.settled || dead == 0 {
			t.Errorf("%s: the edge is %q and was sent away %d times", c.what, state, dead)
		}
		l := agg.Ledger(sale)
		if c.settled && (l.Active != 6 || l.Reserved != 0) {
			t.Errorf("%s: %d sessions count, %d of them reserved; want 6 and 0", c.what, l.Active, l.Reserved)
		}
		// What it wrote before it ended arrives late.
		if c.settled && !c.takeover {
			m.Seq, m.Rooms[0].Sessions[0].Stamped = 9, 6
			if agg.Observe(now, m); agg.Ledger(sale).Active != 6 {
				t.Errorf("%s: an older report counts beside the last one: %d sessions", c.what, agg.Ledger(sale).Active)
			}
			m.AsOf += 60_000
			before := agg.Edges().Unknown
			if agg.Observe(now, m); agg.Edges().Unknown != before+1 {
				t.Errorf("%s: an edge that is alive after all raises no alarm", c.what)
			}
		}
	}
}

// TestALastReportEndsAReservation: what was reserved for a dead edge in a room whose settings are unknown counts, once
// the edge is settled, no longer than the tickets of the last report.
func TestALastReportEndsAReservation(t *testing.T) {
	const second = 1622133200
	sale, now, term := room.IDOf("sale"), fleettime.Mono(time.Hour), wire.Term{N: 3, Nonce: 1}
	agg := lead(now, region.Config{Term: term, Time: fleettime.Known{Time: second * 1000, Bound: 1}}, wire.Durable{
		Version: 1, Life: 330, Roster: []wire.RosterEntry{{
			Edge: "d1", Instance: 7, LeaseEpoch: 1, Dead: true, Ended: second, Stored: 5,
			Rooms: []wire.RosterRoom{{
				Room: sale, Sessions: stamped(second+200, 1), Reserved: 3, ReservedUntil: second + 86400, Silent: true,
			}},
		}},
	})
	report := func(from string, instance uint64, seq uint64) {
		m := joining(from, instance, seq, term)
		m.AsOf, m.AsOfBound = fleettime.Time(second*1000).Add(now.Sub(fleettime.Mono(time.Hour))), 1
		if instance == 7 {
			m.AsOf, m.Final, m.Bye, m.Settles, m.Stored = (second-100)*1000, true, true, true, 5
			m.Rooms = []wire.RoomReport{{Room: sale, Sessions: stamped(second+200, 1)}}
		}
		agg.Observe(now, m)
		save(agg, now)
		agg.Grants(now)
	}
	for i := range uint64(250) {
		now = now.Add(time.Second)
		if report("d2", 8, i+1); i == 5 {
			report("d1", 7, 1<<48)
		}
		if l := agg.Ledger(sale); i == 3 && l.Reserved != 3 || i == 100 && l.Active == 0 || i == 249 && l.Reserved != 0 {
			t.Errorf("after %d s %d sessions are reserved, and %d count", i, l.Reserved, l.Active)
		}
	}
}
