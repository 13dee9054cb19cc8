package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// newStoring returns an engine like newEdge, with snapshots.
func newStoring(t testing.TB, now fleettime.Mono, credit, rate uint64) (*Engine, *regional) {
	e, r := newEdge(t, now, credit, rate)
	e.Snapshots.on = true
	return e, r
}

// takeAll returns a snapshot of e, which is being written.
func takeAll(e *Engine, now fleettime.Mono, known map[room.ID]wire.RoomPast) *wire.Past {
	p := &wire.Past{}
	p.Number, p.Head, _ = e.Snapshots.Begin(now)
	changed, _, _ := e.Snapshots.Take(now, 0, true, make([]wire.RoomPast, 100))
	for _, r := range changed {
		known[r.Report.Room] = r
	}
	for _, r := range known {
		p.Rooms = append(p.Rooms, r)
	}
	return p
}

func entered(e *Engine, now fleettime.Mono, n int) (in int) {
	for range n {
		if d := e.Arrive(now, sale, ticket.Ticket{}); d.Verdict == Admit {
			in++
		}
	}
	return in
}

// TestASnapshotBoundsWhatIsStamped: a room stamps no ticket beyond the ceilings of the snapshots that the folder may
// have. The visitor is held until the next snapshot is written.
func TestASnapshotBoundsWhatIsStamped(t *testing.T) {
	now := at(0)
	e, _ := newStoring(t, now, 50, 50)
	known := map[room.ID]wire.RoomPast{}
	if n := entered(e, now, 7); n != 7 {
		t.Fatalf("%d of 7 enter before the first snapshot", n)
	}
	first := takeAll(e, now, known)
	allowed := int(first.Rooms[0].More)
	if n := entered(e, now, 30); n != allowed {
		t.Errorf("%d enter while a snapshot for %d is written", n, allowed)
	}
	e.Snapshots.Written(now)
	if n := entered(e, now, 1); n != 0 {
		t.Errorf("%d enter beyond the snapshot", n)
	}
	if due := e.Snapshots.Due(); due > now.Add(snapshotGap) {
		t.Errorf("the next snapshot is due in %v", due.Sub(now))
	}
	second := takeAll(e, now, known)
	if n := entered(e, now, 1); n != 0 {
		t.Errorf("%d enter while only the older snapshot is certain", n)
	}
	e.Snapshots.Written(now)
	if n := entered(e, now, 1); n != 1 || second.Rooms[0].More <= uint64(allowed)/2 {
		t.Errorf("%d of 1 enters after a snapshot for %d more", n, second.Rooms[0].More)
	}
	late := now.Add(wire.SnapshotLife)
	if n := entered(e, late, 1); n != 0 {
		t.Errorf("%d enter %v after the last snapshot", n, wire.SnapshotLife)
	}
}

// TestSnapshotsAreTakenWhileTicketsAreStamped, as often as they take little of the time.
func TestSnapshotsAreTakenWhileTicketsAreStamped(t *testing.T) {
	for name, tt := range map[string]struct {
		took  time.Duration
		stamp bool
		want  time.Duration
	}{
		"nothing is stamped": {time.Millisecond, false, time.Second},
		"a fast disk":        {time.Millisecond, true, 100 * time.Millisecond},
		"a slower one":       {10 * time.Millisecond, true, 500 * time.Millisecond},
		"a slow one":         {200 * time.Millisecond, true, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			now := at(0)
			e, _ := newStoring(t, now, 50, 50)
			known := map[room.ID]wire.RoomPast{}
			for range 2 { // the second one has ceilings
				takeAll(e, now, known)
				now = now.Add(tt.took)
				e.Snapshots.Written(now)
			}
			if tt.stamp && entered(e, now, 1) != 1 {
				t.Fatal("nobody enters")
			}
			if got := e.Snapshots.Due().Sub(now.Add(-tt.took)); got != tt.want {
				t.Errorf("due %v after the one before, want %v", got, tt.want)
			}
		})
	}
}

// TestAVoidFolderCostsNoAdmission: a folder that cannot be written bounds nothing once the regional has stored that it
// is void, or once it is empty.
func TestAVoidFolderCostsNoAdmission(t *testing.T) {
	grant := func(r *regional, now fleettime.Mono, f wire.Folder) {
		r.say(now, wire.Grant{Lease: 3 * time.Second, Folder: f, Rooms: []wire.RoomGrant{r.held}})
	}
	for _, c := range []struct {
		what   string
		then   func(e *Engine, r *regional, now fleettime.Mono)
		enters bool
	}{
		{"nothing else", func(*Engine, *regional, fleettime.Mono) {}, false},
		{
			"an answer to a report from before",
			func(_ *Engine, r *regional, now fleettime.Mono) { grant(r, now, wire.FolderVoid) }, false,
		},
		{"a regional that trusts the folder", func(_ *Engine, r *regional, now fleettime.Mono) {
			r.hear(now)
			grant(r, now, wire.FolderSettles)
		}, false},
		{"a regional of an older release", func(_ *Engine, r *regional, now fleettime.Mono) {
			r.hear(now)
			grant(r, now, wire.FolderUnknown)
		}, false},
		{"a regional that has stored it", func(_ *Engine, r *regional, now fleettime.Mono) {
			r.hear(now)
			grant(r, now, wire.FolderVoid)
		}, true},
		{"an empty folder", func(e *Engine, _ *regional, now fleettime.Mono) { e.Snapshots.Failed(now, true) }, true},
	} {
		now := at(0)
		e, r := newStoring(t, now, 50, 50)
		known := map[room.ID]wire.RoomPast{}
		takeAll(e, now, known)
		e.Snapshots.Written(now)
		entered(e, now, 30)
		takeAll(e, now, known)
		if e.Snapshots.Failed(now, false); r.e.Snapshots.settles() != 0 {
			t.Errorf("%s: the folder is told to settle", c.what)
		}
		if c.then(e, r, now); (entered(e, now, 1) == 1) != c.enters {
			t.Errorf("after %s: a visitor enters: %v, want %v", c.what, !c.enters, c.enters)
		}
	}
}

// TestTheLastReportCoversAllThatWasStamped kills an edge at any time between, during and after writes of its
// snapshots. Its last report, made from any snapshot that the folder may have, counts as many sessions in every second
// on as the edge, and as many permits of R in use.
func TestTheLastReportCoversAllThatWasStamped(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := at(0)
		e, r := newStoring(t, now, 40, 40)
		known := map[room.ID]wire.RoomPast{}
		var inFolder, beingWritten *wire.Past
		var visitors []ticket.Ticket
		uses := []fleettime.Mono{}
		check := func() {
			real := stateOf(e).account.sessions.report(nil)
			for _, p := range []*wire.Past{inFolder, beingWritten} {
				if p == nil || !e.Snapshots.enforced {
					continue
				}
				last := NewPredecessor(p, wire.DefaultParams()).Report(now)[0].Rooms
				if len(last) != 1 {
					rt.Fatalf("%d rooms in the last report", len(last))
				}
				for _, x := range append(real, last[0].Sessions...) {
					if a, b := sumFrom(real, x.Until), sumFrom(last[0].Sessions, x.Until); a > b {
						rt.Fatalf("from second %d on %d sessions are valid, and the last report counts %d", x.Until, a, b)
					}
				}
				busy := int64(0)
				for _, u := range uses {
					if now.Sub(u) < wire.RateWindow {
						busy++
					}
				}
				l := last[0].Permits.Rate
				// those that are idle may have been used since
				if held := int64(l.Granted-l.Returned) + int64(last[0].RateOwed); busy > held {
					rt.Fatalf("%d permits of R are in use, and the last report counts %d", busy, held)
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				now = now.Add(time.Duration(rapid.IntRange(0, 30_000).Draw(rt, "ms")) * time.Millisecond)
				r.lease(now)
			case 1:
				r.lease(now)
				r.grant(now, rapid.Uint64Range(0, 10).Draw(rt, "T"), rapid.Uint64Range(0, 10).Draw(rt, "R"))
			case 2, 3:
				for range rapid.IntRange(1, 5).Draw(rt, "visitors") {
					if d := e.Arrive(now, sale, ticket.Ticket{}); d.Verdict == Admit {
						visitors, uses = append(visitors, d.Ticket), append(uses, now)
					}
				}
				for i := range visitors {
					if d := e.Arrive(now, sale, visitors[i]); d.Verdict == Serve {
						visitors[i] = d.Ticket
					}
				}
			case 4:
				if beingWritten == nil {
					beingWritten = takeAll(e, now, known)
				}
			case 5:
				if beingWritten != nil {
					e.Snapshots.Written(now)
					inFolder, beingWritten = beingWritten, nil
				}
			}
			check()
		}
	})
}

// sumFrom returns the sessions that are valid at second or later.
func sumFrom(all []wire.Expiry, second uint32) (n int64) {
	for _, x := range all {
		if x.Until >= second {
			n += int64(x.Stamped) - int64(x.Consumed)
		}
	}
	return n
}

// TestThePredecessorFollowsTheLeader: the last report goes to the regional that leads, until it has settled the
// instance.
func TestThePredecessorFollowsTheLeader(t *testing.T) {
	now := at(0)
	e, r := newStoring(t, now, 5, 5)
	r.hear(now)
	data := takeAll(e, now, map[room.ID]wire.RoomPast{})
	begin := func() *Predecessor { return NewPredecessor(data, wire.DefaultParams()) }
	grant := func(n uint64, v wire.Handshake, f wire.Folder) wire.Grant {
		return wire.Grant{To: "edge-1", Instance: r.instance, From: wire.Term{N: n, Nonce: 7}, Handshake: v, Folder: f}
	}
	p := begin()
	m := p.Report(now)[0]
	if m.Instance != r.instance || m.Seen != r.term || !m.Join || !m.Final || !m.Bye || !m.Settles || m.Stored != 1 ||
		m.Seq <= settleSeq {
		t.Errorf("the last report is %+v", m)
	}
	p.Apply(now, grant(9, wire.Promise, wire.FolderSettles))
	if m := p.Report(now)[0]; m.Seen.N != 9 || p.Settled() {
		t.Errorf("after the promise it follows %+v", m.Seen)
	}
	p.Apply(now, grant(8, wire.Dead, wire.FolderSettles))
	if p.Settled() {
		t.Error("a superseded regional settles it")
	}
	other := grant(9, wire.Dead, wire.FolderSettles)
	other.Instance++
	if p.Apply(now, other); p.Settled() {
		t.Error("an answer to another instance settles it")
	}
	if p.Apply(now, grant(9, wire.Dead, wire.FolderSettles)); !p.Settled() || p.Due() != fleettime.Never {
		t.Error("it is settled and goes on")
	}
	if p = begin(); p.Settled() {
		t.Fatal("settled at once")
	}
	if p.Apply(now, grant(9, wire.Promise, wire.FolderUnknown)); !p.Settled() {
		t.Error("a regional of an older release is sent the last report")
	}
}
