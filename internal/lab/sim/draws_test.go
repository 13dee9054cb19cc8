package sim

import (
	"slices"
	"sort"
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
)

// TestDraws: under faults nobody enters before a draw is settled, or by a place other than the drawn one; and these
// worlds do make draws.
func TestDraws(t *testing.T) {
	t.Parallel()
	made, entered := 0, 0
	for seed := range uint64(12) {
		w := New(target("draws").Draw(seed))
		w.oracle.seeDrawn = func(*draw.Notice, *ticket.Ticket) { entered++ }
		if r := w.Run(); r.Fault != "" {
			t.Errorf("draws, seed %d: %s", seed, r.Fault)
		}
		for _, n := range drawsOf(w) {
			if n.Drawn() != nil {
				made++
			}
		}
	}
	if made < 6 || entered < 50 {
		t.Errorf("%d draws were made, and %d people entered by them", made, entered)
	}
}

func drawsOf(w *World) []*draw.Notice {
	if b := w.operator.draws.board; b != nil {
		return b.Notices
	}
	return nil
}

// TestADrawEntersByRank: at the start of an event the free permits go to the first of the drawn order, among the
// visitors that asked in the last ten seconds before it. Latecomers and visitors further back do not enter before
// them, although they ask at the same time, and although some of the first have gone without a word. One further back
// enters once all of the first have entered or gone.
func TestADrawEntersByRank(t *testing.T) {
	t.Parallel()
	const people, permits = 250, 40
	seeds := uint64(60)
	if testing.Short() {
		seeds = 20 // each combination of the parameters once
	}
	for seed := range seeds {
		begin := 75*time.Second + time.Duration(seed%4)*2500*time.Millisecond
		c := Defaults()
		c.Seed, c.Probation = seed+1, room.DefaultProbation
		c.Centres, c.Edges, c.Total, c.Rate, c.Session = 2, 2, permits, 6000, time.Minute
		c.People = People{Pages: 3, Think: 20 * time.Second, Stay: 0.5 * float64(seed%2)}
		if seed%5 > 2 {
			c.People.Patience = 5 * time.Minute
		}
		c.Network.WAN = 5 * time.Millisecond
		c.Demand = Demand{Spikes: []Spike{
			{At: 10 * time.Second, Length: 20 * time.Second, PerMinute: people * 3},
			{At: begin - draw.Lead, Length: draw.Lead + 10*time.Second, PerMinute: 60},
		}}
		w := New(c)
		w.expect(begin, &room.Event{ID: eventID, End: int64(epoch.Add(time.Hour)), Shuffle: true})
		type entrant struct {
			place fleettime.Time
			rank  uint64 // as told
		}
		var places []fleettime.Time // of those that asked in the last ten seconds
		var entrants []entrant
		wrong, off := 0, 0
		w.in(begin-time.Millisecond, func() {
			for i := range w.visitors.all {
				k := &w.visitors.all[i].pass.ticket
				if k.ID == 0 || k.Flags&ticket.Returned == 0 || k.Joined >= epoch.Add(begin-draw.Lead) {
					continue
				}
				entrants = append(entrants, entrant{k.Place(), k.Rank()})
				if asked := begin - fleettime.Time(int64(k.Seen)*1000).Sub(epoch); asked <= 10*time.Second {
					places = append(places, k.Place())
				}
			}
		})
		last := map[fleettime.Time]bool{} // places of visitors at whose admission none of the first waited
		w.oracle.seeDrawn = func(_ *draw.Notice, k *ticket.Ticket) {
			last[k.Place()] = !slices.ContainsFunc(w.visitors.all, func(v visitor) bool {
				first := slices.Contains(places[:min(permits, len(places))], v.pass.ticket.Place())
				return first && !v.inside && v.pass.ticket.ID != 0 && v.pass.ticket.ID != k.ID
			})
		}
		w.runFor(begin)
		slices.Sort(places)
		w.runFor(time.Minute)
		if f := w.result().Fault; f != "" {
			t.Fatalf("seed %d: %s", seed, f)
		}
		entered := w.meters.joined // places, in the order of admission
		if len(entered) < permits || len(places) < permits {
			t.Fatalf("seed %d: %d entered, %d asked in the last ten seconds", seed, len(entered), len(places))
		}
		for i, place := range entered[:permits] {
			// also of latecomers, whose places are behind the draw
			if at := fleettime.Time(place); at > places[permits-1] && !last[at] {
				wrong++
				t.Errorf("seed %d: number %d that entered has rank %d of those that asked", seed, i+1,
					1+sort.Search(len(places), func(i int) bool { return int64(places[i]) >= place }))
			}
		}
		slices.SortFunc(entrants, func(a, b entrant) int { return int(a.place - b.place) })
		for i, x := range entrants {
			if x.rank == 0 {
				t.Errorf("seed %d: an entrant got no rank", seed)
			}
			off = max(off, i+1-int(x.rank), int(x.rank)-i-1)
		}
		if all := c.People.Patience == 0; all && off > people/50 {
			t.Errorf("seed %d: got a rank that is %d off the true one of %d", seed, off, len(entrants))
		}
		t.Logf("seed %d: of the first %d, %d wrong; %d asked in the last ten seconds; ranks of %d entrants at most %d off",
			seed, permits, wrong, len(places), len(entrants), off)
	}
}
