//go:build linux

package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// BenchmarkSnapshot is one write to the data folder of an edge with 1,000 rooms and 100,000 sessions, of which each
// room has stamped one ticket since the write before.
func BenchmarkSnapshot(b *testing.B) {
	const rooms, each = 1000, 100
	start, day := fleettime.Mono(time.Hour), fleettime.Time(1622133200_000)
	eng := admission.New(admission.Config{
		Edge: "edge-1", DC: "nairobi", Params: wire.DefaultParams(), Limits: admission.DefaultLimits(), Stores: true,
		Rand: rand.New(rand.NewPCG(1, 2)),
	})
	var set []admission.Room
	var grants []wire.RoomGrant
	for i := range rooms {
		id := room.IDOf(fmt.Sprint("room", i))
		set = append(set, admission.Room{ID: id})
		most := wire.Allocation{Granted: 1 << 40, Keep: 1 << 40}
		grants = append(grants, wire.RoomGrant{
			Room: id, Life: 330, RenewCeil: 1 << 40,
			Permits: wire.Permits{Sessions: most, Rate: most},
		})
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
			To: "edge-1", Instance: last.Instance, LeaseEpoch: last.LeaseEpoch, From: wire.Term{N: 1}, Seq: seq, Parts: 1,
			Acked: last.Seq, Echo: last.Sent,
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
	folder := testkit.Must(node.OpenFolder(b.TempDir()))(b)
	defer func() {
		if err := folder.Close(); err != nil {
			b.Error(err)
		}
	}()
	var encoder snapshotEncoder
	size, locked := 0, time.Duration(0) // at most, under the lock of the engine
	with := func(do func(fleettime.Mono, *admission.Engine)) {
		begun := time.Now()
		do(now, eng)
		locked = max(locked, time.Since(begun))
	}
	used := func() time.Duration { // by this process, of the cores
		var u unix.Rusage
		testkit.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	cpu := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		before := used()
		data := encoder.take(with)
		testkit.NoError(b, folder.KeepPast([][]byte{data}))
		size = len(data)
		b.StopTimer()
		cpu += used() - before
		eng.Snapshots.Written(now)
		stamp()
		b.StartTimer()
	}
	per := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(b.N) }
	b.ReportMetric(float64(size), "B/snapshot")
	b.ReportMetric(float64(locked.Microseconds()), "µs-locked-at-most")
	b.Logf("%.1f ms a write of %d rooms and %d sessions, of which %.1f ms of one core, off the path of requests (goal: "+
		"at most 5 ms)", per(b.Elapsed()), rooms, rooms*each, per(cpu))
}
