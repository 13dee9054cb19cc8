package region

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// atLeast returns how many sessions count where everything before a second is freed.
func atLeast(sessions []wire.Expiry, freed uint32) (n int64) {
	for _, s := range sessions {
		if s.Until >= freed {
			n += int64(s.Stamped) - int64(s.Consumed)
		}
	}
	return n
}

// TestACoarserGridNeverCountsLess: after any frees, the seconds of a sum stored on a coarser grid count at least as
// many sessions as the seconds themselves, and the same number in the end.
func TestACoarserGridNeverCountsLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var exact []wire.Expiry
		until := uint32(1_622_133_200)
		for range rapid.IntRange(0, 60).Draw(t, "seconds") {
			until += uint32(rapid.IntRange(1, 9).Draw(t, "gap"))
			exact = append(exact, wire.Expiry{
				Until: until, Stamped: uint64(rapid.IntRange(0, 5).Draw(t, "stamped")),
				Consumed: uint64(rapid.IntRange(0, 5).Draw(t, "consumed")),
			})
		}
		grid := uint32(1) << rapid.IntRange(1, 6).Draw(t, "grid")
		coarse := coarsen(exact, grid)
		for i, s := range coarse {
			if i > 0 && s.Until <= coarse[i-1].Until {
				t.Fatalf("second %d after %d", s.Until, coarse[i-1].Until)
			}
		}
		if a, b := atLeast(exact, 0), atLeast(coarse, 0); a != b {
			t.Fatalf("%d sessions are %d on a grid of %d s", a, b, grid)
		}
		for freed := uint32(1_622_133_100); freed < until+100; freed++ {
			if a, b := atLeast(exact, freed), atLeast(coarse, freed); b < a {
				t.Fatalf("from %d on %d sessions count, on a grid of %d s %d", freed, a, grid, b)
			}
		}
	})
}

// comers are edges that come and go, at one aggregator after the other.
type comers struct {
	t    *testing.T
	now  fleettime.Mono
	term uint64
	agg  *Aggregator
	seq  uint64
	rng  *rand.Rand
	room room.ID
	cap  bool
	old  bool // nobody says that the data centre is new

	own     wire.Durable
	ownTerm uint64
}

const comersDay = fleettime.Time(1_622_133_200_000)

func newComers(t *testing.T) *comers {
	return &comers{
		t: t, now: fleettime.Mono(time.Hour), rng: rand.New(rand.NewPCG(1, 1)), room: room.IDOf("sale"), cap: true,
	}
}

func (c *comers) time() fleettime.Time { return comersDay.Add(c.now.Sub(fleettime.Mono(time.Hour))) }

func (c *comers) lead(stored wire.Durable) {
	c.term++
	c.agg = New(c.now, Config{
		DC: "dublin", Strict: true, Term: wire.Term{N: c.term, Nonce: c.term}, Params: wire.DefaultParams(),
		Bootstrap: !c.old, CompactAbove: 1,
		Own: c.own, OwnTerm: c.ownTerm,
	}, stored)
	c.agg.SetLease(fleettime.Never)
	c.agg.SetRooms(c.now, []ledger.RoomConfig{{
		ID: c.room, Total: 1000, Rate: 1000, Session: time.Minute, Cap: c.cap, LostWait: 15 * time.Minute,
	}})
	c.step(0)
}

// step advances time by d and completes pending writes.
func (c *comers) step(d time.Duration) {
	c.now = c.now.Add(d)
	c.agg.advance(c.now)
	c.agg.Grants(c.now)
	if d, ok := c.agg.Unsaved(); ok {
		c.agg.Saved(c.now, d.Version)
	}
}

func (c *comers) say(name string, instance uint64, m wire.Report) {
	c.seq++
	m.From, m.Instance, m.LeaseEpoch, m.Seq, m.Parts = name, instance, 1, c.seq, 1
	m.Seen, m.Sent, m.AsOf = wire.Term{N: c.term, Nonce: c.term}, c.now, c.time()
	c.agg.Observe(c.now, m)
}

// rooms is the report of the room with some sessions.
func (c *comers) rooms(s ...wire.Expiry) []wire.RoomReport {
	return []wire.RoomReport{{Room: c.room, Sessions: s}}
}

// sessions draws an edge's counts of one minute.
func (c *comers) sessions() []wire.Expiry {
	var out []wire.Expiry
	for s := range int64(20) {
		e := wire.Expiry{Until: uint32(c.time().Second() + 30 + 2*s), Stamped: c.rng.Uint64N(4)}
		e.Consumed = c.rng.Uint64N(3)
		out = append(out, e)
	}
	return out
}

// visit has an edge join, count and leave; it returns its report at the join.
func (c *comers) visit(name string, instance uint64) {
	c.say(name, instance, wire.Report{Join: true})
	c.step(time.Second)
	c.say(name, instance, wire.Report{Final: true, Bye: true, Rooms: c.rooms(c.sessions()...)})
	c.step(time.Second)
}

// TestGoneEdgesAreSummed: edges that come under ever new names and go leave one entry on
// the roster, and every session counts as before, second by second, also at a successor.
func TestGoneEdgesAreSummed(t *testing.T) {
	for seed := range uint64(20) {
		c := &comers{t: t, now: fleettime.Mono(time.Hour), rng: rand.New(rand.NewPCG(seed, 1)), room: room.IDOf("sale")}
		c.lead(wire.Durable{})
		c.say("stays", 1, wire.Report{Join: true}) // or nobody would be heard
		var want []wire.Expiry
		for i := range uint64(12) {
			c.visit(fmt.Sprintf("pod-%d", i), 100+i)
			c.say("stays", 1, wire.Report{})
		}
		for _, e := range c.agg.roster.edges {
			if acc := e.account(c.room); acc != nil {
				want = addSessions(want, acc.sessions.expiries, c.agg.rooms.byID[c.room].counts.freed)
			}
		}
		before := c.agg.Ledger(c.room).Active
		for range 6 {
			c.say("stays", 1, wire.Report{})
			c.step(time.Second)
		}
		if n := len(c.agg.stored.durable.Roster); n > 2 {
			t.Fatalf("seed %d: %d entries on the roster, want who stays and the sum of all others", seed, n)
		}
		c.say("pod-3", 103, wire.Report{Join: true}) // under way for long
		c.step(0)
		if c.agg.roster.find("pod-3", 103) != nil {
			t.Fatalf("seed %d: a late report of an edge that is gone is taken for a new one", seed)
		}
		if got := c.agg.Ledger(c.room).Active; got != before && before > 0 &&
			atLeast(want, uint32(c.agg.rooms.byID[c.room].counts.freed)) != got {
			t.Fatalf("seed %d: %d sessions count, before they were summed %d", seed, got, before)
		}
		c.lead(c.agg.stored.durable.Clone())
		for freed := uint32(c.time().Second()); freed < uint32(c.time().Second())+100; freed++ {
			var sum []wire.Expiry
			for _, e := range c.agg.roster.edges {
				if acc := e.account(c.room); acc != nil {
					sum = addSessions(sum, acc.sessions.expiries, 0)
				}
			}
			if got, want := atLeast(sum, freed), atLeast(want, freed); got != want {
				t.Fatalf("seed %d: the successor counts %d sessions from %d on, want %d", seed, got, freed, want)
			}
		}
	}
}

// TestRule4APredecessorFreed: tickets that were renewed away are still on the roster after their edges dropped the
// second, as their aggregator had freed it. A successor that has freed nothing yet counts no session less for that.
func TestRule4APredecessorFreed(t *testing.T) {
	c := newComers(t)
	c.lead(wire.Durable{})
	first := uint32(c.time().Second()) + 20
	c.say("stamps", 1, wire.Report{Join: true})
	c.say("renews", 1, wire.Report{Join: true})
	c.step(time.Second)
	mine := []wire.Expiry{{Until: first, Stamped: 2}, {Until: first + 40, Stamped: 1}}
	c.say("stamps", 1, wire.Report{Rooms: c.rooms(mine...)})
	c.say("renews", 1, wire.Report{
		Final: true, Bye: true,
		Rooms: c.rooms(wire.Expiry{Until: first, Consumed: 2}, wire.Expiry{Until: first + 40, Stamped: 2}),
	})
	for range 30 {
		c.say("stamps", 1, wire.Report{Rooms: c.rooms(mine...)})
		c.step(time.Second)
	}
	if got := c.agg.Ledger(c.room); got.Active != 3 || got.Freed <= int64(first) {
		t.Fatalf("%d sessions, freed up to %d: want 3, and what was renewed away to be freed", got.Active,
			got.Freed-int64(first))
	}
	c.lead(c.agg.stored.durable.Clone())
	c.say("stamps", 1, wire.Report{Join: true, Rooms: c.rooms(mine[1:]...)})
	// One that is new and knows no time yet: nothing is freed until it does.
	c.agg.Observe(c.now, wire.Report{
		From: "new", Instance: 1, LeaseEpoch: 1, Join: true, Seen: wire.Term{N: c.term, Nonce: c.term},
		AsOfBound: fleettime.Unsynced, Seq: 1, Parts: 1, Sent: c.now,
	})
	c.step(0)
	if got := c.agg.Ledger(c.room).Active; c.agg.roster.recovering() || got != 3 {
		t.Errorf("a successor that waits for nobody (%v) counts %d sessions, want 3", !c.agg.roster.recovering(), got)
	}
	for range 3 {
		c.agg.clock.Set(c.now, c.time(), 0)
		c.say("stamps", 1, wire.Report{})
		c.say("new", 1, wire.Report{})
		c.step(time.Second)
	}
	if got := c.agg.Ledger(c.room); got.Active != 3 || got.Freed < c.agg.rooms.passed {
		t.Errorf("%d sessions, freed up to %d of %d: want 3, and its own border", got.Active, got.Freed, c.agg.rooms.passed)
	}
}

// TestASilentEdgeMayRenewWhatIsSummed: under serve an edge that nobody hears may renew the
// sessions of the process before it, also where they are summed with others'.
func TestASilentEdgeMayRenewWhatIsSummed(t *testing.T) {
	c := &comers{t: t, now: fleettime.Mono(time.Hour), rng: rand.New(rand.NewPCG(1, 1)), room: room.IDOf("sale")}
	c.lead(wire.Durable{})
	stay := func(d time.Duration) {
		for range d / time.Second {
			c.say("stays", 1, wire.Report{})
			c.step(time.Second)
		}
	}
	c.say("stays", 1, wire.Report{Join: true})
	c.say("edge", 1, wire.Report{Join: true})
	c.step(time.Second)
	life := uint32(c.time().Second()) + 60
	c.say("edge", 1, wire.Report{
		Final: true, Bye: true,
		Rooms: c.rooms(wire.Expiry{Until: life, Stamped: 7}, wire.Expiry{Until: life + 1, Stamped: 1}),
	})
	stay(12 * time.Second)
	if c.agg.roster.find("edge", 1) != nil {
		t.Fatal("who left is not summed")
	}
	c.lead(c.agg.stored.durable.Clone())
	c.say("stays", 1, wire.Report{Join: true})
	c.say("edge", 2, wire.Report{Join: true, Rooms: []wire.RoomReport{{Room: c.room}}})
	stay(90 * time.Second)
	if got := c.agg.Ledger(c.room).Active; got < 8 {
		t.Errorf("%d sessions count, want the 8 that a silent edge may be renewing", got)
	}
}

// TestWaitsGoOnAcrossTakeovers: an edge that never comes back is waited for once, however often the aggregator is
// replaced meanwhile. An edge that had a new lease is waited for again.
func TestWaitsGoOnAcrossTakeovers(t *testing.T) {
	start := func() *comers {
		c := newComers(t)
		c.lead(wire.Durable{})
		for _, name := range []string{"stays", "goes"} {
			c.say(name, 1, wire.Report{Join: true})
		}
		return c
	}
	// until returns how long the next aggregators wait for "goes", each running for a given time.
	until := func(c *comers, each time.Duration) time.Duration {
		begun := c.now
		for c.now.Sub(begun) < 10*time.Minute {
			c.lead(c.agg.stored.durable.Clone())
			c.say("stays", 1, wire.Report{Join: true})
			for range each / time.Second {
				c.agg.clock.Set(c.now, c.time(), 0)
				if !c.agg.roster.recovering() {
					return c.now.Sub(begun)
				}
				c.say("stays", 1, wire.Report{})
				c.step(time.Second)
			}
		}
		t.Fatal("it is waited for, for ever")
		return 0
	}
	calm := until(start(), time.Hour)
	if calm < time.Minute {
		t.Fatalf("%v are waited for sessions of a minute", calm)
	}
	if flapping := until(start(), 5*time.Second); flapping > calm+5*time.Second {
		t.Errorf("with a takeover every 5 s it is waited for %v, want %v as without", flapping, calm)
	}
	c := start()
	c.lead(c.agg.stored.durable.Clone())
	for range 4 {
		c.agg.clock.Set(c.now, c.time(), 0)
		c.say("stays", 1, wire.Report{Join: true})
		c.step(time.Second)
	}
	if e := c.agg.roster.find("goes", 1); e.until == 0 {
		t.Fatal("nobody knows until when it is to be waited for")
	}
	for range 40 { // it comes back, and stamps tickets
		c.say("goes", 1, wire.Report{Join: true})
		c.say("stays", 1, wire.Report{})
		c.step(time.Second)
	}
	if again := until(c, 5*time.Second); again < calm-5*time.Second {
		t.Errorf("an edge that had a lease until a moment ago is waited for %v, want %v", again, calm)
	}
}

// TestOwnMemoryOverAnEmptyStore: an aggregator with an empty store goes on with the state that it stored when it led
// last, once every edge that may have had a lease reports that it followed nobody else. An edge that is missing or
// followed a rival leaves an unknown past.
func TestOwnMemoryOverAnEmptyStore(t *testing.T) {
	for _, tc := range []struct {
		name  string
		knows bool // in time
		heard func(c *comers)
	}{
		{"everybody followed us last", true, func(c *comers) { c.witness("one", 1, 1); c.witness("two", 1, 1) }},
		{"an edge is missing", false, func(c *comers) { c.witness("one", 1, 1) }},
		{"an edge followed a rival", false, func(c *comers) { c.witness("one", 1, 1); c.witness("two", 1, 2) }},
		{"an edge that nobody knows followed a rival", false, func(c *comers) {
			c.witness("one", 1, 1)
			c.witness("two", 1, 1)
			c.witness("three", 1, 2)
		}},
		{"another process of the name", false, func(c *comers) { c.witness("one", 1, 1); c.witness("two", 9, 1) }},
	} {
		c := newComers(t)
		c.lead(wire.Durable{})
		for _, name := range []string{"one", "two"} {
			c.say(name, 1, wire.Report{Join: true})
			c.step(time.Second)
		}
		c.own, c.ownTerm, c.term, c.old = c.agg.Durable(), 1, 5, true // a rival led under 2
		c.lead(wire.Durable{})
		if !c.agg.roster.recovering() {
			t.Errorf("%s: nothing is waited for at first", tc.name)
		}
		tc.heard(c)
		for range 10 {
			c.agg.clock.Set(c.now, c.time(), 0)
			for _, e := range []string{"one", "two"} {
				c.say(e, 1, wire.Report{Join: true})
			}
			c.step(time.Second)
		}
		if got := !c.agg.roster.recovering(); got != tc.knows {
			t.Errorf("%s: it knows what there was: %v, want %v", tc.name, got, tc.knows)
		}
		if tc.knows { // and learns better later
			c.witness("four", 1, 3)
			if c.step(time.Second); !c.agg.roster.recovering() {
				t.Errorf("%s: a rival had led, and nothing is waited for", tc.name)
			}
		}
	}
}

// TestWhoWasReplacedForgetsNobody: a command to an aggregator with a lapsed lease would not reach its successor.
func TestWhoWasReplacedForgetsNobody(t *testing.T) {
	c := &comers{t: t, now: fleettime.Mono(time.Hour), rng: rand.New(rand.NewPCG(1, 1)), room: room.IDOf("sale")}
	c.lead(wire.Durable{})
	c.say("stays", 1, wire.Report{Join: true})
	c.say("goes", 1, wire.Report{Join: true, Rooms: c.rooms(c.sessions()...)})
	for range 10 {
		c.agg.clock.Set(c.now, c.time(), 0)
		c.say("stays", 1, wire.Report{})
		c.step(time.Second)
	}
	c.agg.SetLease(c.now)
	if _, err := c.agg.Forget(c.now, "goes", 0, false); !errors.Is(err, ErrReplaced) {
		t.Errorf("%v, want %v", err, ErrReplaced)
	}
	c.agg.SetLease(fleettime.Never)
	if _, err := c.agg.Forget(c.now, "goes", 0, false); err != nil {
		t.Error(err)
	}
}

// TestNobodyIsForgottenWithinALease: a new aggregator knows no better than its predecessor when an edge was last heard.
func TestNobodyIsForgottenWithinALease(t *testing.T) {
	c := &comers{t: t, now: fleettime.Mono(time.Hour), rng: rand.New(rand.NewPCG(1, 1)), room: room.IDOf("sale")}
	c.lead(wire.Durable{Version: 1, Life: 66, Roster: []wire.RosterEntry{{Edge: "lives", Instance: 1}}})
	forget := func(name string) error {
		c.agg.clock.Set(c.now, c.time(), 0)
		_, err := c.agg.Forget(c.now, name, 0, false)
		return err
	}
	for _, name := range []string{"lives", ""} {
		if err := forget(name); !errors.Is(err, ErrHeard) {
			t.Errorf("%q at once: %v", name, err)
		}
	}
	c.step(c.agg.lifecycle.lapseAfter() + time.Second)
	if err := forget("lives"); err != nil {
		t.Error(err)
	}
}

// TestNobodyWaitsForWhatIsOver: an operator said that the sessions of all edges that a lost store listed have ended. A
// successor does not wait for them either.
func TestNobodyWaitsForWhatIsOver(t *testing.T) {
	for _, wait := range []time.Duration{10 * time.Second, 5 * time.Minute} { // awaited, and with reserved sessions
		c := newComers(t)
		c.cap, c.old = false, true
		c.lead(wire.Durable{})
		for end := c.now.Add(wait); c.now < end; c.step(time.Second) {
			c.agg.clock.Set(c.now, c.time(), 0)
			c.say("stays", 1, wire.Report{Join: c.seq == 0})
		}
		c.agg.up.blank = false
		c.step(time.Second)
		if !c.agg.roster.recovering() && wait < time.Minute {
			t.Error("nothing is waited for")
		}
		c.agg.clock.Set(c.now, c.time(), 0)
		if _, err := c.agg.Forget(c.now, "", 0, true); err != nil {
			t.Fatal(err)
		}
		c.step(time.Second)
		stored := c.agg.Durable()
		for _, r := range stored.Roster {
			if r.Edge == wire.UnknownPast && !r.Left {
				t.Errorf("after %v a successor would wait for %+v", wait, r)
			}
		}
		if n := c.agg.Ledger(c.room).Reserved; c.agg.roster.recovering() || n != 0 {
			t.Errorf("after %v: it waits (%v), and %d sessions are reserved", wait, c.agg.roster.recovering(), n)
		}
	}
}

// TestASumCountsWhereNothingWasCounted: sessions reserved for edges that left still count after they are summed, also
// in a room without any reported session.
func TestASumCountsWhereNothingWasCounted(t *testing.T) {
	c := &comers{t: t, now: fleettime.Mono(time.Hour), rng: rand.New(rand.NewPCG(1, 1)), room: room.IDOf("sale")}
	other, now := room.IDOf("other"), c.time().Second()
	c.lead(wire.Durable{Version: 1, Life: 66, Roster: []wire.RosterEntry{
		{Edge: "waits", Instance: 1}, // holds up the watermark
		{Edge: "left", Instance: 1, Dead: true, Left: true, Rooms: []wire.RosterRoom{
			{Room: c.room, Sessions: []wire.Expiry{
				{Until: uint32(now) + 50, Stamped: 1}, {Until: uint32(now) + 51, Stamped: 1},
			}},
			{Room: other, Reserved: 5, ReservedUntil: now + 90},
		}},
	}})
	c.say("stays", 1, wire.Report{Join: true})
	summed := false
	for range 80 {
		c.agg.clock.Set(c.now, c.time(), 0)
		c.say("stays", 1, wire.Report{})
		c.step(time.Second)
		summed = summed || c.agg.roster.find("left", 1) == nil
		if got := c.agg.Ledger(other).Active; got != 5 {
			t.Fatalf("%v after the start %d sessions count, want 5 (summed: %v)", c.now.Sub(fleettime.Mono(time.Hour)), got,
				summed)
		}
	}
	if !summed {
		t.Error("nothing was summed")
	}
}

// TestALateWordOutlivesTheAggregator: sessions of an edge that was given up and is heard again count at the successor
// too.
func TestALateWordOutlivesTheAggregator(t *testing.T) {
	c := &comers{t: t, now: fleettime.Mono(time.Hour), rng: rand.New(rand.NewPCG(1, 1)), room: room.IDOf("sale")}
	c.lead(wire.Durable{})
	c.say("stays", 1, wire.Report{Join: true})
	c.step(time.Second)
	for range 3 { // sent until it begins again
		c.say("late", 1, wire.Report{Rooms: c.rooms(wire.Expiry{Until: uint32(c.time().Second()) + 60, Stamped: 7})})
		c.step(0)
	}
	before := c.agg.Ledger(c.room).Active
	c.lead(c.agg.stored.durable.Clone())
	if got := c.agg.Ledger(c.room).Active; before != 7 || got != before {
		t.Errorf("%d sessions count, %d before the takeover, want 7", got, before)
	}
}

// TestAGuessThatWasCorrectedIsNotWaitedBy: a wait that began with a guessed time begins anew with fleet time, also at
// a successor.
func TestAGuessThatWasCorrectedIsNotWaitedBy(t *testing.T) {
	c := newComers(t)
	c.lead(wire.Durable{})
	for _, name := range []string{"stays", "goes"} {
		c.say(name, 1, wire.Report{Join: true})
	}
	c.step(time.Second)
	c.lead(c.agg.stored.durable.Clone())
	c.agg.clock.Set(c.now, c.time().Add(-10*time.Minute), 0)
	for range 5 {
		c.step(time.Second)
	}
	if c.agg.roster.find("goes", 1).leased == 0 {
		t.Fatal("nobody knows until when it is to be waited for")
	}
	c.agg.lifecycle.silence.guessCorrected()
	c.lead(c.agg.stored.durable.Clone())
	c.agg.clock.Set(c.now, c.time(), 0)
	for i := range 10 {
		c.step(time.Second)
		if !c.agg.roster.recovering() {
			t.Fatalf("%d s after the time was corrected an edge is not waited for any more", i)
		}
	}
}

// TestANewDataCentre: an aggregator of a data centre declared new waits for nothing, also if it led briefly before
// and stored nothing, until an edge appears that followed another one.
func TestANewDataCentre(t *testing.T) {
	for _, flaps := range []int{0, 1, 3} {
		c := &comers{t: t, now: fleettime.Mono(time.Hour), rng: rand.New(rand.NewPCG(1, 1)), room: room.IDOf("sale")}
		c.term = 3
		c.lead(wire.Durable{})
		for range flaps {
			c.own, c.ownTerm, c.term = c.agg.Durable(), c.term, c.term+3
			c.lead(wire.Durable{})
		}
		if flaps > 0 {
			c.witness("one", 1, c.ownTerm) // it promised, and got no further message
		}
		c.say("one", 1, wire.Report{Join: true})
		c.agg.clock.Set(c.now, c.time(), 0)
		if c.step(time.Second); c.agg.roster.recovering() {
			t.Errorf("after %d terms in which nothing was stored, something is waited for", flaps)
		}
		c.witness("two", 1, c.ownTerm+1)
		if c.step(time.Second); !c.agg.roster.recovering() {
			t.Errorf("after %d terms, an edge followed somebody in a data centre that was said to be new, and nothing is "+
				"waited for", flaps)
		}
		if d, _ := c.agg.Unsaved(); d.Version > 0 {
			t.Error("the unknown past is not stored")
		}
		if n := c.agg.Edges().Unknown; n != 1 {
			t.Errorf("%d alarms, want 1", n)
		}
	}
}

// TestWhoWasGivenUpIsNotSummed: an edge that nobody heard after a takeover said no goodbye. If it is heard later, its
// sessions count at once, whatever else was summed.
func TestWhoWasGivenUpIsNotSummed(t *testing.T) {
	c := &comers{t: t, now: fleettime.Mono(time.Hour), rng: rand.New(rand.NewPCG(1, 1)), room: room.IDOf("sale")}
	c.lead(wire.Durable{})
	c.say("stays", 1, wire.Report{Join: true})
	c.say("cut", 1, wire.Report{Join: true})
	c.step(time.Second)
	c.lead(c.agg.stored.durable.Clone())
	c.agg.up.blank = false // global sent the allocation
	c.agg.rooms.byID[c.room].loan.permits.Sessions.Granted = 100
	c.say("stays", 1, wire.Report{Join: true})
	stay := func(d time.Duration) {
		for range d / time.Second {
			c.agg.clock.Set(c.now, c.time(), 0)
			c.say("stays", 1, wire.Report{})
			c.step(time.Second)
		}
	}
	stay(16*time.Minute + 30*time.Second) // a session, and lost_after
	for i := range uint64(3) {
		c.visit("pod", 100+i)
		stay(2 * time.Second)
	}
	stay(10 * time.Second)
	if c.agg.roster.find("pod", 100) != nil || c.agg.roster.find("pod", 102) != nil {
		t.Fatal("who left is not summed")
	}
	before := c.agg.rooms.byID[c.room].counts.sum
	c.say("cut", 1, wire.Report{Join: true, Rooms: c.rooms(wire.Expiry{
		Until: uint32(c.time().Second()) + 60, Stamped: 7,
	})})
	if got := c.agg.rooms.byID[c.room].counts.sum; got != before+7 {
		t.Errorf("%d sessions are counted, want %d", got, before+7)
	}
}

// witness has an edge report the aggregator that it followed.
func (c *comers) witness(name string, instance, followed uint64) {
	c.agg.Observe(c.now, wire.Report{
		From: name, Instance: instance, LeaseEpoch: 1, Seq: 1, Parts: 1, Seen: wire.Term{N: followed, Nonce: followed},
		Sent: c.now, AsOf: c.time(),
	})
}

// TestEdgesChangeAsTheTableSays: a transition that the table of edgeState does not have is a
// fault.
func TestEdgesChangeAsTheTableSays(t *testing.T) {
	for from, to := range map[edgeState]edgeState{
		awaiting: alive, joining: lost, alive: awaiting, dead: alive, lost: dead, left: alive,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("an edge that is %s became %s", edgeStates[from], edgeStates[to])
				}
			}()
			(&edge{name: "d1", state: from, strict: true}).become(to)
		}()
	}
}
