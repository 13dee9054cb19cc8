package admission

import (
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
)

// TestAnEdgeSaysWhyNobodyEnters: each reason of the edge itself, the site's first, and none while it has permits.
func TestAnEdgeSaysWhyNobodyEnters(t *testing.T) {
	full := &wire.View{Version: 1, At: day, Cutoff: day.Add(time.Hour), Free: 0, Active: 10}
	for name, c := range map[string]struct {
		credit uint64
		do     func(e *Engine, r *regional)
		after  time.Duration
		want   stop.Stop
	}{
		"permits in hand": {1, nil, 0, stop.Stop{}},
		"none in hand":    {0, nil, 0, stop.Stop{}}, // the next grant may bring one
		"a full room": {
			0, func(_ *Engine, r *regional) { r.held.View = full; r.room(at(0), r.held) }, 0,
			stop.Stop{Reason: stop.Full},
		},
		"the last permit": {1, func(_ *Engine, r *regional) { r.held.View = full; r.room(at(0), r.held) }, 0, stop.Stop{}},
		"its site is down": {
			1, func(e *Engine, _ *regional) { e.Rooms.Pause(at(0), sale, true) }, 0,
			stop.Stop{Reason: stop.SiteDown, Centre: "nairobi", Edges: 1},
		},
		"the site is back": {
			1, func(e *Engine, _ *regional) { e.Rooms.Pause(at(0), sale, true); e.Rooms.Pause(at(0), sale, false) }, 0,
			stop.Stop{},
		},
		"draining": {
			1, func(_ *Engine, r *regional) { r.standing = wire.Draining; r.grant(at(0), 0, 0) }, 0,
			stop.Stop{Reason: stop.Draining, Centre: "nairobi"},
		},
		"not listed": {
			1, func(_ *Engine, r *regional) { r.standing = wire.Unlisted; r.grant(at(0), 0, 0) }, 0,
			stop.Stop{Reason: stop.Unlisted, Centre: "nairobi"},
		},
		"a lapsed lease": {1, nil, 10 * time.Second, stop.Stop{Reason: stop.NoLease, Centre: "nairobi"}},
	} {
		e, r := newEdge(t, at(0), c.credit, 10)
		if c.do != nil {
			c.do(e, r)
		}
		now := at(0).Add(c.after)
		if got := e.Rooms.Stop(now, sale); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	e := New(Config{Edge: "edge-1", DC: "nairobi", Params: wire.DefaultParams(), Rand: rand.New(rand.NewPCG(1, 2))})
	e.SetRooms(at(0), []Room{{ID: sale}})
	if got := e.Rooms.Stop(at(0), sale); got.Reason != stop.NoLease || got.Since != 0 {
		t.Errorf("before the first grant: %+v", got)
	}
	e, _ = newEdge(t, at(0), 1, 10)
	lapsed := at(0).Add(4 * time.Second)
	e.Arrive(lapsed, sale, waiting(7, time.Minute)) // notices that
	got := e.Rooms.Stop(lapsed.Add(time.Minute), sale)
	if got.Reason != stop.NoLease || got.Since != day.Add(4*time.Second)+fleettime.Time(at(0)/1e6) {
		t.Errorf("a minute after the lease was missed: %+v", got)
	}
}

// TestAReportSaysThatTheSiteIsDown: global counts the edges at which a site does not answer.
func TestAReportSaysThatTheSiteIsDown(t *testing.T) {
	e, r := newEdge(t, at(0), 1, 10)
	for _, down := range []bool{true, false} {
		e.Rooms.Pause(at(1), sale, down)
		if got := r.hear(at(1)).Rooms[0].SiteDown; (got == 1) != down {
			t.Errorf("down %v: %d", down, got)
		}
	}
}
