package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vestibule/internal/allinone"
	"vestibule/internal/core/room"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/sim"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/visitor"
)

var crowds = flag.Int("crowds", 0, "rooms of each crowd in TestCrowds; 0: it is skipped (`make crowd`)")

// TestCrowds runs the crowds of sim.Crowds and sim.Flashes as HTTP clients with separate cookies and connections against four edges in
// two data centres. It compares every forecast with the actual wait and prints the figures of each crowd, and of all its
// rooms, and judges them by their goals. The same figures on virtual time: `make figures ONLY=crowds`.
func TestCrowds(t *testing.T) {
	if *crowds == 0 {
		t.Skip("`make crowd` runs it")
	}
	bin := build(t)
	h := &hall{origin: startSite(t, bin).at["url"]}
	_, h.Info = demo(t, exec.CommandContext(t.Context(), filepath.Join(bin, "vestibule"), "demo",
		"--listen", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "data"), "--edges", "2", "--origin", h.origin))
	for i, c := range slices.Concat(sim.Crowds(), sim.Flashes()) {
		for n := range *crowds {
			h.rooms = append(h.rooms, &crowdRoom{Crowd: c, name: fmt.Sprintf("crowd-%d-%d", i, n)})
		}
	}
	h.edit(t, func() {})
	for _, e := range h.Edges {
		for _, r := range h.rooms {
			v := visitor.Visitor{Host: r.name + ".example"}
			until(t, e.URL+" knows "+r.name+", and nobody waits", func() bool {
				req := testkit.Must(v.Request(t.Context(), e.URL+"/.well-known/vestibule/events?room="+r.name))(t)
				resp, err := client.Do(req)
				return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusNoContent
			})
		}
	}
	pause(t.Context(), 3*time.Second) // permits are on their way to the edges
	for rooms := range slices.Chunk(h.rooms, *crowds) {
		t.Run(rooms[0].Name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			all, c := &sim.Words{}, rooms[0].Crowd
			t.Cleanup(func() {
				t.Logf("%s (T %d, R %d, sessions of %v), %d rooms\n%s", c.Name, c.Total, c.Rate, c.Session, len(rooms), all)
				all.Judge(c.Name, func(goal, of string, value float64) { figures.Check(t, goal, of, value) })
			})
			for i, r := range rooms {
				t.Run(fmt.Sprint(i+1), func(t *testing.T) {
					t.Parallel()
					words := r.play(t, h)
					t.Log(words)
					mu.Lock()
					defer mu.Unlock()
					all.Add(words)
				})
			}
		})
	}
}

// hall is a tree with a room for each crowd.
type hall struct {
	allinone.Info
	origin string

	mu    sync.Mutex
	rooms []*crowdRoom
}

// crowdRoom is a crowd in a separate room.
type crowdRoom struct {
	sim.Crowd
	name  string
	event string // in rooms.yaml, "" for none
	// time since the start from which answers reflect the newest change of the limits; 0 for no change
	heard atomic.Int64

	begins time.Time // the event of a draw
}

// edit changes rooms, and writes all of them.
func (h *hall) edit(t *testing.T, change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	var b strings.Builder
	b.WriteString("rooms:\n")
	for _, r := range h.rooms {
		fmt.Fprintf(&b, "- {name: %s, host: %[1]s.example, path: /, total_active_users: %d, new_users_per_minute: %d, "+
			"session_duration: %v, queueing_method: %s, origin: %q%s}\n", r.name, r.Total, r.Rate, r.Session,
			cmp.Or(r.Method, room.MethodFIFO), h.origin, r.event)
	}
	written := h.Rooms + ".new"
	testkit.NoError(t, errors.Join(os.WriteFile(written, []byte(b.String()), 0o600), os.Rename(written, h.Rooms)))
}

// play runs the crowd, and returns the forecasts once everybody is inside.
func (r *crowdRoom) play(t *testing.T, h *hall) *sim.Words {
	ctx, stop := context.WithTimeout(t.Context(), r.Over+10*time.Minute)
	defer stop()
	if r.Draw {
		r.announce(ctx, t, h)
	}
	words := &sim.Words{}
	var order drawOrder
	var mu sync.Mutex
	var all sync.WaitGroup
	missing := 0
	rng := rand.New(rand.NewPCG(1, uint64(r.People)))
	begin := time.Now()
	all.Go(func() { // the operator
		for _, c := range r.Changes {
			if pause(ctx, time.Until(begin.Add(c.At))); ctx.Err() == nil {
				h.edit(t, func() { r.Total, r.Rate, r.Session = c.Of(r.Total, r.Rate, r.Session) })
				r.heard.Store(int64(time.Since(begin) + sim.Heard))
			}
		}
	})
	people := r.People
	if r.Draw {
		people += people / 20 // come around the start of the event
	}
	for i := range people {
		at, late := time.Duration(rng.Int64N(int64(r.Over))), i >= r.People
		if late {
			at = r.begins.Sub(begin) - time.Second + time.Duration(rng.Int64N(int64(3*time.Second)))
		}
		p := r.comer(h, rand.New(rand.NewPCG(uint64(i), uint64(r.People))), begin, i%2 == 0)
		all.Go(func() {
			defer p.Client.CloseIdleConnections()
			pause(ctx, at)
			joined, entered, ok := p.waitInside(ctx)
			mu.Lock()
			switch {
			case !ok:
				missing++
			case at >= r.From && !late:
				words.Entered(&p.heard, p.place, joined, entered)
			}
			if ok && r.Draw {
				order = append(order, drawTurn{p.receipt, p.rank, p.asked.Add(drawAsked).After(r.begins), late, entered})
			}
			mu.Unlock()
			if ok {
				p.browse(ctx)
			}
		})
	}
	all.Wait()
	if missing > 0 {
		t.Errorf("%d of %d people did not come in", missing, people)
	}
	if r.Draw {
		order.judge(recordOf(t, h.Edges[0].URL, r.name), r.Total).check(t)
	}
	return words
}

// announce gives the room an event with a draw, and waits until every node knows it.
func (r *crowdRoom) announce(ctx context.Context, t *testing.T, h *hall) {
	const read = 5 * time.Second
	now := time.Now().UTC()
	start := now.Add(read + r.Start()).Truncate(time.Second)
	r.begins = start
	at := func(when time.Time) string { return when.Format(time.RFC3339) }
	h.edit(t, func() {
		r.event = fmt.Sprintf(", events: [{name: launch, prequeue_start_time: %q, event_start_time: %q, "+
			"event_end_time: %q, shuffle_at_event_start: true}]",
			at(now.Add(-6*time.Minute)), at(start), at(start.Add(time.Hour)))
	})
	pause(ctx, read)
}
