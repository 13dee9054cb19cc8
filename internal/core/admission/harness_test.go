package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// day is the fleet time at reading zero of every clock in these tests.
const day = fleettime.Time(1622133200_000) // 27 May 2021, 16:33:20 UTC

var sale = room.IDOf("sale")

// regional is the parent, controlled by the test.
type regional struct {
	t        testing.TB
	e        *Engine
	term     wire.Term
	seq      uint64
	instance uint64
	ten      uint64
	last     wire.Report
	held     wire.RoomGrant // granted so far

	standing wire.Standing
}

// newEdge returns an engine that has joined its regional, with a lease from reading now on and the given permits.
func newEdge(t testing.TB, now fleettime.Mono, credit, rate uint64) (*Engine, *regional) {
	t.Helper()
	e := alone(now, 1, Limits{Held: 100, Recent: 1000})
	return e, join(t, e, now, credit, rate)
}

// alone returns an engine with the room and without a regional.
func alone(now fleettime.Mono, seed uint64, limits Limits) *Engine {
	e := New(Config{
		Edge: "edge-1", DC: "nairobi", Params: wire.DefaultParams(), Limits: limits,
		Rand: rand.New(rand.NewPCG(seed, 2)),
	})
	e.SetRooms(now, []Room{{ID: sale}})
	return e
}

// join has an engine join a regional, which grants a lease and permits.
func join(t testing.TB, e *Engine, now fleettime.Mono, credit, rate uint64) *regional {
	t.Helper()
	r := &regional{t: t, e: e, term: wire.Term{N: 1, Nonce: 7}, held: wire.RoomGrant{Room: sale, Life: 330}}
	r.hear(now)
	r.say(now, wire.Grant{Handshake: wire.Promise})
	r.hear(now)
	if !r.last.Join || r.last.Seen != r.term {
		t.Fatalf("the promise is not reported: %+v", r.last)
	}
	r.grant(now, credit, rate)
	return r
}

// gets fails if a decision has another verdict; the format describes the visitor.
func gets(t testing.TB, d Decision, v Verdict, format string, args ...any) {
	t.Helper()
	getsFor(t, d, v, d.Reason, format, args...)
}

// getsFor fails if a decision has another verdict or another reason.
func getsFor(t testing.TB, d Decision, v Verdict, r Reason, format string, args ...any) {
	t.Helper()
	if d.Verdict != v || d.Reason != r {
		t.Errorf("%s: %v (%v) with %+v, want %v (%v)", fmt.Sprintf(format, args...), d.Verdict, d.Reason, d.Ticket, v, r)
	}
}

// hear receives the edge's report.
func (r *regional) hear(now fleettime.Mono) wire.Report {
	reports := r.e.Report(now)
	if len(reports) != 1 {
		r.t.Fatalf("%d reports, want 1", len(reports))
	}
	r.last = reports[0]
	r.instance, r.ten = r.last.Instance, r.last.LeaseEpoch
	return r.last
}

// say sends a grant that answers the last report.
func (r *regional) say(now fleettime.Mono, g wire.Grant) {
	r.seq++
	g.To, g.Instance, g.From, g.Seq, g.Parts = "edge-1", r.instance, r.term, r.seq, 1
	if g.LeaseEpoch == 0 {
		g.LeaseEpoch = r.ten
	}
	g.Acked, g.Echo, g.At = r.last.Seq, max(r.last.Sent, 1), day+fleettime.Time(now/1e6)
	r.e.Apply(now, g)
}

// grant grants further permits, with a new lease.
func (r *regional) grant(now fleettime.Mono, credit, rate uint64) {
	r.held.Permits.Sessions.Granted += credit
	r.held.Permits.Rate.Granted += rate
	r.held.RenewCeil += 100
	r.held.Permits.Sessions.Keep, r.held.Permits.Rate.Keep = 1<<30, 1<<30
	r.room(now, r.held)
}

// lease answers the edge with a lease, of a new epoch if the old one has lapsed.
func (r *regional) lease(now fleettime.Mono) {
	r.t.Helper()
	if r.hear(now).Final {
		r.ten++
		r.held.Permits.Rate.Granted = 0 // used permits remain in the old epoch
	}
	r.grant(now, 0, 0)
	if !r.e.Status(now).Leased {
		r.t.Fatal("the edge did not take the lease")
	}
}

// room sends one room's part of a grant, with a new lease.
func (r *regional) room(now fleettime.Mono, g wire.RoomGrant) {
	r.say(now, wire.Grant{Lease: 3 * time.Second, Standing: r.standing, Rooms: []wire.RoomGrant{g}})
}

// view returns a view with a queue: n joined in the minute before day, and visitors that joined before cutoff may
// enter.
func view(n float64, cutoff, park fleettime.Time) *wire.View {
	return &wire.View{
		Version: 1, At: day, Since: day - 60_000, Cutoff: cutoff, Park: park, Mu: 0.5, Theta: 0,
		Paces: []estimate.Pace{{Mu: 0.5}},
		Line:  estimate.NewDigest(estimate.Histogram{{Start: day - 60_000, Width: 60_000, N: n}}),
	}
}

// at returns the reading of the clock after d.
func at(d time.Duration) fleettime.Mono { return fleettime.Mono(0).Add(time.Hour + d) }

// waiting returns a ticket that joined ago before day, came back, and was shown a wait.
func waiting(id uint64, ago time.Duration) ticket.Ticket {
	joined := day.Add(time.Hour - ago)
	return ticket.Ticket{
		ID: id, Joined: joined, Seen: uint32(day.Add(time.Hour).Second()) - 5, Wait: 60, High: 90,
		Flags: ticket.Returned,
	}
}

// stateOf returns an engine's state of the room.
func stateOf(e *Engine) *roomState { return e.Rooms.byID[sale] }
