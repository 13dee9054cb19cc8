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

// TestRule9AReadmittedDataCentre: once the list or the coordinator names a newer membership than the one under which its
// ledger was adopted, a data centre has its edges admit nobody, also under serve, and reports what is not covered. It
// reports the new membership when the coordinator has voided the old permits, new ones cover everything, and that is
// stored. The version of the list that it has stored proves nothing.
func TestRule9AReadmittedDataCentre(t *testing.T) {
	now, term, root := fleettime.Mono(time.Hour), wire.Term{N: 2, Nonce: 1}, wire.Term{N: 1, Nonce: 2}
	sale := room.IDOf("sale")
	agg := lead(now, region.Config{Term: term}, wire.Durable{Version: 5, Promise: root, Life: 75, Members: 3, Membership: 1, ClusterID: 1})
	agg.SetRooms(now, []ledger.RoomConfig{{ID: sale, Total: 10, Rate: 60, Session: time.Minute}})
	seq := uint64(0)
	global := func(members uint64, as wire.Membership, room wire.RoomGrant) {
		seq++
		room.Room, room.Confirmed = sale, true
		agg.Apply(now, wire.Grant{
			To: "dublin", Instance: 2, From: root, Seq: seq, Parts: 1, Echo: now, At: 1622133200_000, Lease: time.Minute, ClusterID: 1,
			Reads: wire.Read, Members: members, Membership: as, Baseline: seq == 1, Rooms: []wire.RoomGrant{room},
		})
		save(agg, now)
	}
	permits := func(t, rate uint64) wire.Permits {
		return wire.Permits{Sessions: wire.Allocation{Granted: t, Keep: t}, Rate: wire.Allocation{Granted: rate, Keep: rate}}
	}
	global(1, 1, wire.RoomGrant{Permits: permits(10, 60)})
	edge, own := joining("d1", 7, 0, term, wire.RoomReport{Room: sale}), permits(0, 0)
	turn := func(active uint64) (standing wire.Standing, m wire.Report) {
		now = now.Add(100 * time.Millisecond)
		edge.Seq, edge.Sent, edge.AsOf = edge.Seq+1, now, 1622133200_000
		edge.Rooms[0] = wire.RoomReport{Room: sale, Permits: own, Spent: active, Sessions: stamped(1622133270, active), Want: 3}
		agg.Observe(now, edge)
		save(agg, now)
		for _, g := range agg.Grants(now) {
			for _, r := range g.Rooms {
				own.Sessions.Granted, own.Rate.Granted = r.Permits.Sessions.Granted, r.Permits.Rate.Granted
			}
			standing, edge.Acked, edge.Join = g.Standing, g.Seq, false
		}
		reports := agg.Report(now)
		save(agg, now)
		return standing, reports[0]
	}
	turn(0)
	if s, m := turn(0); s != wire.Listed || m.Membership != 1 {
		t.Fatalf("adopted as of old: %v, %+v", s, m)
	}
	turn(2)
	agg.SetMembers(now, ledger.Members{Version: 4, List: []ledger.Member{{Name: "dublin", Since: 3, ClusterID: 1}}})
	if s, m := turn(2); s != wire.Draining || m.Membership != 1 {
		t.Errorf("its list has it anew: %v, membership %d", s, m.Membership)
	}
	global(4, 4, wire.RoomGrant{Gen: 1 << 17})
	s, m := turn(2)
	if u := m.Rooms[0].Uncovered; s != wire.Draining || m.Membership != 1 || u.Sessions < 2 || m.Rooms[0].Gen != 1<<17 {
		t.Errorf("its permits are void: %v, membership %d, %+v uncovered", s, m.Membership, u)
	}
	global(4, 4, wire.RoomGrant{Gen: 1 << 17, Permits: permits(10, 60)})
	turn(2)
	if s, m := turn(2); s != wire.Listed || m.Membership != 4 || (m.Rooms != nil && m.Rooms[0].Uncovered != wire.PermitCounts{}) {
		t.Errorf("covered anew: %v, %+v", s, m)
	}
	if d := agg.Durable(); d.Membership != 4 {
		t.Errorf("stored: %+v", d)
	}
}
