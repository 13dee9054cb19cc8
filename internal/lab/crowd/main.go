// Command crowd runs real HTTP clients with separate cookies and connections against four real edges in two data
// centres. It compares every forecast with the actual wait, prints the figures of each scenario next to their
// goals, and exits with 1 if a client did not get in. `make crowd` runs it. The same figures on virtual time:
// vestibule simulate figures --only crowd.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/process"
	"vestibule/internal/lab/sim"
	"vestibule/internal/lab/site"
)

func main() {
	only := flag.String("only", "", "only scenarios whose name contains this")
	dir := flag.String("dir", "", "folder for the binary, data and logs; empty for one that is deleted after a good run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "crowd:", err)
		os.Exit(1) //nolint:gocritic // nothing is deferred that matters now
	}
}

func run(ctx context.Context, only, dir string, out io.Writer) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "vestibule-crowd-"); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				err = os.RemoveAll(dir)
			} else {
				err = fmt.Errorf("%w (logs and data are in %s)", err, dir)
			}
		}()
	}
	begun := time.Now()
	shop, err := site.Open("127.0.0.1", func() time.Duration { return time.Since(begun) })
	if err != nil {
		return err
	}
	defer shop.Close() // closed for new connections
	t, err := startTree(ctx, dir, shop.URL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	var scenarios []*scenario
	for i, c := range sim.Crowds() {
		scenarios = append(scenarios, &scenario{Crowd: c, room: fmt.Sprintf("crowd-%d", i)})
	}
	t.scenarios, t.origin = scenarios, shop.URL()
	if err := t.edit(func() {}); err != nil {
		return err
	}
	if err := t.ready(ctx, scenarios); err != nil {
		return err
	}
	// Three run in parallel, to finish within six minutes.
	lanes := make([][]*scenario, 3)
	chosen := 0
	for i := range scenarios {
		if s := scenarios[i]; strings.Contains(s.Name, only) {
			lanes[i%len(lanes)] = append(lanes[i%len(lanes)], s)
			chosen++
		}
	}
	if chosen == 0 {
		return fmt.Errorf("-only: no scenario's name contains %q", only)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, lane := range lanes {
		all.Go(func() {
			for _, s := range lane {
				title := s.title()
				words, e := s.play(ctx, t)
				mu.Lock()
				fmt.Fprintf(out,
					"%s\n    %s\n    goals: error <= %.2f, range covers 0.72 to 0.88, \"next\" in vain 0, rises without the word 0, first answers corrected 0\n", title, words, s.Error)
				if e != nil {
					errs = append(errs, fmt.Errorf("%s: %w", s.Name, e))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// scenario is a crowd in a separate room.
type scenario struct {
	sim.Crowd
	room  string
	event string // in rooms.yaml, "" for none
	// time since the start from which answers reflect the newest change of the limits; 0 for no change
	heard atomic.Int64
}

func (s *scenario) title() string {
	return fmt.Sprintf("%s (T %d, R %d, sessions of %v)", s.Name, s.Total, s.Rate, s.Session)
}

// host returns the host of the scenario's room.
func (s *scenario) host() string { return s.room + ".example" }

// play runs the crowd, and returns the forecasts once everybody is inside.
func (s *scenario) play(ctx context.Context, t *tree) (*sim.Words, error) {
	ctx, stop := context.WithTimeout(ctx, s.Over+5*time.Minute)
	defer stop()
	words := &sim.Words{}
	var mu sync.Mutex
	var all sync.WaitGroup
	missing := 0
	rng := rand.New(rand.NewPCG(1, uint64(s.People)))
	if s.Draw {
		if err := s.announce(ctx, t); err != nil {
			return words, err
		}
	}
	begin := time.Now()
	var failed error
	all.Go(func() { failed = s.change(ctx, t, begin) })
	for i := range s.People {
		at := time.Duration(rng.Int64N(int64(s.Over)))
		p := s.person(t, rand.New(rand.NewPCG(uint64(i), uint64(s.People))), begin, i%2 == 0)
		all.Go(func() {
			defer p.Client.CloseIdleConnections()
			if !pause(ctx, at) {
				return
			}
			joined, entered, ok := p.waitInside(ctx)
			mu.Lock()
			switch {
			case !ok:
				missing++
			case at >= s.From:
				words.Entered(&p.heard, p.place, joined, entered)
			}
			mu.Unlock()
			if ok {
				p.browse(ctx)
			}
		})
	}
	all.Wait()
	if failed != nil {
		return words, failed
	}
	if missing > 0 {
		return words, fmt.Errorf("%d of %d people did not come in", missing, s.People)
	}
	return words, nil
}

// change changes the limits at their times, like an operator.
func (s *scenario) change(ctx context.Context, t *tree, begin time.Time) error {
	for _, c := range s.Changes {
		if !pause(ctx, time.Until(begin.Add(c.At))) {
			return ctx.Err()
		}
		if err := t.edit(func() { s.Total, s.Rate, s.Session = c.Of(s.Total, s.Rate, s.Session) }); err != nil {
			return err
		}
		s.heard.Store(int64(time.Since(begin) + sim.Heard))
	}
	return nil
}

// announce gives the room an event with a draw, and waits until every node knows it.
func (s *scenario) announce(ctx context.Context, t *tree) error {
	const read = 5 * time.Second
	now := time.Now().UTC()
	start := now.Add(read + s.Start())
	err := t.edit(func() {
		s.event = fmt.Sprintf(", events: [{name: launch, prequeue_start_time: %q, event_start_time: %q, event_end_time: %q, shuffle_at_event_start: true}]",
			now.Add(-6*time.Minute).Format(time.RFC3339), start.Format(time.RFC3339), start.Add(time.Hour).Format(time.RFC3339))
	})
	pause(ctx, read)
	return err
}

// pause sleeps; it returns false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// tree is the running waiting room: vestibule demo with our rooms.
type tree struct {
	Edges []struct{ URL, Metrics string }
	Rooms string

	process *process.Process

	editing   sync.Mutex
	scenarios []*scenario
	origin    string // URL of the site
}

// startTree builds and starts the waiting room in front of our site.
func startTree(ctx context.Context, dir, origin string) (*tree, error) {
	if err := process.Build(ctx, dir, "vestibule/cmd/vestibule"); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // written by the process
	t := &tree{}
	if t.process, err = process.Start(process.Options{Name: "vestibule demo", Stderr: log, Argv: []string{
		filepath.Join(dir, "vestibule"), "demo", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "data"),
		"--edges", "2", "--origin", origin,
	}}); err != nil {
		return nil, err
	}
	if err := t.process.Addresses(time.Minute, t); err != nil {
		return nil, errors.Join(err, t.stop())
	}
	return t, nil
}

func (t *tree) stop() error {
	return errors.Join(t.process.End(syscall.SIGTERM, time.Minute), t.process.Err())
}

// edit changes scenarios, and writes the rooms of all of them.
func (t *tree) edit(change func()) error {
	t.editing.Lock()
	defer t.editing.Unlock()
	change()
	var b strings.Builder
	b.WriteString("rooms:\n")
	for _, s := range t.scenarios {
		fmt.Fprintf(&b,
			"  - {name: %s, host: %s, path: /, total_active_users: %d, new_users_per_minute: %d, session_duration: %v, queueing_method: %s, origin: %q%s}\n",
			s.room, s.host(), s.Total, s.Rate, s.Session, cmp.Or(s.Method, room.MethodFIFO), t.origin, s.event)
	}
	if err := os.WriteFile(t.Rooms+".new", []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(t.Rooms+".new", t.Rooms)
}

// ready waits until every edge knows every room, and a while longer for the permits.
func (t *tree) ready(ctx context.Context, scenarios []*scenario) error {
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	for _, e := range t.Edges {
		for i := range scenarios {
			for {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet,
					e.URL+"/.well-known/vestibule/events?room="+scenarios[i].room, nil)
				if err != nil {
					return err
				}
				req.Host = scenarios[i].host()
				resp, err := http.DefaultClient.Do(req)
				if err == nil {
					resp.Body.Close() // empty
					if resp.StatusCode == http.StatusNoContent {
						break // it knows the room, and nobody waits
					}
				}
				if !pause(ctx, 100*time.Millisecond) {
					return fmt.Errorf("edge %s does not serve %s: %w", e.URL, scenarios[i].host(), ctx.Err())
				}
			}
		}
	}
	pause(ctx, 3*time.Second) // permits are on their way to the edges
	return nil
}
