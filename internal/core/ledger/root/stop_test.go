package root_test

import (
	"fmt"
	"testing"
	"time"

	"vestibule/internal/core/ledger"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
)

// TestWhyNobodyEntersADataCentre: what its regional reported, its silence, and the wait for the permits of another one.
func TestWhyNobodyEntersADataCentre(t *testing.T) {
	l := newLender(t, "12:00:00", 100, 100)
	exchange := func(n int, names ...string) {
		for range n {
			for _, name := range names {
				l.report(name, 0, nil)
			}
			l.grants()
		}
	}
	why := func(name string, own stop.Stop) stop.Stop {
		for _, d := range l.root.Centres(l.now) {
			if d.Name == name {
				return l.root.CentreStop(l.now, &d, own)
			}
		}
		t.Fatalf("no data centre %s", name)
		return stop.Stop{}
	}
	exchange(4, "nairobi", "dublin")
	if s := why("dublin", stop.Stop{}); !s.OK() {
		t.Errorf("both report: %+v", s)
	}
	own := stop.Stop{Reason: stop.AwaitsEdge, Edge: "edge-1"}
	if s := why("dublin", own); s.Reason != stop.AwaitsEdge || s.Centre != "dublin" {
		t.Errorf("as its regional says: %+v", s)
	}
	exchange(30, "nairobi")
	if s := why("dublin", own); s.Reason != stop.Silent || s.Since == 0 || s.Since >= l.wall || s.Centre != "dublin" ||
		s.Command() == "" {
		t.Errorf("it is silent: %+v at %v", s, l.wall)
	}
	l.lead(2) // it knows no permits yet
	l.seq, l.acked = map[string]uint64{}, map[string]uint64{}
	clear(l.last)
	exchange(30, "nairobi")
	if s := why("nairobi", stop.Stop{}); s.Reason != stop.AwaitsCentre || s.Edge != "dublin" || s.Since == 0 ||
		s.Command() == "" {
		t.Errorf("the permits of dublin are not known: %+v", s)
	}
	l.root.Observe(l.now, wire.Report{
		From: "dublin", Instance: 1, Seq: 1, Parts: 1, Sent: l.now, Seen: l.term, Blank: true,
	})
	if s := why("nairobi", stop.Stop{}); s.Reason != stop.AwaitsCentre || !s.Ended || s.Command() != "" {
		t.Errorf("dublin reports, and knows no permits itself: %+v", s)
	}
	list := ledger.Members{Version: 9, List: []ledger.Member{{Name: "nairobi"}, {Name: "dublin", Removed: true}}}
	l.root.SetMembers(l.now, list)
	exchange(30, "nairobi")
	if s := why("nairobi", stop.Stop{}); s.Command() != "" {
		t.Errorf("dublin was removed: %+v", s)
	}
	if s := why("dublin", own); !s.OK() {
		t.Errorf("it was removed, and nobody expects its report: %+v", s)
	}
	list.Version, list.List = 10, list.List[:1]
	l.root.SetMembers(l.now, list)
	l.now = l.now.Add(time.Minute)
	if s := why("nairobi", stop.Stop{}); s.Reason != stop.Silent || s.Command() != "" {
		t.Errorf("the only one of the list is silent: %+v", s)
	}
}

// TestEdgesWithoutTheirSite: they are counted, and the first are named, by data centre.
func TestEdgesWithoutTheirSite(t *testing.T) {
	l := newLender(t, "12:00:00", 100, 100)
	for _, c := range []struct {
		n    uint64
		want string
	}{{2, "map[dublin:{2 [edge-3 edge-4]}]"}, {0, "map[]"}} {
		n, want := c.n, c.want
		for range 2 {
			for dc, down := range map[string]uint64{"dublin": n, "nairobi": 0} {
				l.seq[dc]++
				l.root.Observe(l.now, wire.Report{
					From: dc, Instance: 1, Seq: l.seq[dc], Parts: 1, Sent: l.now, Seen: l.term, Acked: l.acked[dc],
					Join:  l.seq[dc] == 1,
					Rooms: []wire.RoomReport{{Room: sale, SiteDown: down, SiteDownAt: []string{"edge-3", "edge-4"}}},
				})
			}
			l.grants()
		}
		if got := fmt.Sprint(l.root.SitesDown(sale)); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
