package root_test

import (
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
)

// lender is an allocator with two data centres, dublin and nairobi, that report as a test says.
type lender struct {
	t     *testing.T
	root  *root.Allocator
	now   fleettime.Mono
	wall  fleettime.Time
	seq   map[string]uint64
	acked map[string]uint64
	last  map[string]wire.RoomGrant
	term  wire.Term
	rooms []ledger.RoomConfig
	view  *wire.View // the newest in any answer

	back, rateBack map[string]uint64 // returned permits
}

var sale = room.IDOf("sale")

func newLender(t *testing.T, wall string, total, rate uint64) *lender {
	at, err := time.Parse("2006-01-02 15:04:05", "2021-05-27 "+wall)
	testkit.NoError(t, err)
	l := &lender{
		t: t, now: fleettime.Mono(time.Hour), wall: fleettime.TimeOf(at), seq: map[string]uint64{},
		acked: map[string]uint64{}, last: map[string]wire.RoomGrant{}, back: map[string]uint64{},
		rateBack: map[string]uint64{},
	}
	l.rooms = []ledger.RoomConfig{{ID: sale, Total: total, Rate: rate, Session: 5 * time.Minute}}
	l.lead(1)
	return l
}

// lead has a leader begin that nobody has promised anything yet; the first one knows that the
// fleet has just begun.
func (l *lender) lead(term uint64) {
	l.term = wire.Term{N: term, Nonce: 1}
	l.root = root.New(l.now, root.Config{
		Term: l.term, Centres: []string{"nairobi", "dublin"}, Params: wire.DefaultParams(), Bootstrap: term == 1,
	})
	l.root.SetLease(fleettime.Never)
	l.root.SetRooms(l.now, l.rooms)
}

// kept returns the permits of a grant as a data centre reports them.
func kept(g *wire.RoomGrant) wire.Permits {
	return wire.Permits{
		Sessions: wire.Allocation{Granted: g.Permits.Sessions.Granted},
		Rate:     wire.Allocation{Granted: g.Permits.Rate.Granted},
	}
}

// report sends a data centre's report: it holds its grants, all idle except the active ones.
func (l *lender) report(dc string, want uint64, arrivals map[string]uint64) {
	l.seq[dc]++
	g := l.last[dc]
	r := wire.RoomReport{
		Room: sale, Permits: kept(&g), Idle: g.Permits.Sessions.Granted, RateIdle: g.Permits.Rate.Granted, Want: want,
	}
	for clock, n := range arrivals {
		at, err := time.Parse("2006-01-02 15:04", "2021-05-27 "+clock)
		testkit.NoError(l.t, err)
		r.Arrivals = append(r.Arrivals, wire.Minute{Start: fleettime.TimeOf(at), N: n})
	}
	l.root.Observe(l.now, wire.Report{
		From: dc, Instance: 1, Seq: l.seq[dc], Parts: 1, Sent: l.now, Seen: l.term, Acked: l.acked[dc],
		Join: l.seq[dc] == 1, Rooms: []wire.RoomReport{r},
	})
}

// grants computes the allocator's answers.
func (l *lender) grants() {
	l.root.SetTime(l.now, l.wall)
	for _, g := range l.root.Grants(l.now) {
		l.acked[g.To] = g.Seq
		for _, r := range g.Rooms {
			l.last[g.To] = r
			if r.View != nil {
				l.view = r.View
			}
		}
	}
	l.now, l.wall = l.now.Add(time.Second), l.wall.Add(time.Second)
}

func (l *lender) expect(what string, dc string, granted, keep uint64) {
	l.t.Helper()
	if g := l.last[dc]; g.Permits.Sessions.Granted != granted || g.Permits.Sessions.Keep != keep {
		l.t.Errorf("%s: %s was granted %d and is to keep %d idle, want %d and %d", what, dc, g.Permits.Sessions.Granted,
			g.Permits.Sessions.Keep, granted, keep)
	}
}

// TestPermitsLieWhereTwoMinutesAgoSaysTheyAreWanted is computed by hand, from the reports of the data centres to the
// answers: a thousand of 1,250 permits are divided, a fifth stays at the root.
func TestPermitsLieWhereTwoMinutesAgoSaysTheyAreWanted(t *testing.T) {
	visitors := map[string]map[string]uint64{
		// Only the minute before the last full one counts; it cannot change any more.
		"dublin":  {"16:31": 50, "16:32": 55, "16:33": 9000},
		"nairobi": {"16:31": 50, "16:32": 45, "16:33": 1, "16:34": 7000},
	}
	for _, tt := range []struct {
		at              string
		dublin, nairobi uint64
	}{{"16:33:20", 500, 500}, {"16:34:05", 550, 450}, {"16:40:00", 500, 500}} {
		l := newLender(t, tt.at, 1250, 1_000_000)
		for dc, minutes := range visitors {
			l.report(dc, 0, minutes)
		}
		l.grants()
		l.expect(tt.at, "dublin", tt.dublin, tt.dublin)
		l.expect(tt.at, "nairobi", tt.nairobi, tt.nairobi)
		if free := l.root.Ledger(sale).Free; free != 250 {
			t.Errorf("%s: %d stay at the root, want 250", tt.at, free)
		}
	}
}

// TestTheReserveServesWhoComesWithoutAHistory: a data centre without visitors two minutes ago gets one per cent.
// Sudden demand is served from the root at once, without a recall from another data centre.
func TestTheReserveServesWhoComesWithoutAHistory(t *testing.T) {
	l := newLender(t, "16:34:05", 1000, 1_000_000)
	l.report("dublin", 0, map[string]uint64{"16:32": 100})
	l.report("nairobi", 0, nil)
	l.grants()
	l.expect("at first", "dublin", 792, 792)
	l.expect("at first", "nairobi", 8, 8)
	l.report("nairobi", 150, nil)
	l.report("dublin", 0, map[string]uint64{"16:32": 100})
	l.grants()
	g := l.last["nairobi"]
	if g.Permits.Sessions.Granted < 150 || g.Permits.Sessions.Keep < 150 {
		t.Errorf("150 are wanted, %d were granted and %d are to be kept", g.Permits.Sessions.Granted, g.Permits.Sessions.Keep)
	}
	if free := l.root.Ledger(sale).Free; free < 0 || free > 1000-792-int64(g.Permits.Sessions.Granted) {
		t.Errorf("%d free", free)
	}
}

// TestASilenceIsWaitedForOnce: the permits of a silent data centre are lent again lost_after after it was last heard,
// whoever leads then. A data centre that is heard by the next leader was not silent.
func TestASilenceIsWaitedForOnce(t *testing.T) {
	const lost = 5 * time.Minute
	l := newLender(t, "16:34:05", 1000, 1_000_000)
	l.rooms[0].LostWait = lost
	l.root.SetRooms(l.now, l.rooms)
	reports := func(dcs ...string) {
		for _, dc := range dcs {
			l.report(dc, 0, nil)
		}
		l.grants()
	}
	next := func(term uint64) {
		silences := map[string]time.Duration{}
		for _, c := range l.root.Centres(l.now) {
			silences[c.Name] = c.Heard
		}
		l.lead(term)
		for dc, silent := range silences {
			l.root.RecallSilence(dc, silent)
		}
		l.seq["dublin"], l.seq["nairobi"] = 0, 0 // they join
	}
	reports("dublin", "nairobi")
	reports("dublin", "nairobi")
	lent := l.last["nairobi"].Permits.Sessions.Granted
	if lent == 0 {
		t.Fatal("nothing was lent to nairobi")
	}
	silent := l.now
	var freed time.Duration
	for term := uint64(2); freed == 0 && l.now.Sub(silent) < 2*lost; {
		if l.now.Sub(silent) > time.Duration(term-1)*time.Minute && term < 5 {
			next(term)
			term++
		}
		if reports("dublin"); l.last["dublin"].Permits.Sessions.Granted > 1000-lent {
			freed = l.now.Sub(silent)
		}
	}
	if freed < lost || freed > lost+20*time.Second {
		t.Errorf("with three new leaders the permits are lent again after %v, lost_after is %v", freed, lost)
	}

	next(6)
	reports("dublin", "nairobi")
	for _, c := range l.root.Centres(l.now) {
		if c.Heard > 2*time.Second {
			t.Errorf("%s was heard and has been silent for %v", c.Name, c.Heard)
		}
	}
}

// TestFewPermitsStayAtTheRoot: one message to the root is faster than a recall from another data centre. A data centre
// with demand gets the permit.
func TestFewPermitsStayAtTheRoot(t *testing.T) {
	l := newLender(t, "16:34:05", 7, 60)
	for dc, n := range map[string]uint64{"dublin": 55, "nairobi": 45} {
		l.report(dc, 0, map[string]uint64{"16:32": n})
	}
	l.grants()
	l.expect("nobody wants one", "dublin", 0, 0)
	l.expect("nobody wants one", "nairobi", 0, 0)
	l.report("nairobi", 3, nil)
	l.grants()
	l.expect("three are wanted", "nairobi", 3, 3)
	l.expect("three are wanted elsewhere", "dublin", 0, 0)
	// They are idle; nairobi's idle target is zero, so it returns them itself.
	l.report("nairobi", 0, nil)
	l.grants()
	l.expect("none is wanted any more", "nairobi", 3, 0)
	if free := l.root.Ledger(sale).Free; free != 4 {
		t.Errorf("%d free before they are returned, want 4: a lender never takes back", free)
	}
}

// crowd reports, in the term instance of a data centre's aggregator, a number of waiting visitors that joined in the
// minute before, and a number of active ones.
func (l *lender) crowd(dc string, instance uint64, recovering bool, waiting float64, active uint64) {
	l.seq[dc]++
	g := l.last[dc]
	r := wire.RoomReport{
		Room: sale, Permits: kept(&g), Active: active, RateIdle: g.Permits.Rate.Granted,
		Waiting: estimate.Histogram{{Start: l.wall - 60_000, Width: 1000, N: waiting}},
	}
	l.root.Observe(l.now, wire.Report{
		From: dc, Instance: instance, Seq: l.seq[dc], Parts: 1, Sent: l.now, Seen: l.term, Acked: l.acked[dc],
		Join: l.seq[dc] == 1, Recovering: recovering, Rooms: []wire.RoomReport{r},
	})
}

// answered returns the waiting and the active visitors in the last answers.
func (l *lender) answered() (waiting float64, active uint64) {
	if l.view == nil {
		l.t.Fatal("nothing was reported")
	}
	return l.view.Line.Total(), l.view.Active
}

// TestTheLineIsReportedWhole: a new aggregator knows only the waiting visitors of the edges that it has heard. Until it
// has heard all, or while it hears nothing, the earlier visitors are still reported as waiting, and fade within a
// minute.
func TestTheLineIsReportedWhole(t *testing.T) {
	l := newLender(t, "16:33:20", 40, 6000)
	second := func(nairobi func()) {
		l.crowd("dublin", 1, false, 19, 20)
		nairobi()
		l.grants()
	}
	expect := func(when string, want float64, inside uint64) {
		t.Helper()
		if waiting, active := l.answered(); waiting != want || active != inside {
			t.Errorf("%s: %v are reported to wait and %d to be inside, want %v and %d", when, waiting, active, want, inside)
		}
	}
	for range 5 {
		second(func() { l.crowd("nairobi", 1, false, 20, 20) })
	}
	expect("all are heard", 39, 40)
	l.seq["nairobi"] = 0
	second(func() { l.crowd("nairobi", 2, true, 0, 0) })
	expect("a new aggregator has heard no edge", 39, 40)
	second(func() { l.crowd("nairobi", 2, true, 8, 9) })
	expect("a new aggregator has heard an edge", 39, 40)
	second(func() { l.crowd("nairobi", 2, false, 19, 20) })
	expect("it has heard all", 38, 40)
	for range 29 {
		second(func() {})
	}
	expect("nothing is heard for half a minute", 38, 40)
	for range 16 {
		second(func() {})
	}
	expect("nothing is heard for three quarters of a minute", 28.5, 40)
	for range 20 {
		second(func() {})
	}
	expect("nothing was heard for more than a minute", 19, 40)
}

// TestANewLeaderTellsTheLineOnceItKnows: a leader that has heard one data centre of two does not publish that one's
// line as the room's, for a limited time.
func TestANewLeaderTellsTheLineOnceItKnows(t *testing.T) {
	for _, comes := range []bool{true, false} {
		l := newLender(t, "16:33:20", 40, 6000)
		l.lead(2)
		l.crowd("dublin", 1, false, 19, 20)
		l.grants()
		if l.crowd("dublin", 1, false, 19, 20); comes {
			l.crowd("nairobi", 1, false, 20, 20)
		}
		if l.view != nil {
			t.Fatalf("%v are reported to wait when one data centre has been heard", l.view.Line.Total())
		}
		want := 39.0
		for range 3 {
			l.grants()
			if l.crowd("dublin", 1, false, 19, 20); comes {
				l.crowd("nairobi", 1, false, 20, 20)
			} else {
				want = 19
			}
		}
		if waiting, _ := l.answered(); waiting != want {
			t.Errorf("the other comes: %v; %v are reported to wait, want %v", comes, waiting, want)
		}
	}
}
