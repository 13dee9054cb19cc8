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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vestibule/internal/allinone"
	"vestibule/internal/core/room"
	"vestibule/internal/lab/sim"
	"vestibule/internal/lab/visitor"
)

var crowds = flag.Bool("crowds", false, "run TestCrowds (`make crowd`)")

// TestCrowds runs the crowds of sim.Crowds as HTTP clients with separate cookies and connections against four edges in
// two data centres. It compares every forecast with the actual wait and prints the figures of each crowd next to their
// goals. The same figures on virtual time: `make figures ONLY=crowds`.
func TestCrowds(t *testing.T) {
	if !*crowds {
		t.Skip("`make crowd` runs it")
	}
	bin := build(t)
	h := &hall{origin: startSite(t, bin).at["url"]}
	_, h.Info = demo(t, exec.CommandContext(t.Context(), filepath.Join(bin, "vestibule"), "demo",
		"--listen", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "data"), "--edges", "2", "--origin", h.origin))
	for i, c := range sim.Crowds() {
		h.rooms = append(h.rooms, &crowdRoom{Crowd: c, name: fmt.Sprintf("crowd-%d", i)})
	}
	h.edit(t, func() {})
	for _, e := range h.Edges {
		for _, r := range h.rooms {
			v := visitor.Visitor{Host: r.name + ".example"}
			until(t, e.URL+" knows "+r.name+", and nobody waits", func() bool {
				req, err := v.Request(t.Context(), e.URL+"/.well-known/vestibule/events?room="+r.name)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(req)
				return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusNoContent
			})
		}
	}
	pause(t.Context(), 3*time.Second) // permits are on their way to the edges
	for _, r := range h.rooms {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			title := fmt.Sprintf("%s (T %d, R %d, sessions of %v)", r.Name, r.Total, r.Rate, r.Session)
			t.Logf("%s\n%s\ngoals: error <= %.2f, range covers 0.72 to 0.88, \"next\" in vain 0, "+
				"rises without the word 0, first answers corrected 0", title, r.play(t, h), r.Error)
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
	if err := errors.Join(os.WriteFile(written, []byte(b.String()), 0o600), os.Rename(written, h.Rooms)); err != nil {
		t.Error(err)
	}
}

// play runs the crowd, and returns the forecasts once everybody is inside.
func (r *crowdRoom) play(t *testing.T, h *hall) *sim.Words {
	ctx, stop := context.WithTimeout(t.Context(), r.Over+5*time.Minute)
	defer stop()
	if r.Draw {
		r.announce(ctx, t, h)
	}
	words := &sim.Words{}
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
	for i := range r.People {
		at := time.Duration(rng.Int64N(int64(r.Over)))
		p := r.comer(h, rand.New(rand.NewPCG(uint64(i), uint64(r.People))), begin, i%2 == 0)
		all.Go(func() {
			defer p.Client.CloseIdleConnections()
			pause(ctx, at)
			joined, entered, ok := p.waitInside(ctx)
			mu.Lock()
			switch {
			case !ok:
				missing++
			case at >= r.From:
				words.Entered(&p.heard, p.place, joined, entered)
			}
			mu.Unlock()
			if ok {
				p.browse(ctx)
			}
		})
	}
	all.Wait()
	if missing > 0 {
		t.Errorf("%d of %d people did not come in", missing, r.People)
	}
	return words
}

// announce gives the room an event with a draw, and waits until every node knows it.
func (r *crowdRoom) announce(ctx context.Context, t *testing.T, h *hall) {
	const read = 5 * time.Second
	now := time.Now().UTC()
	start := now.Add(read + r.Start())
	at := func(when time.Time) string { return when.Format(time.RFC3339) }
	h.edit(t, func() {
		r.event = fmt.Sprintf(", events: [{name: launch, prequeue_start_time: %q, event_start_time: %q, "+
			"event_end_time: %q, shuffle_at_event_start: true}]",
			at(now.Add(-6*time.Minute)), at(start), at(start.Add(time.Hour)))
	})
	pause(ctx, read)
}
