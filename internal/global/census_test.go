package global

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// A silent data centre of the list raises an alarm once. It raises none if its possible permits are awaited, which
// has an alarm of its own, or if its absence is expected.
func TestSilentDataCentresRaiseAnAlarm(t *testing.T) {
	c := census{
		leads: true,
		centres: []root.CentreTotals{
			{Name: "dublin", Heard: time.Second},
			{Name: "lima", Heard: 2 * time.Minute},
			{Name: "nairobi", Heard: 2 * time.Minute},
			{Name: "oslo", Heard: 2 * time.Minute, Standing: wire.Draining},
			{Name: "quito", Heard: 2 * time.Minute, Standing: wire.Unlisted},
		},
		unknown: []root.Unknown{{Name: "nairobi", Heard: 2 * time.Minute}},
	}
	var names []string
	for _, a := range c.alarms() {
		name, _, ok := strings.Cut(strings.TrimPrefix(a, "data centre "), " is listed and has not reported")
		if !ok {
			t.Errorf("alarm: %q", a)
		}
		names = append(names, name)
	}
	if want := []string{"lima", "oslo"}; !slices.Equal(names, want) {
		t.Errorf("alarms for %q, want %q", names, want)
	}
	if w := c.waits(); len(w) != 1 || !strings.Contains(w[0], "nairobi") {
		t.Errorf("waits: %q", w)
	}
}

// Alarms agree after a removal by force, and none advises a removal that would be refused.
func TestAlarmsAfterARemoval(t *testing.T) {
	c := census{
		leads:  true,
		Census: root.Census{Unlisted: []root.Identity{{Name: "dublin", Gone: true}}},
		centres: []root.CentreTotals{
			{Name: "dublin", Heard: time.Second, Standing: wire.Draining, Gone: true},
			{Name: "lima", Heard: 2 * time.Minute, Standing: wire.Draining, Gone: true},
			{Name: "nairobi", Heard: 2 * time.Minute},
		},
		unknown: []root.Unknown{{Name: "lima", Heard: 2 * time.Minute, Gone: true}},
	}
	all := slices.Concat(c.alarms(), c.waits())
	want := []string{
		"data centre dublin was removed and reports", "data centre nairobi is listed",
		"at most returned permits are lent",
	}
	for i, a := range all {
		if i >= len(want) || !strings.HasPrefix(a, want[i]) || strings.Contains(a, "fleet remove") {
			t.Errorf("alarm %q", a)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d alarms", len(all))
	}
}

// Sessions beyond the permits raise an alarm, whether they are counted or possible; a lowered limit and passthrough
// raise none.
func TestSessionsBeyondPermitsRaiseAnAlarm(t *testing.T) {
	for name, c := range map[string]struct {
		l    root.Ledger
		want string
	}{
		"within":          {root.Ledger{Total: 400, Centres: []root.CentreLedger{{Active: 300, Held: 400}}}, ""},
		"a lowered limit": {root.Ledger{Total: 100, Centres: []root.CentreLedger{{Active: 300, Held: 400}}}, ""},
		"passthrough":     {root.Ledger{Unbound: true, Centres: []root.CentreLedger{{Active: 300}}}, ""},
		"counted": {
			root.Ledger{Total: 400, Centres: []root.CentreLedger{{Active: 532, Held: 400}, {Held: 200}}},
			"room shop counts 132 sessions beyond its permits: after a loss or a takeover, sessions that moved count twice",
		},
		"possible": {
			root.Ledger{Total: 400, Centres: []root.CentreLedger{{Active: 300, Held: 400, Overcommit: 20}}},
			"room shop may have 20 sessions beyond its permits",
		},
	} {
		got := strings.Join(beyondOf("shop", &c.l), "; ")
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestVisitorsThatWaitToMoveRaiseAnAlarm: by a name that does not change with their number. A silent data centre says
// nothing new.
func TestVisitorsThatWaitToMoveRaiseAnAlarm(t *testing.T) {
	l := root.Ledger{Centres: []root.CentreLedger{
		{Name: "dublin", Movers: 27}, {Name: "lima", Movers: 3}, {Name: "nairobi"},
	}}
	got := moversOf("shop", &l, map[string]bool{"lima": true})
	if want := "27 visitors inside room shop wait in data centre dublin for a free permit: "; len(got) != 1 ||
		!strings.HasPrefix(got[0], want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestACopyIsNotItsOriginal: two data centres report under one name. Only the unlisted one is stopped, as a copy.
func TestACopyIsNotItsOriginal(t *testing.T) {
	s := &Server{}
	s.Clock = node.NewClock()
	now := s.Clock.Now()
	term := wire.Term{N: 1}
	l := &leadership{
		s: s, alloc: root.New(now, root.Config{
			Term: term, Centres: []string{"lima"}, Bootstrap: true,
			Params: wire.DefaultParams(),
		}),
		reports: map[string]*centreReport{"lima": {stop: stop.Stop{Reason: stop.Copy}}},
	}
	l.alloc.SetMembers(now, ledger.Members{Version: 2, List: []ledger.Member{{Name: "lima", ClusterID: 7}}})
	l.alloc.SetTime(now, fleettime.TimeOf(time.Now()))
	for seq := range uint64(3) {
		for _, id := range []uint64{7, 8} {
			l.alloc.Observe(now, wire.Report{
				From: "lima", Instance: id, ClusterID: id, Seq: seq + 1, Parts: 1, Sent: now, Seen: term, Join: seq == 0,
				Members: 2,
			})
		}
		l.alloc.Grants(now)
	}
	var copies int
	for _, why := range l.stops(nil) {
		if why.Reason == stop.Copy {
			copies++
		}
		if why.Reason == stop.Unlisted {
			t.Errorf("%v: the name is listed", why)
		}
	}
	if n := len(l.alloc.Centres(now)); n != 2 || copies != 1 {
		t.Errorf("%d data centres report, %d are called copies: %+v", n, copies, l.alloc.Centres(now))
	}
}

// TestWhereASiteIsDown: how many edges of which data centres do not reach a site, or that none does.
func TestWhereASiteIsDown(t *testing.T) {
	const sale = room.ID(5)
	s := &Server{}
	s.Clock = node.NewClock()
	now, term := s.Clock.Now(), wire.Term{N: 1}
	alive := func(n int, others ...string) *centreReport {
		c := &centreReport{edgesN: uint32(n + len(others)), at: now}
		for _, state := range others {
			c.edges = append(c.edges, wire.EdgeStatus{State: state})
		}
		return c
	}
	for want, c := range map[string]struct {
		down    map[string]uint64
		reports map[string]*centreReport
	}{
		"": {map[string]uint64{}, map[string]*centreReport{"dublin": alive(2), "lima": alive(1)}},
		"the site does not answer 2 of 3 edges in dublin (edge-0, edge-1): they admit nobody until it does": {
			map[string]uint64{"dublin": 2}, map[string]*centreReport{"dublin": alive(3), "lima": alive(1)},
		},
		"the site does not answer 3 of 3 edges in dublin (edge-0, edge-1, edge-2): they admit nobody until it does": {
			map[string]uint64{"dublin": 3}, map[string]*centreReport{"dublin": alive(3, region.Dead), "lima": alive(1)},
		},
		"the site does not answer 5 edges in dublin (edge-0, edge-1, edge-2 and 2 more): they admit nobody until it does; the site does not answer edge edge-0 in lima: it admits nobody until the site does": {
			map[string]uint64{"dublin": 5, "lima": 1}, map[string]*centreReport{"lima": alive(1)},
		},
		"the site does not answer 1 edge in lima: it admits nobody until the site does; the site does not answer 9 edges in dublin: they admit nobody until it does": {
			map[string]uint64{"dublin": 9, "lima": 1}, map[string]*centreReport{"lima": alive(1)},
		},
		"the site does not answer: nobody is admitted until it does": {
			map[string]uint64{"dublin": 3, "lima": 1}, map[string]*centreReport{"dublin": alive(3, region.Dead), "lima": alive(1)},
		},
	} {
		l := &leadership{s: s, reports: c.reports, alloc: root.New(now, root.Config{
			Term: term, Centres: []string{"dublin", "lima"}, Bootstrap: true, Params: wire.DefaultParams(),
		})}
		l.alloc.SetRooms(now, []ledger.RoomConfig{{ID: sale, Total: 9, Rate: 9, Session: time.Minute}})
		l.alloc.SetTime(now, fleettime.TimeOf(time.Now()))
		for seq := range uint64(2) {
			for _, dc := range []string{"dublin", "lima"} {
				var names []string // of regionals of this build
				for i := range c.down[dc] {
					if c.down["dublin"] != 9 && i < wire.MaxNamed {
						names = append(names, fmt.Sprintf("edge-%d", i))
					}
				}
				l.alloc.Observe(now, wire.Report{
					From: dc, Instance: 1, Seq: seq + 1, Parts: 1, Sent: now, Seen: term, Join: seq == 0,
					Rooms: []wire.RoomReport{{Room: sale, SiteDown: c.down[dc], SiteDownAt: names}},
				})
			}
			l.alloc.Grants(now)
		}
		var got []string
		for _, s := range l.siteDown(sale, "sale") {
			got = append(got, s.String())
		}
		slices.Sort(got)
		if got := strings.Join(got, "; "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
