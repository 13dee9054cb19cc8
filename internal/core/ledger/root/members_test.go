package root_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
)

// roster is a coordinator, with data centres that hold the permits they report.
type roster struct {
	t       *testing.T
	root    *root.Allocator
	term    wire.Term
	now     fleettime.Mono
	centres map[string]*member
}

// member is a data centre as its coordinator hears it.
type member struct {
	name                string
	clusterID, instance uint64
	blank               bool
	gen, seq            uint64
	acked               uint64
	granted             uint64
	returned            uint64
	rate                uint64
	rateBack            uint64
	active              uint64
	movers              uint64
	keep                uint64
	knows               uint64
	standing            wire.Standing
	members             uint64 // version of the list
	heard               bool
	joined              bool
	cut                 bool
	keepsBack           bool // keeps idle permits, for now
	reckons             bool // its ledger is reconstructed
	confirmed           bool // by the last answer

	moves     bool            // it reads moves
	transfers []wire.Transfer // its sessions that left

	membership, named wire.Membership // under which it was adopted, and that of the last answer
	older             bool            // of a release that names no memberships
}

const rosterTotal = 120

func newRoster(t *testing.T, n uint64, bootstrap bool, m ledger.Members) *roster {
	r := &roster{t: t, now: fleettime.Mono(time.Hour), centres: map[string]*member{}}
	r.lead(n, bootstrap, m)
	return r
}

// lead starts a coordinator with a new term.
func (r *roster) lead(n uint64, bootstrap bool, m ledger.Members) {
	r.term = wire.Term{N: n, Nonce: n}
	r.root = root.New(r.now, root.Config{Term: r.term, Params: wire.DefaultParams(), Bootstrap: bootstrap})
	r.root.SetMembers(r.now, m)
	r.root.SetLease(fleettime.Never)
	r.root.SetRooms(r.now, []ledger.RoomConfig{{
		ID: sale, Total: rosterTotal, Rate: rosterTotal, Session: time.Minute, LostWait: 15 * time.Minute,
	}})
	for _, c := range r.centres {
		c.joined, c.acked = false, 0
	}
}

func (r *roster) add(names ...string) {
	for _, name := range names {
		r.centres[name] = &member{name: name, instance: 1}
	}
}

// exchange has every data centre that is not cut off report and get the answer, n times.
func (r *roster) exchange(n int) {
	for range n {
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range r.centres {
				if !yield(name) {
					return
				}
			}
		}) {
			if c := r.centres[name]; !c.cut {
				c.report(r)
			}
		}
		r.root.SetTime(r.now, fleettime.TimeOf(time.Date(2021, 5, 27, 16, 0, 0, 0, time.UTC)).Add(r.now.Sub(0)))
		for _, g := range r.root.Grants(r.now) {
			for _, c := range r.centres {
				if c.name == g.To && c.instance == g.Instance && !c.cut &&
					(g.ClusterID == 0 || c.clusterID == 0 || c.clusterID == g.ClusterID) {
					c.apply(g)
				}
			}
		}
		r.now = r.now.Add(500 * time.Millisecond)
	}
}

func (c *member) report(r *roster) {
	c.seq++
	free := int64(c.granted) - int64(c.returned) - int64(c.active)
	if c.membership == 0 || free >= 0 {
		c.membership = max(c.membership, c.named)
	}
	if free > int64(c.keep) && !c.keepsBack {
		c.returned, free = c.returned+uint64(free)-c.keep, int64(c.keep)
	}
	if c.keep == 0 && !c.keepsBack {
		c.rateBack = c.rate
	}
	room := wire.RoomReport{
		Room: sale, Gen: c.gen,
		Permits: wire.Permits{
			Sessions: wire.Allocation{Granted: c.granted, Returned: c.returned},
			Rate:     wire.Allocation{Granted: c.rate, Returned: c.rateBack},
		},
		Idle: uint64(max(0, free)), Active: c.active,
		RateIdle: c.rate - c.rateBack, Want: 20, Movers: c.movers, Reconstructed: c.reckons,
	}
	if c.membership != 0 {
		room.Uncovered.Sessions = max(0, -free)
	}
	reads := wire.Forms(0)
	if room.Transfers = c.transfers; c.moves {
		reads = wire.Moves
	}
	r.root.Observe(r.now, wire.Report{
		From: c.name, Instance: c.instance, ClusterID: c.clusterID, Blank: c.blank, Seq: c.seq, Parts: 1, Sent: r.now,
		Seen: r.term, Acked: c.acked, Join: !c.joined, Members: c.knows, Membership: c.membership,
		Reads: reads, Rooms: []wire.RoomReport{room},
	})
}

func (c *member) apply(g wire.Grant) {
	c.acked, c.heard, c.standing, c.members = g.Seq, true, g.Standing, g.Members
	if g.Handshake != wire.Adopted {
		return
	}
	c.joined, c.blank = true, c.blank && !g.Baseline
	if !c.older {
		c.named = g.Membership
	}
	for _, room := range g.Rooms {
		if room.Gen > c.gen {
			c.gen, c.granted, c.returned, c.rate, c.rateBack = room.Gen, 0, 0, 0, 0
		}
		c.confirmed = room.Confirmed
		sessions, rate := &room.Permits.Sessions, &room.Permits.Rate
		c.granted, c.rate, c.keep = max(c.granted, sessions.Granted), max(c.rate, rate.Granted), sessions.Keep
	}
}

// held returns the permits of all data centres of a name by the coordinator's ledger; -1 for none.
func (r *roster) held(name string) int64 {
	sum, known := int64(0), false
	for _, c := range r.root.Ledger(sale).Centres {
		if c.Name == name {
			sum, known = sum+c.Held, true
		}
	}
	if !known {
		return -1
	}
	return sum
}

func founding(names ...string) ledger.Members {
	m := ledger.Members{Version: 1}
	for _, name := range names {
		m.List = append(m.List, ledger.Member{Name: name})
	}
	return m
}

func with(m ledger.Members, version uint64, more ...ledger.Member) ledger.Members {
	return ledger.Members{Version: version, List: append(slices.Clone(m.List), more...)}
}

// A coordinator with an older list than a data centre's lends nothing, and calls no ledgers complete, until its own
// is as new.
func TestRule9AnOlderListLendsNothing(t *testing.T) {
	old := founding("dublin", "nairobi")
	r := newRoster(t, 2, false, old)
	r.add("dublin", "nairobi")
	r.centres["dublin"].knows, r.centres["nairobi"].knows = 2, 1
	r.exchange(4)
	if l := r.root.Ledger(sale); l.Complete || l.Free > 0 || r.held("dublin")+r.held("nairobi") != 0 {
		t.Fatalf("lends by an older list: %+v", l)
	}
	if c := r.root.Census(r.now); c.Newest != 2 || c.By != "dublin" {
		t.Errorf("version %d, reported by %s", c.Newest, c.By)
	}
	r.root.SetMembers(r.now, with(old, 2, ledger.Member{Name: "lima", Since: 2}))
	r.add("lima")
	r.centres["lima"].granted = 40 // of a coordinator before
	r.centres["lima"].active = 40
	r.exchange(4)
	if l := r.root.Ledger(sale); !l.Complete || l.Free+r.held("dublin")+r.held("nairobi") != rosterTotal-40 {
		t.Fatalf("with the newer list and its third data centre: %+v", l)
	}
}

// If everything was lent by a list that turns out to be older, each data centre keeps its allocation, and visitors go
// on entering there. A limit that is lowered then binds them nevertheless.
func TestRule9AnOlderListLeavesEveryDataCentreWhatItHolds(t *testing.T) {
	old := founding("dublin", "nairobi")
	r := newRoster(t, 2, false, old)
	r.add("dublin", "nairobi")
	for _, c := range r.centres {
		c.knows = 1
	}
	r.exchange(4)
	for _, c := range r.centres {
		c.active = 5
	}
	r.exchange(4)
	held := r.held("dublin") + r.held("nairobi")
	r.centres["dublin"].knows = 2
	r.exchange(4)
	l := r.root.Ledger(sale)
	if now := r.held("dublin") + r.held("nairobi"); held == 0 || now != held || l.Free > 0 || l.Complete {
		t.Errorf("%d held, %d before: %+v", now, held, l)
	}
	if l.View.Cutoff != estimate.Open {
		t.Errorf("nobody may enter: %+v", l.View)
	}
	limit := uint64(held - 10)
	r.root.SetRooms(r.now, []ledger.RoomConfig{{
		ID: sale, Total: limit, Rate: rosterTotal, Session: time.Minute, LostWait: 15 * time.Minute,
	}})
	for _, c := range r.centres {
		c.keepsBack = true
	}
	if r.exchange(2); r.root.Ledger(sale).View.Cutoff == estimate.Open {
		t.Errorf("%d permits are lent, the limit is %d, and visitors are called", held, limit)
	}
	for _, c := range r.centres {
		c.keepsBack = false
	}
	r.exchange(4)
	if now := r.held("dublin") + r.held("nairobi"); now > int64(limit) || now < int64(limit)-2 {
		t.Errorf("of %d permits %d are left, and the limit is %d", held, now, limit)
	}
	if l = r.root.Ledger(sale); l.View.Cutoff != estimate.Open {
		t.Errorf("nobody may enter although the permits fit the limit: %+v", l.View)
	}
}

// A coordinator starts with bootstrap, but a data centre contradicts it: it holds earlier permits, or knows a list. A
// silent one may hold permits as well.
func TestRule9BootstrapIsBelievedUntilSomebodyKnowsBetter(t *testing.T) {
	for name, dublin := range map[string]member{
		"it holds permits":              {granted: 60, active: 50},
		"it held permits, all are back": {granted: 60, returned: 60},
		"it knows a list":               {knows: 5},
	} {
		r := newRoster(t, 2, true, ledger.Members{List: founding("dublin", "nairobi").List})
		r.centres["dublin"] = &dublin
		dublin.name = "dublin"
		held := int64(dublin.granted - dublin.returned)
		r.exchange(2)
		r.root.SetMembers(r.now, with(founding("dublin", "nairobi"), 6))
		r.exchange(4)
		if l := r.root.Ledger(sale); l.Complete || r.held("dublin") > held {
			t.Errorf("%s: nairobi was not heard, and dublin is lent %d: %+v", name, r.held("dublin"), l)
		}
	}
	r := newRoster(t, 2, true, ledger.Members{List: founding("dublin", "nairobi").List})
	r.add("dublin")
	r.exchange(4)
	if !r.root.Ledger(sale).Complete || r.held("dublin") == 0 {
		t.Error("nobody knows better, and the fleet does not begin")
	}
}

// The permits of an unlisted data centre count; it gets no more, and hears why.
func TestRule9WhoIsNotListedCounts(t *testing.T) {
	r := newRoster(t, 2, false, founding("dublin"))
	r.add("lima")
	r.centres["lima"].granted, r.centres["lima"].active = 50, 30
	r.exchange(2) // before the ledger of dublin is known
	r.add("dublin")
	r.exchange(4)
	l := r.root.Ledger(sale)
	if !l.Complete || r.held("lima") != 30 || l.Free+r.held("dublin") != rosterTotal-30 {
		t.Fatalf("%+v", l)
	}
	if c := r.centres["lima"]; c.standing != wire.Unlisted || c.keep != 0 {
		t.Errorf("it learned that it is %v and may keep %d", c.standing, c.keep)
	}
	// It starts anew with an upper bound. The next leader does not ask it, and may lend these permits to others.
	r.centres["lima"].reckons = true
	if r.exchange(2); r.centres["lima"].confirmed {
		t.Error("what a data centre that is not listed reckons that it was lent may be used")
	}
	why := func() stop.Stop {
		all := r.root.Centres(r.now)
		i := slices.IndexFunc(all, func(d root.CentreTotals) bool { return d.Name == "lima" })
		return r.root.CentreStop(r.now, &all[i], stop.Stop{})
	}
	if got := r.root.Census(r.now).Unlisted; !slices.Equal(got, []root.Identity{{Name: "lima"}}) ||
		why().Reason != stop.Unlisted {
		t.Errorf("alarm about %v, %v", got, why())
	}
	r.now = r.now.Add(time.Minute) // it was stopped, as after a drain
	if got := r.root.Census(r.now).Unlisted; len(got) != 0 || !why().OK() {
		t.Errorf("it does not report any more, and there is an alarm: %v, %v", got, why())
	}
}

// TestAReclaimEndsWhatIsKeptBack: what a data centre has in use of voided permits is kept from the others until its permits
// would be taken back for its silence. Under serve its sessions may go on: they are overcommit.
func TestAReclaimEndsWhatIsKeptBack(t *testing.T) {
	r := newRoster(t, 2, false, founding("dublin"))
	r.add("dublin", "lima")
	r.centres["lima"].active, r.centres["lima"].membership = 30, 1
	r.exchange(6)
	r.centres["lima"].cut = true
	for _, silent := range []time.Duration{time.Minute, 15 * time.Minute} {
		r.now = r.now.Add(silent)
		r.exchange(6)
		back, want := silent > time.Minute, int64(rosterTotal)
		if !back {
			want -= 30
		}
		if l := r.root.Ledger(sale); l.Free+r.held("dublin") != want || (l.Overcommit == 30) != back {
			t.Errorf("silent for %v: %d free or held, overcommit %d", silent, l.Free+r.held("dublin"), l.Overcommit)
		}
	}
}

// TestRule9AVoidOutlastsTheList: what a data centre has in use of permits that were voided with an earlier membership is
// kept from the others, although the list does not name it any more, or was rolled back. And while one that was added
// again has not reported what it uses, its void makes no ledger complete.
func TestRule9AVoidOutlastsTheList(t *testing.T) {
	r := newRoster(t, 2, false, founding("dublin"))
	r.add("dublin", "lima")
	r.centres["lima"].active, r.centres["lima"].membership = 30, 1
	r.exchange(6)
	if l := r.root.Ledger(sale); !l.Complete || l.Free+r.held("dublin") != rosterTotal-30 {
		t.Errorf("lima uses 30: %+v", l)
	}
	back := ledger.Members{Version: 3, List: []ledger.Member{{Name: "dublin"}, {Name: "lima", Since: 3}}}
	r.lead(r.term.N+1, false, back)
	r.centres["lima"].blank = true
	r.exchange(4)
	if l := r.root.Ledger(sale); l.Complete || r.held("dublin") > rosterTotal-30 {
		t.Errorf("lima has yet to report what it uses: %+v", l)
	}
}

// An unlisted data centre that is first heard after everything was lent is voided: its remaining sessions are
// reported as possible overcommit.
func TestRule9WhoIsNotListedAndComesLateIsVoided(t *testing.T) {
	r := newRoster(t, 2, false, founding("dublin"))
	r.add("dublin")
	r.exchange(4)
	if r.held("dublin") == 0 {
		t.Fatal("nothing was lent")
	}
	r.add("lima")
	r.centres["lima"].granted, r.centres["lima"].active = 50, 30
	r.exchange(3)
	if l := r.root.Ledger(sale); !l.Complete || r.held("lima") != 0 || l.Overcommit != 30 ||
		l.Free+r.held("dublin") != rosterTotal {
		t.Fatalf("%+v", l)
	}
	// Once it is listed, it begins with nothing, and is lent to like any other.
	r.centres["lima"].active, r.centres["lima"].granted = 0, 0
	r.root.SetMembers(r.now, with(founding("dublin"), 2, ledger.Member{Name: "lima", Since: 2}))
	r.centres["dublin"].knows = 2
	r.exchange(4)
	if l := r.root.Ledger(sale); r.held("lima") == 0 || l.Free+r.held("dublin")+r.held("lima") != rosterTotal {
		t.Fatalf("%+v", l)
	}
}

// A new data centre is lent permits once the others know of it: all that are heard, and at least half of all.
func TestRule9ANewcomerIsLentToOnceTheOthersKnow(t *testing.T) {
	old := founding("dublin", "nairobi", "oslo")
	r := newRoster(t, 2, true, old)
	r.add("dublin", "nairobi", "oslo", "lima")
	r.root.SetMembers(r.now, with(old, 2, ledger.Member{Name: "lima", Since: 2}))
	r.centres["lima"].knows = 2
	steps := []struct {
		what  string
		do    func()
		lends bool
	}{
		{"nobody knows", func() {}, false},
		{"one of three knows", func() { r.centres["dublin"].knows = 2 }, false},
		{
			"two of three know, and the third was heard a moment ago",
			func() { r.centres["nairobi"].knows = 2; r.centres["oslo"].cut = true }, false,
		},
		{"the third has been silent for longer than its lease", func() { r.now = r.now.Add(2 * time.Minute) }, true},
		{"it is heard again, and does not know", func() { r.centres["oslo"].cut = false }, false},
		{"all know", func() { r.centres["oslo"].knows = 2 }, true},
	}
	held := int64(0)
	for _, s := range steps {
		s.do()
		if !s.lends {
			held = r.held("lima")
		}
		r.exchange(3)
		if now := r.held("lima"); s.lends != (now > held) && (s.lends || now > held) {
			t.Fatalf("%s: it holds %d after %d", s.what, now, held)
		}
		if s.lends { // give back idle permits, to see them lent again
			r.centres["lima"].returned = r.centres["lima"].granted
			held = 0
		}
	}
}

// A data centre that drains is lent nothing, and leaves the list when all that it
// held has come back and it knows.
func TestRule9ADrainingDataCentreLeavesWithNothing(t *testing.T) {
	old := founding("dublin", "lima")
	r := newRoster(t, 2, true, old)
	r.add("dublin", "lima")
	r.exchange(4)
	lima := r.centres["lima"]
	lima.active, lima.movers = 3, 1
	drains := ledger.Members{Version: 2, List: []ledger.Member{{Name: "dublin"}, {Name: "lima", Draining: true}}}
	r.root.SetMembers(r.now, drains)
	out := func(what string, want ...string) {
		t.Helper()
		r.exchange(3)
		if got := r.root.Census(r.now).Drained; !slices.Equal(got, want) {
			t.Fatalf("%s: drained are %v, want %v; %+v", what, got, want, r.root.Ledger(sale))
		}
	}
	out("with three sessions")
	if lima.standing != wire.Draining || r.held("lima") != 3+1 { // and one for the migrating session
		t.Fatalf("it got %v and holds %d", lima.standing, r.held("lima"))
	}
	lima.active, lima.movers = 0, 0
	out("without a session, not knowing that it drains")
	lima.knows = 2
	lima.cut = true
	r.now = r.now.Add(11 * time.Second)
	out("not heard")
	lima.cut = false
	out("when it reported that it holds nothing", "lima")
	// The next leader may have the list without it, and lend everything to the others.
	lima.movers = 2
	out("when somebody moves there before the list without it is known", "lima")
	r.root.SetMembers(r.now, ledger.Members{Version: 3, List: drains.List[:1]})
	r.centres["dublin"].knows = 3
	out("when it is off the list")
	if l := r.root.Ledger(sale); lima.standing != wire.Unlisted || l.Free+r.held("dublin") != rosterTotal ||
		l.Overcommit != 0 {
		t.Fatalf("%v, %+v", lima.standing, l)
	}
}

// inUse adds dublin and lima, has lima use three permits and give nothing back, and returns it with what it holds.
func (r *roster) inUse() (lima *member, held int64) {
	r.add("dublin", "lima")
	r.exchange(4)
	lima = r.centres["lima"]
	lima.active, lima.keepsBack = 3, true
	r.exchange(2)
	return lima, r.held("lima")
}

// The permits of a data centre removed by force count on while it is heard, and come back. Those of a silent one are
// lent again, and reported as possible overcommit.
func TestRule9TakenOffByForceIsOvercommit(t *testing.T) {
	r := newRoster(t, 2, true, founding("dublin", "lima"))
	lima, held := r.inUse()
	r.root.SetMembers(r.now, ledger.Members{Version: 2, List: []ledger.Member{{Name: "dublin"}}})
	if l := r.root.Ledger(sale); l.Overcommit != 0 || r.held("lima") != held ||
		l.Free+r.held("dublin")+held > rosterTotal {
		t.Fatalf("while it is heard: %d held before, %+v", held, l)
	}
	r.lead(3, true, founding("dublin", "lima"))
	r.exchange(4)
	held = r.held("lima")
	lima.cut = true
	r.now = r.now.Add(2 * time.Minute)
	r.exchange(2)
	r.root.SetMembers(r.now, ledger.Members{Version: 2, List: []ledger.Member{{Name: "dublin"}}})
	if l := r.root.Ledger(sale); held == 0 || l.Overcommit != held || r.held("lima") != 0 {
		t.Fatalf("%d held before, %+v", held, l)
	}
	lima.cut = false
	r.exchange(2)
	if l := r.root.Ledger(sale); l.Overcommit != 3 {
		t.Fatalf("when it reported what it has: %+v", l)
	}
}

// Under partition_policy cap the permits of a silent data centre that is removed by force are lent to others once none of
// its tickets can be valid, not before: nothing exceeds the limit.
func TestRule6TakenOffByForceWaitsForTheTickets(t *testing.T) {
	r := newRoster(t, 2, true, founding("dublin", "lima"))
	r.root.SetRooms(r.now, []ledger.RoomConfig{{ID: sale, Total: rosterTotal, Rate: rosterTotal, Session: time.Minute, Cap: true}})
	lima, held := r.inUse()
	lima.cut = true
	r.now = r.now.Add(65 * time.Second) // longer than its lease
	r.exchange(2)
	r.root.SetMembers(r.now, ledger.Members{Version: 2, List: []ledger.Member{{Name: "dublin"}, {Name: "lima", Removed: true}}})
	r.centres["dublin"].knows = 2
	for waited := time.Duration(0); waited <= 2*time.Minute; waited += 30 * time.Second {
		r.exchange(2)
		l := r.root.Ledger(sale)
		over, lent := waited == 2*time.Minute, rosterTotal-l.Free-r.held("dublin")
		if !over && waited <= 60*time.Second && lent != held || over && lent != 0 || l.Overcommit != 0 {
			t.Errorf("%v after the removal: of %d permits %d are kept back, overcommit %d", waited, held, lent, l.Overcommit)
		}
		r.now = r.now.Add(30 * time.Second)
	}
}

// An operator who removes a data centre by force says that it is lost: once nothing of it can be valid, no overcommit
// is reported, unless it is heard after all.
func TestRule9TakenOffByForceIsOverWithItsTickets(t *testing.T) {
	for _, silent := range []time.Duration{0, 2 * time.Minute} { // before it is removed
		r := newRoster(t, 2, true, founding("dublin", "lima"))
		r.add("dublin", "lima")
		r.exchange(4)
		lima := r.centres["lima"]
		lima.active, lima.keepsBack = 3, true
		r.exchange(2)
		lima.cut = true
		r.now = r.now.Add(silent)
		r.exchange(2)
		r.root.SetMembers(r.now, ledger.Members{Version: 2, List: []ledger.Member{
			{Name: "dublin"}, {Name: "lima", Removed: true},
		}})
		r.centres["dublin"].knows = 2
		for range 4 { // a lease, and a session with a tenth
			r.now = r.now.Add(time.Minute)
			r.exchange(2)
		}
		if l := r.root.Ledger(sale); r.held("lima") != 0 || l.Free+r.held("dublin") != rosterTotal || l.Overcommit != 0 {
			t.Fatalf("silent for %v, when nothing of it can be valid: %+v", silent, l)
		}
		lima.cut = false
		r.exchange(2)
		if l := r.root.Ledger(sale); l.Overcommit != 3 {
			t.Fatalf("silent for %v, when it reported what it has: %+v", silent, l)
		}
	}
}

// A coordinator that takes over right after a removal by force waits for the removed data centre: its permits count
// when it is heard, however late, and are lent to others only when none of them can be valid. Then the list stops
// naming it.
func TestRule9TakenOffByForceCountsForTheNext(t *testing.T) {
	gone := ledger.Members{Version: 2, List: []ledger.Member{{Name: "dublin"}, {Name: "lima", Removed: true}}}
	r := newRoster(t, 2, true, founding("dublin", "lima"))
	r.add("dublin", "lima")
	r.exchange(4)
	dublin, lima := r.centres["dublin"], r.centres["lima"]
	lima.active, lima.keepsBack, dublin.knows = 30, true, 1
	r.exchange(2)
	held := r.held("lima")
	r.root.SetMembers(r.now, gone)
	dublin.knows = 2
	for _, late := range []int{0, 20} { // reports of the others that come first
		r.lead(r.term.N+1, false, gone)
		lima.cut = true
		r.exchange(late)
		if l := r.root.Ledger(sale); late > 0 && (l.Complete || l.Free+r.held("dublin") > rosterTotal-held) {
			t.Fatalf("before it is heard: %+v", l)
		}
		lima.cut = false
		r.exchange(3)
		if l := r.root.Ledger(sale); !l.Complete || r.held("lima") != held || l.Overcommit != 0 ||
			l.Free+r.held("dublin")+held != rosterTotal {
			t.Fatalf("it held %d, and is heard after %d reports of the others: %+v", held, late, l)
		}
		if got := r.root.Census(r.now).Released; len(got) != 0 {
			t.Fatalf("%v named no more", got)
		}
	}
	// One that never comes back is over when its tickets are.
	r.lead(r.term.N+1, false, gone)
	lima.cut = true
	r.exchange(60)
	if l := r.root.Ledger(sale); l.Complete || len(r.root.Census(r.now).Released) != 0 {
		t.Fatalf("30 s after the takeover: %+v", l)
	}
	for range 3 { // a lease, and a session with a tenth
		r.now = r.now.Add(time.Minute)
		r.exchange(2)
	}
	if l := r.root.Ledger(sale); !l.Complete || l.Free+r.held("dublin") != rosterTotal {
		t.Fatalf("when nothing of it can be valid: %+v", l)
	}
	if got := r.root.Census(r.now).Released; !slices.Equal(got, []string{"lima"}) {
		t.Errorf("named no more: %v", got)
	}
	// So is one that says that nothing is out.
	lima.cut, lima.active, lima.granted, lima.rate, lima.rateBack = false, 0, lima.returned, 0, 0
	r.lead(r.term.N+1, false, gone)
	r.exchange(3)
	if got := r.root.Census(r.now).Released; !slices.Equal(got, []string{"lima"}) {
		t.Errorf("named no more: %v, %+v", got, r.root.Ledger(sale))
	}
}

// identified is a fleet of dublin and lima; the list holds 7 as lima's cluster ID.
func identified(t *testing.T, n uint64, bootstrap bool) (*roster, ledger.Members) {
	m := founding("dublin", "lima")
	m.List[0].ClusterID, m.List[1].ClusterID = 3, 7
	r := newRoster(t, n, bootstrap, m)
	r.add("dublin", "lima")
	for _, c := range r.centres {
		c.clusterID, c.knows = m.ClusterID(c.name), 1
	}
	return r, m
}

// copied adds a data centre that bears lima's name, with a newer aggregator and a store of
// its own.
func (r *roster) copied() *member {
	r.add("lima, copied")
	c := r.centres["lima, copied"]
	c.name, c.instance, c.clusterID, c.blank, c.knows = "lima", 9, 8, true, 1
	return c
}

// A copied data centre is not the successor of its original: it hears that it is not listed, gets no ledger, and the
// original goes on.
func TestRule9ACopyIsNotTheMember(t *testing.T) {
	r, _ := identified(t, 2, true)
	r.exchange(4)
	lima := r.centres["lima"]
	lima.active = 30
	r.exchange(2)
	held := r.held("lima")
	c := r.copied()
	r.exchange(4)
	c.blank = false // it counts its edges' permits: none
	r.exchange(4)
	if c.standing != wire.Unlisted || c.granted != 0 || c.keep != 0 {
		t.Errorf("the copy is %v, and was lent %d", c.standing, c.granted)
	}
	// A visitor with a ticket of the original arrived. The next leader does not ask the copy.
	c.reckons, c.granted, c.keepsBack = true, 1, true
	r.exchange(4)
	if c.confirmed {
		t.Error("what the copy reckons that it was lent may be used")
	}
	c.reckons, c.granted, c.keepsBack = false, 0, false
	c.returned = 0
	r.exchange(2)
	want := []root.Identity{{Name: "lima", ClusterID: 8, Copy: true}}
	if got := r.root.Census(r.now).Unlisted; !slices.Equal(got, want) {
		t.Errorf("unlisted %v", got)
	}
	if l := r.root.Ledger(sale); !l.Complete || lima.standing != wire.Listed || r.held("lima") < 30 ||
		l.Free+r.held("dublin")+r.held("lima") != rosterTotal {
		t.Errorf("the original is %v, held %d: %+v", lima.standing, held, l)
	}
}

// A new coordinator that hears the copy first follows the list: it waits for the member. A copy without ledgers, or a
// silent one, delays nobody.
func TestRule9ACopyThatIsHeardFirstIsNotTheMember(t *testing.T) {
	r, m := identified(t, 2, true)
	r.exchange(4)
	lima, c := r.centres["lima"], r.copied()
	lima.active, lima.keepsBack = 30, true
	r.exchange(2)
	held := r.held("lima")
	r.lead(3, false, m)
	lima.cut = true
	r.exchange(6)
	if l := r.root.Ledger(sale); l.Complete || l.Free+r.held("dublin") > rosterTotal-held {
		t.Fatalf("with the copy only: %+v", l)
	}
	lima.cut = false
	r.exchange(4)
	if l := r.root.Ledger(sale); !l.Complete || r.held("lima") < 30 ||
		l.Free+r.held("dublin")+r.held("lima") != rosterTotal || c.granted != 0 {
		t.Fatalf("with both: %+v", l)
	}
}

// A member without a cluster ID in the list is lent nothing before the list holds the cluster ID; the first one heard
// counts. If it is the wrong one, nothing was lent twice.
func TestRule9AMemberIsLentToOnceTheListHoldsItsClusterID(t *testing.T) {
	r, m := identified(t, 2, true)
	r.exchange(4)
	lima := r.centres["lima"]
	lima.active, lima.keepsBack = 30, true
	r.exchange(2)
	held, c := r.held("lima"), r.copied()
	c.blank, lima.cut = false, true
	without := ledger.Members{Version: 1, List: slices.Clone(m.List)}
	without.List[1].ClusterID = 0
	r.lead(3, false, without)
	r.exchange(6)
	if l := r.root.Ledger(sale); l.Complete || l.Free+r.held("dublin") > rosterTotal-held || c.granted != 0 {
		t.Fatalf("the copy is believed: %+v", l)
	}
	if got := r.root.Census(r.now).Enrolled; !slices.Equal(got, []root.Identity{{Name: "lima", ClusterID: 8}}) {
		t.Fatalf("the list is to hold %v", got)
	}
	// Another coordinator had written the right one.
	m.Version, lima.cut = 2, false
	r.root.SetMembers(r.now, m)
	r.exchange(4)
	if l := r.root.Ledger(sale); !l.Complete || r.held("lima") < 30 ||
		l.Free+r.held("dublin")+r.held("lima") != rosterTotal || len(r.root.Census(r.now).Enrolled) != 0 {
		t.Fatalf("with the newer list: %+v", l)
	}
}

// A list of a configuration becomes the first stored one once everybody in it was
// heard and knows none.
func TestTheFirstListIsStoredWhenEverybodyKnowsNone(t *testing.T) {
	r := newRoster(t, 2, false, ledger.Members{List: founding("dublin", "lima").List})
	r.add("dublin")
	r.exchange(2)
	if r.root.Census(r.now).Unfounded {
		t.Error("with one that was not heard")
	}
	r.add("lima")
	r.centres["lima"].knows = 7
	r.exchange(2)
	if r.root.Census(r.now).Unfounded {
		t.Error("with one that knows a list")
	}
	r.centres["lima"].knows = 0
	r.exchange(2)
	if !r.root.Census(r.now).Unfounded {
		t.Error(fmt.Sprint("when nobody knows any: ", r.root.Ledger(sale)))
	}
}

// A data centre that was removed by force and is listed again holds nothing of before, whoever leads: its permits may be
// lent to others. What it still uses is kept back from the others, as far as they have not got it, and lent to it anew.
func TestRule9WhoIsAddedAgainHoldsNothingOfBefore(t *testing.T) {
	gone := ledger.Members{Version: 2, List: []ledger.Member{{Name: "dublin"}, {Name: "lima", Removed: true}}}
	back := ledger.Members{Version: 3, List: []ledger.Member{{Name: "dublin"}, {Name: "lima", Since: 3}}}
	for _, away := range []bool{true, false} {
		for _, takeover := range []string{"", "before", "between", "after", "twice"} { // removal and addition
			r := newRoster(t, 2, true, founding("dublin", "lima"))
			r.add("dublin", "lima")
			r.exchange(4)
			dublin, lima := r.centres["dublin"], r.centres["lima"]
			dublin.knows, lima.knows = 1, 1
			lima.active, lima.keepsBack = 30, true
			r.exchange(2)
			lead := func(when string, m ledger.Members) {
				if takeover == when || takeover == "twice" {
					r.lead(r.term.N+1, false, m)
					r.exchange(2)
				}
			}
			use := func() { // dublin admits all it can
				for range 6 {
					dublin.active = dublin.granted - dublin.returned
					r.exchange(1)
				}
			}
			lead("before", founding("dublin", "lima"))
			if lima.cut = away; away {
				r.now = r.now.Add(time.Minute + time.Second)
				r.exchange(2)
			}
			r.root.SetMembers(r.now, gone)
			dublin.knows = 2
			use()
			lead("between", gone)
			r.root.SetMembers(r.now, back)
			dublin.knows = 3
			lead("after", back)
			lima.cut = false
			for i := range 8 {
				use()
				out := int64(dublin.active) + max(int64(lima.active), int64(lima.granted-lima.returned))
				if over := out - rosterTotal; over > 0 && (!away || over > int64(lima.active)) {
					t.Errorf("away %v, takeover %s, exchange %d: dublin uses %d, lima has %d of which %d are active", away, takeover,
						i, dublin.active, lima.granted-lima.returned, lima.active)
					break
				}
			}
			if l := r.root.Ledger(sale); away && dublin.active == rosterTotal && lima.membership == 4 ||
				!away && lima.membership != 4 || !l.Complete {
				t.Errorf("away %v, takeover %s: adopted as of %d, %+v", away, takeover, lima.membership, l)
			}
			dublin.active, lima.keepsBack = 0, false
			for range 8 {
				r.exchange(1)
				lima.active = min(lima.active, lima.granted-lima.returned)
			}
			if l := r.root.Ledger(sale); lima.membership != 4 || l.Overcommit != 0 ||
				l.Free+r.held("dublin")+r.held("lima") != rosterTotal {
				t.Errorf("away %v, takeover %s: in the end adopted as of %d, %+v", away, takeover, lima.membership, l)
			}
		}
	}
}

// A change of the list that is none of a data centre, the first record of its cluster ID, and a report of an older
// release leave it what it holds.
func TestRule9OtherChangesOfTheListCostNothing(t *testing.T) {
	for name, c := range map[string]struct {
		next  func(ledger.Members) ledger.Members
		older bool
	}{
		"another one is added": {next: func(m ledger.Members) ledger.Members {
			return with(m, 2, ledger.Member{Name: "nairobi", Since: 2})
		}},
		"its cluster ID is recorded": {next: func(m ledger.Members) ledger.Members {
			m = with(m, 2)
			m.List[1].ClusterID, m.List[1].Since = 7, 2
			return m
		}},
		"it drains and is kept": {next: func(m ledger.Members) ledger.Members {
			m = with(m, 2)
			m.List[1].Draining = true
			return m
		}},
		"an older release reports": {next: func(m ledger.Members) ledger.Members {
			m = with(m, 2)
			m.List[1].Since = 2
			return m
		}, older: true},
	} {
		first := founding("dublin", "lima")
		r := newRoster(t, 2, true, first)
		r.add("dublin", "lima")
		lima := r.centres["lima"]
		if name == "its cluster ID is recorded" {
			r = newRoster(t, 2, true, ledger.Members{List: first.List}) // as configured: it gets permits by its name
			r.add("dublin", "lima")
			lima = r.centres["lima"]
			lima.clusterID = 7
		}
		r.exchange(4)
		lima.active, lima.keepsBack = 10, true
		r.exchange(2)
		if c.older {
			lima.membership, lima.named, lima.older = 0, 0, true
			r.exchange(1)
		}
		held, gen := r.held("lima"), lima.gen
		next := c.next(first)
		r.root.SetMembers(r.now, next)
		r.exchange(3)
		r.lead(r.term.N+1, false, next)
		r.exchange(4)
		if r.held("lima") < held || lima.gen != gen || held == 0 {
			t.Errorf("%s: it held %d permits of generation %d, now %d of %d", name, held, gen, r.held("lima"), lima.gen)
		}
	}
}

// A coordinator that took over from one that gave away the permits of a data centre removed by force lends none of those
// that the data centre returns, before it knows all ledgers.
func TestRule9WhatAForcedOneReturnsIsNotLentYet(t *testing.T) {
	gone := ledger.Members{Version: 2, List: []ledger.Member{{Name: "dublin"}, {Name: "lima", Removed: true}, {Name: "nairobi"}}}
	r := newRoster(t, 3, false, gone)
	r.add("dublin", "lima", "nairobi")
	dublin, lima, nairobi := r.centres["dublin"], r.centres["lima"], r.centres["nairobi"]
	dublin.knows, dublin.granted, dublin.active = 2, 20, 20
	lima.granted, nairobi.granted = 20, 100 // of which 20 were lima's
	nairobi.cut = true
	r.exchange(6)
	if l := r.root.Ledger(sale); lima.returned == 0 || l.Complete || l.Free > 0 || r.held("dublin") > 20 {
		t.Errorf("lima returned %d of 20: %+v", lima.returned, l)
	}
}
