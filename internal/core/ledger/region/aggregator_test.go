package region_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// TestAStoreThatCameBackOlderIsNoticed: the roster is written before an edge gets its first lease. An edge with
// sessions or permits that is not on it shows that the store has lost writes.
func TestAStoreThatCameBackOlderIsNoticed(t *testing.T) {
	const second = 1622133200
	sale := room.IDOf("sale")
	with := func(r wire.RoomReport) []wire.RoomReport {
		r.Room = sale
		return []wire.RoomReport{r}
	}
	roster := wire.Durable{Version: 5, Roster: []wire.RosterEntry{{Edge: "d1", Instance: 7, LeaseEpoch: 1}}}
	inside := with(wire.RoomReport{Permits: granted(5), Spent: 5, Sessions: stamped(second+60, 5)})
	ended := with(wire.RoomReport{Permits: granted(5), Spent: 5, Sessions: stamped(second, 5)})
	renewed := with(wire.RoomReport{Sessions: []wire.Expiry{{Until: second + 60, Consumed: 5}}})
	holding := with(wire.RoomReport{Permits: wire.Permits{Sessions: wire.Allocation{Granted: 5, Returned: 1}}, Spent: 3})
	for _, c := range []struct {
		what   string
		stored wire.Durable
		rooms  []wire.RoomReport
		want   uint64
	}{
		{"an edge of the roster", roster, inside, 0},
		{"a new edge", wire.Durable{Version: 5}, nil, 0},
		{"an edge whose sessions have ended", wire.Durable{Version: 5}, ended, 0},
		{"an edge whose sessions were renewed elsewhere", wire.Durable{Version: 5}, renewed, 0},
		{"an edge with sessions, and the roster of before it came", wire.Durable{Version: 5}, inside, 1},
		{"an edge with permits, and the roster of before it came", wire.Durable{Version: 5}, holding, 1},
		{"an edge with sessions, and nothing stored", wire.Durable{}, inside, 1},
	} {
		now := fleettime.Mono(time.Hour)
		term := wire.Term{N: 2, Nonce: 1}
		agg := lead(now, region.Config{Term: term}, c.stored)
		m := joining("d1", 7, 2, term, c.rooms...)
		m.AsOf = second * 1000
		for range 2 { // it is noticed once
			agg.Observe(now, m)
			m.Seq++
		}
		if e := agg.Edges(); e.Unknown != c.want || (e.Unknown > 0) != (e.LastUnknown == "d1") {
			t.Errorf("%s: %d unknown edges (%q), want %d", c.what, e.Unknown, e.LastUnknown, c.want)
		}
	}
}

// TestALateJoinIsNotTheEdge: a forgotten edge is adopted again by a long delayed report of its first lease epoch. A
// report of a later epoch reveals that, and the edge has to begin anew; it never got an answer under its own epoch.
func TestALateJoinIsNotTheEdge(t *testing.T) {
	for _, tt := range []struct {
		final bool
		want  wire.Handshake
	}{{false, wire.Fenced}, {true, wire.Dead}} {
		now := fleettime.Mono(time.Hour)
		term := wire.Term{N: 2, Nonce: 1}
		agg := lead(now, region.Config{Term: term, Bootstrap: true}, wire.Durable{})
		last := func() wire.Handshake {
			save(agg, now)
			v := wire.Handshake(99)
			for _, g := range agg.Grants(now) {
				v = g.Handshake
			}
			return v
		}
		r := joining("d1", 7, 2, term)
		agg.Observe(now, r)
		if v := last(); v != wire.Adopted {
			t.Fatalf("the late report is answered by %v", v)
		}
		r.LeaseEpoch, r.Seq, r.Join, r.Final = 2, 9, false, tt.final
		now = now.Add(100 * time.Millisecond)
		agg.Observe(now, r)
		if v := last(); v != tt.want {
			t.Errorf("final %v: the edge is answered by %v, want %v", tt.final, v, tt.want)
		}
	}
}

// TestAnEdgeThatFellSilentBeforeItReportedTheTime: an edge joined without fleet time, learned it with its permits, and
// fell silent. Its possible admissions are reserved for the life of a ticket from now, not from 1970.
func TestAnEdgeThatFellSilentBeforeItReportedTheTime(t *testing.T) {
	now := fleettime.Mono(time.Hour)
	const day = fleettime.Time(1622133200_000)
	at := func() fleettime.Time { return day.Add(now.Sub(fleettime.Mono(time.Hour))) }
	term, root := wire.Term{N: 1, Nonce: 1}, wire.Term{N: 1, Nonce: 2}
	sale := room.IDOf("sale")
	agg := lead(now, region.Config{Term: term, Bootstrap: true}, wire.Durable{})
	agg.SetRooms(now, []ledger.RoomConfig{{ID: sale, Total: 10, Rate: 60, Session: time.Minute, Cap: true}})
	seq := uint64(0)
	global := func(g wire.Grant) {
		seq++
		g.To, g.Instance, g.From, g.Seq, g.Parts = "dublin", 1, root, seq, 1
		g.Echo, g.At, g.Lease, g.ClusterID = now, at(), time.Minute, 1
		agg.Apply(now, g)
		save(agg, now)
	}
	save(agg, now)
	global(wire.Grant{Handshake: wire.Promise}) // promised
	global(wire.Grant{Baseline: true})
	permits := wire.Permits{
		Sessions: wire.Allocation{Granted: 10, Keep: 10}, Rate: wire.Allocation{Granted: 60, Keep: 60},
	}
	global(wire.Grant{Rooms: []wire.RoomGrant{{Room: sale, Confirmed: true, Permits: permits}}})

	first := joining("d1", 7, 1, term, wire.RoomReport{Room: sale, Want: 3})
	first.Sent = now
	agg.Observe(now, first)
	save(agg, now)
	lent := uint64(0)
	for _, g := range agg.Grants(now) {
		for _, r := range g.Rooms {
			lent = max(lent, r.Permits.Sessions.Granted)
		}
	}
	if lent < 3 {
		t.Fatalf("%d permits were lent, want 3 at least", lent)
	}
	for i, after := range []time.Duration{4 * time.Second, 10 * time.Second, 30 * time.Second} {
		now = now.Add(after)
		// Somebody else goes on, so that seconds are freed.
		m := joining("d2", 8, uint64(i)+1, term, wire.RoomReport{Room: sale})
		m.Sent, m.AsOf = now, at()
		agg.Observe(now, m)
		save(agg, now)
		global(wire.Grant{Rooms: []wire.RoomGrant{{Room: sale, Confirmed: true, Permits: permits}}})
		agg.Grants(now)
		if l := agg.Ledger(sale); l.Active < int64(lent) {
			t.Errorf("%v later: %d sessions count, want %d at least", after, l.Active, lent)
		}
	}
}

// TestRule9ALateAnswerIsNoLostLedger: an aggregator lost its ledger and its promise. Global answers the reports from
// before the promise by asking for it, also late; only an answer to a report with the promise says that its ledger is
// lost too.
func TestRule9ALateAnswerIsNoLostLedger(t *testing.T) {
	now, sale, term := fleettime.Mono(time.Hour), room.IDOf("sale"), wire.Term{N: 2, Nonce: 1}
	agg := lead(now, region.Config{Term: term, Bootstrap: true}, wire.Durable{})
	agg.SetRooms(now, []ledger.RoomConfig{{ID: sale, Total: 10, Rate: 60, Session: time.Minute}})
	save(agg, now)
	reports := func(n int) (last uint64) {
		for range n {
			now = now.Add(time.Second)
			for _, m := range agg.Report(now) {
				last = m.Seq
			}
		}
		return last
	}
	answers := func(seq, to uint64, h wire.Handshake, baseline bool) {
		agg.Apply(now, wire.Grant{
			To: "dublin", Instance: 2, From: wire.Term{N: 1, Nonce: 2}, Seq: seq, Parts: 1, Acked: to, Echo: now,
			Lease: time.Minute, ClusterID: 1, Handshake: h, Baseline: baseline,
			Rooms: []wire.RoomGrant{{
				Room: sale, Confirmed: true, Permits: wire.Permits{Sessions: wire.Allocation{Granted: 7, Returned: 3}},
			}},
		})
		save(agg, now)
	}
	before := reports(3)
	answers(1, before-1, wire.Promise, false) // promised
	answers(2, before, wire.Promise, false)
	with := reports(1)
	answers(3, with, wire.Adopted, true)
	if l := agg.Ledger(sale); l.Granted != 7 || l.Returned != 3 {
		t.Errorf("granted %d and returned %d, and global has lent 7, of which 3 came back", l.Granted, l.Returned)
	}
}

// TestVisitorsThatLeaveTheDataCentreAreReported: a visitor that polled elsewhere before counts below zero at its edge.
// Global gets that, because the visitor still counts elsewhere; the data centre's own line holds no such slice.
func TestVisitorsThatLeaveTheDataCentreAreReported(t *testing.T) {
	now, sale, term := fleettime.Mono(time.Hour), room.IDOf("sale"), wire.Term{N: 2, Nonce: 1}
	agg := lead(now, region.Config{Term: term, Bootstrap: true}, wire.Durable{})
	agg.SetRooms(now, []ledger.RoomConfig{{ID: sale, Total: 10, Rate: 60, Session: time.Minute}})
	line := estimate.Histogram{{Start: 1000, Width: 1000, N: -2}, {Start: 2000, Width: 1000, N: 5}}
	for seq := uint64(2); seq < 5; seq++ {
		agg.Observe(now, joining("d1", 7, seq, term, wire.RoomReport{Room: sale, Waiting: line}))
		save(agg, now)
		agg.Grants(now)
	}
	var waiting estimate.Histogram
	for _, m := range agg.Report(now.Add(time.Second)) {
		for _, r := range m.Rooms {
			waiting = r.Waiting
		}
	}
	if !slices.Equal(waiting, line) || agg.Ledger(sale).Waiting != 3 {
		t.Errorf("global gets %v, and %v wait here, want %v and 3", waiting, agg.Ledger(sale).Waiting, line)
	}
}

// TestARegionalNamesTheEdgesWithoutTheirSite: the first by name, and as many as it counts.
func TestARegionalNamesTheEdgesWithoutTheirSite(t *testing.T) {
	now, sale, term := fleettime.Mono(time.Hour), room.IDOf("sale"), wire.Term{N: 2, Nonce: 1}
	agg := lead(now, region.Config{Term: term, Bootstrap: true}, wire.Durable{})
	agg.SetRooms(now, []ledger.RoomConfig{{ID: sale, Total: 10, Rate: 60, Session: time.Minute}})
	for _, down := range []string{"", "d5", "d1 d5", "d1 d2 d4 d5", "d2"} {
		for seq := range uint64(2) {
			for _, edge := range []string{"d5", "d4", "d3", "d2", "d1"} {
				r := wire.RoomReport{Room: sale}
				if slices.Contains(strings.Fields(down), edge) {
					r.SiteDown = 1
				}
				agg.Observe(now, joining(edge, 7, uint64(now)+seq, term, r))
				save(agg, now)
			}
			agg.Grants(now)
		}
		now = now.Add(time.Second)
		var got []string
		n := uint64(0)
		for _, m := range agg.Report(now) {
			for _, r := range m.Rooms {
				got, n = r.SiteDownAt, r.SiteDown
			}
		}
		want := strings.Fields(down)
		if n != uint64(len(want)) || !slices.Equal(got, want[:min(len(want), wire.MaxNamed)]) {
			t.Errorf("without a site: %q: it reports %d, %q", down, n, got)
		}
	}
}

// TestOverdueVisitorsAreReportedSoon: a visitor that polled at two edges counts as overdue at one and below zero at the
// other. The sum at global is wrong until both reports have arrived, so a regional does not wait for its next report.
func TestOverdueVisitorsAreReportedSoon(t *testing.T) {
	now, sale, term := fleettime.Mono(time.Hour), room.IDOf("sale"), wire.Term{N: 2, Nonce: 1}
	p := wire.DefaultParams()
	agg := region.New(now, region.Config{Strict: true, DC: "dublin", Term: term, Params: p, ClusterID: 1, Bootstrap: true}, wire.Durable{})
	agg.SetLease(fleettime.Never)
	agg.SetRooms(now, []ledger.RoomConfig{{ID: sale, Total: 10, Rate: 60, Session: time.Minute}})
	seq := uint64(1)
	hear := func(overdue int64) {
		seq++
		agg.Observe(now, wire.Report{From: "d1", Instance: 7, LeaseEpoch: 1, Seq: seq, Parts: 1, Seen: term, Join: true, Rooms: []wire.RoomReport{{Room: sale, Overdue: overdue}}})
		if d, ok := agg.Unsaved(); ok {
			agg.Saved(now, d.Version)
		}
		agg.Grants(now)
	}
	hear(1) // joins
	hear(1) // is alive
	for _, tc := range []struct {
		overdue int64
		soon    bool
	}{{1, false}, {2, true}, {2, false}, {-1, true}} {
		for range 3 { // until a report has no news
			now = now.Add(time.Second)
			agg.Grants(now)
			agg.Report(now)
		}
		due := agg.ReportDue()
		hear(tc.overdue)
		if soon := agg.ReportDue() < due && agg.ReportDue() <= now.Add(p.SyncFast/4); soon != tc.soon {
			t.Errorf("with %d overdue visitors the next report is due in %v, want it soon: %v", tc.overdue, agg.ReportDue().Sub(now), tc.soon)
		}
	}
}

// TestARosterIsCountedWhole: of two silent edges one had renewed its sessions long after the other. Both count, and
// so do sessions on probation, which end a few seconds after admission, before those on the roster.
func TestARosterIsCountedWhole(t *testing.T) {
	const day = 1622133200
	now, sale, term := fleettime.Mono(time.Hour), room.IDOf("sale"), wire.Term{N: 2, Nonce: 1}
	dead := func(name string, until uint32) wire.RosterEntry {
		return wire.RosterEntry{Edge: name, Instance: 1, LeaseEpoch: 1, Dead: true, Rooms: []wire.RosterRoom{{
			Room: sale, Sessions: []wire.Expiry{{Until: until, Stamped: 1}},
		}}}
	}
	agg := lead(now, region.Config{Term: term}, wire.Durable{
		Version: 1, Roster: []wire.RosterEntry{dead("d1", day+300), dead("d2", day+100)},
	})
	agg.SetRooms(now, []ledger.RoomConfig{{ID: sale, Total: 10, Rate: 60, Session: 5 * time.Minute, Cap: true}})
	if got := agg.Ledger(sale).Active; got != 2 {
		t.Errorf("%d sessions of the roster are counted, want 2", got)
	}
	m := joining("d3", 1, 1, term, wire.RoomReport{Room: sale, Sessions: stamped(day+11, 1)})
	m.Sent, m.AsOf = now, fleettime.Time(day*1000)
	agg.Observe(now, m)
	if got := agg.Ledger(sale).Active; got != 3 {
		t.Errorf("%d sessions are counted with one on probation, want 3", got)
	}
}

// TestARosterKeepsWhatANewerReleaseWrote: a successor of this release rewrites an edge's entry at its join and
// goodbye, and keeps unknown fields.
func TestARosterKeepsWhatANewerReleaseWrote(t *testing.T) {
	const day = 1622133200
	now, sale, term := fleettime.Mono(time.Hour), room.IDOf("sale"), wire.Term{N: 2, Nonce: 1}
	agg := lead(now, region.Config{Term: term}, wire.Durable{
		Version: 1, Life: 330, Unknown: []byte("durable"),
		Roster: []wire.RosterEntry{{Edge: "d1", Instance: 7, LeaseEpoch: 1, Unknown: []byte("entry")}},
	})
	r := joining("d1", 7, 1, term, wire.RoomReport{Room: sale, Sessions: stamped(day+11, 1)})
	r.Sent, r.AsOf = now, fleettime.Time(day*1000)
	written := map[bool]int{} // by whether the edge has ended
	for i := range 4 {
		agg.Observe(now, r)
		agg.Grants(now)
		d, ok := agg.Unsaved()
		if ok {
			agg.Saved(now, d.Version)
		}
		if d = agg.Durable(); string(d.Unknown) != "durable" || len(d.Roster) != 1 || string(d.Roster[0].Unknown) != "entry" {
			t.Fatalf("after report %d: %+v", i+1, d)
		}
		written[d.Roster[0].Dead]++
		now = now.Add(100 * time.Millisecond)
		r.Seq, r.Sent, r.AsOf, r.Join, r.Final = r.Seq+1, now, r.AsOf.Add(100*time.Millisecond), false, i >= 1
		r.Bye = r.Final
	}
	if written[true] == 0 || written[false] == 0 {
		t.Errorf("the entry was written %d times with the edge there and %d times once it had ended", written[false],
			written[true])
	}
}

// TestARoomThatIsGoneIsReservedToo: an aggregator that began after the removal of a room does not know the life of
// its tickets.
func TestARoomThatIsGoneIsReservedToo(t *testing.T) {
	const day = 1622133200
	now, sale, term := fleettime.Mono(time.Hour), room.IDOf("sale"), wire.Term{N: 2, Nonce: 1}
	agg := lead(now, region.Config{Term: term, Bootstrap: true}, wire.Durable{})
	hear := func(edge string, instance, seq uint64, r wire.RoomReport) {
		r.Room = sale
		m := joining(edge, instance, seq, term, r)
		m.Sent, m.AsOf = now, fleettime.Time(day*1000).Add(now.Sub(fleettime.Mono(time.Hour)))
		agg.Observe(now, m)
		save(agg, now)
		agg.Grants(now)
	}
	hear("d1", 1, 1, wire.RoomReport{Permits: granted(3), Spent: 1, RenewCeil: 2, Sessions: stamped(day+60, 1)})
	for i := range uint64(10) {
		now = now.Add(4 * time.Second)
		hear("d2", 1, i+1, wire.RoomReport{})
		hear("d1", 2, i+1, wire.RoomReport{}) // the next process: the part that the last one did not report stays a guess
	}
	if got := agg.Ledger(sale).Active; got != 5 {
		t.Errorf("%d sessions count, want the one of the silent edge, its two permits and two renewals", got)
	}
}
