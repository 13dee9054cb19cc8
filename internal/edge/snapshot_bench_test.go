package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// BenchmarkSnapshot is one write to the data folder of an edge with 1,000 rooms and 100,000 sessions, of which each
// room has stamped one ticket since the write before.
func BenchmarkSnapshot(b *testing.B) {
	const rooms, each = 1000, 100
	start, day := fleettime.Mono(time.Hour), fleettime.Time(1622133200_000)
	eng := admission.New(admission.Config{
		Edge: "edge-1", DC: "nairobi", Params: wire.DefaultParams(), Limits: admission.DefaultLimits(), Stores: true, Rand: rand.New(rand.NewPCG(1, 2)),
	})
	var set []admission.Room
	var grants []wire.RoomGrant
	for i := range rooms {
		id := room.IDOf(fmt.Sprint("room", i))
		set = append(set, admission.Room{ID: id})
		most := wire.Allocation{Granted: 1 << 40, Keep: 1 << 40}
		grants = append(grants, wire.RoomGrant{Room: id, Life: 330, RenewCeil: 1 << 40, Permits: wire.Permits{Sessions: most, Rate: most}})
	}
	eng.SetRooms(start, set)
	seq := uint64(0)
	lease := func(now fleettime.Mono, rooms []wire.RoomGrant) {
		var last wire.Report
		for _, m := range eng.Report(now) {
			last = m
		}
		seq++
		eng.Apply(now, wire.Grant{
			To: "edge-1", Instance: last.Instance, LeaseEpoch: last.LeaseEpoch, From: wire.Term{N: 1}, Seq: seq, Parts: 1, Acked: last.Seq, Echo: last.Sent,
			At: day.Add(now.Sub(start)), Lease: time.Hour, Rooms: rooms,
		})
	}
	lease(start, grants)
	now := start
	stamp := func() {
		for i := range set {
			if d := eng.Arrive(now, set[i].ID, ticket.Ticket{}); d.Verdict != admission.Admit {
				b.Fatalf("a newcomer gets %v (%v)", d.Verdict, d.Reason)
			}
		}
	}
	for range each {
		now = now.Add(time.Second)
		lease(now, nil)
		stamp()
	}
	folder, err := node.OpenFolder(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := folder.Close(); err != nil {
			b.Error(err)
		}
	}()
	known, size := map[room.ID][]byte{}, 0
	var locked time.Duration // longest time under the lock of the engine
	b.ReportAllocs()
	for b.Loop() {
		number, head := eng.BeginSnapshot(now)
		var after room.ID
		for first, more := true, true; more; first = false {
			var changed []wire.RoomPast
			begun := time.Now()
			changed, after, more = eng.SnapshotRooms(now, after, first, snapshotChunk)
			locked = max(locked, time.Since(begun))
			for i := range changed {
				if known[changed[i].Report.Room], err = wire.EncodeRoomPast(&changed[i]); err != nil {
					b.Fatal(err)
				}
			}
		}
		all := make([][]byte, 0, len(set))
		for i := range set {
			all = append(all, known[set[i].ID])
		}
		data, err := wire.EncodePast(number, &head, all)
		if err == nil {
			err = folder.KeepPast([][]byte{data})
		}
		if err != nil {
			b.Fatal(err)
		}
		size = len(data)
		b.StopTimer()
		eng.Snapshotted(now)
		stamp()
		b.StartTimer()
	}
	b.ReportMetric(float64(size), "B/snapshot")
	b.ReportMetric(float64(locked.Microseconds()), "µs-locked-at-most")
	b.Logf("goal: at most 5 ms/op, off the path of requests")
}
