//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"vestibule/internal/lab/judge"
)

// closure is a loss after which data centres admit nobody for a while.
type closure struct {
	name, what string
	away       bool // the second place is cut off meanwhile, and not judged

	// lose returns once everything that was lost for a while is back, and since when the closure counts; 0 for all of it.
	lose func(ctx context.Context, t *trial) (since time.Duration, err error)
}

// closureGoals are the goals of the first two places.
var closureGoals = [2]string{
	"closures: no admissions in the first data centre", "closures: no admissions in the second data centre",
}

// judges reports whether the closure of a place is judged.
func (c *closure) judges(place int) bool { return place < len(closureGoals) && (place == 0 || !c.away) }

// The coordinators are global and the regionals.
var closures = []closure{
	{
		"half", "the coordinators of global and the first data centre are killed", true,
		restarted(syscall.SIGKILL, coordinatesFirst),
	},
	{
		"stopped", "all processes but those of the second data centre are stopped", true,
		restarted(syscall.SIGTERM, notSecond),
	},
	{
		"older", "all coordinators are killed, and the store comes back older", false,
		storesLost(coordinates, syscall.SIGKILL, storeNodes, true),
	},
	{
		"empty", "all coordinators are killed, and the store comes back empty", false,
		storesLost(coordinates, syscall.SIGKILL, storeNodes, false),
	},
	{"recover", "the same, then vestibule fleet recover", false, recovered},
	{
		"regional", "the regionals of the first data centre are stopped, and its NATS loses its folder", false,
		storesLost(firstRegional, syscall.SIGTERM, named("nats-"+places[0]), false),
	},
	{"killed", "all processes are killed", false, restarted(syscall.SIGKILL, ours)},
	{
		"centre", "the regionals and edges of the first data centre are killed", false,
		restarted(syscall.SIGKILL, first),
	},
	{
		"edge", "one edge of four is killed", false,
		restarted(syscall.SIGKILL, anEdge),
	},
	{
		"cut", "an edge is cut off while its regionals and global are killed", false,
		missedEdge(cutOff),
	},
	{
		"silent", "an edge stands still while its regionals and global are killed", false,
		missedEdge(standStill),
	},
	{
		"disk", "the disk of the first data centre's NATS was full for 15 s", false,
		diskFull("nats-" + places[0]),
	},
	{
		"disks", "the disks of global's NATS servers were full for 15 s", false,
		diskFull("nats-1", "nats-2", "nats-3"),
	},
}

// Which processes of ours.
func ours(n *node) bool { return n.ours() }

func first(n *node) bool { return n.place == places[0] && (n.role == "regional" || n.role == "edge") }

func coordinatesFirst(n *node) bool {
	return n.role == "global" && n.place != places[1] || n.role == "regional" && n.place == places[0]
}
func notSecond(n *node) bool { return n.ours() && n.place != places[1] }
func anEdge(n *node) bool    { return n.role == "edge" && isFirstEdge(n.place, n.name) }

func isFirstEdge(place, name string) bool { return place == places[0] && strings.HasSuffix(name, "-1") }
func coordinates(n *node) bool            { return n.role == "global" || n.role == "regional" }
func firstRegional(n *node) bool          { return n.role == "regional" && n.place == places[0] }
func storeNodes(n *node) bool             { return n.role == "nats" }

func named(names ...string) func(*node) bool {
	return func(n *node) bool { return slices.Contains(names, n.name) }
}

// chosen returns the present nodes that are chosen.
func (f *fleet) chosen(which func(*node) bool) []*node {
	return slices.DeleteFunc(f.present(), func(n *node) bool { return !which(n) })
}

// closedMost is how long a closure is watched.
const closedMost = 2 * time.Minute

// closed is the cost of a closure.
type closed struct {
	*closure
	from, since, until time.Duration // the loss, since when the closure counts, and the end of the watch
}

// closeAll plays the closures with a name that matches -only, one after the other.
func closeAll(ctx context.Context, t *trial) error {
	only, err := regexp.Compile("^(" + t.o.only + ")$")
	if err != nil {
		return err
	}
	for i := range closures {
		c := closed{closure: &closures[i]}
		if t.o.only != "" && !only.MatchString(c.name) {
			continue
		}
		sleep(ctx, t.o.session+10*time.Second) // the room is full, and visitors come and go
		if err := t.close(ctx, &c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		t.closed = append(t.closed, c)
		t.away.Wait()
		if err := t.recover(ctx, false); err != nil {
			return fmt.Errorf("after %s: %w", c.name, err)
		}
	}
	return ctx.Err()
}

// close plays a closure, and measures how long nobody enters.
func (t *trial) close(ctx context.Context, c *closed) (err error) {
	if c.away {
		cut, heal := context.WithCancel(ctx)
		link := make(chan error, 1)
		go func() { link <- t.in.part(cut, fault{place: places[1], lasts: 2 * closedMost}) }()
		defer func() { heal(); err = errors.Join(err, <-link) }()
		sleep(ctx, 15*time.Second) // global's NATS servers elect their leaders without that of the place
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	c.from = t.since()
	t.j.record("closed", "closure  %s: %s; load %s", c.name, c.what, strings.Fields(string(load))[0])
	if c.since, err = c.lose(ctx, t); err != nil {
		return err
	}
	c.since = max(c.since, c.from)
	back := t.since()
	err = t.wait(ctx, closedMost, func() error {
		for i, dc := range t.dcs {
			if c.judges(i) && t.people.entered(dc, back) < enough {
				return fmt.Errorf("%w in %s", errNobody, dc)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, errNobody) {
		return err
	}
	sleep(ctx, usedAfter)
	c.until = t.since()
	return nil
}

// full is the part of a limit from which on it counts as exhausted: nobody is expected to enter then. The judge counts
// only what is certain.
const full = 0.93

// sessionsIn returns the sessions that were admitted in a data centre, "" for all.
func (t *trial) sessionsIn(v *verdict, dc string) (out []judge.Span) {
	for _, e := range t.edgesEver() {
		if dc == "" || e.place == dc {
			out = append(out, v.sessions[e.number]...)
		}
	}
	return out
}

// closedFor returns the longest time without an admission in a data centre while it had fewer sessions than when the
// closure began, and neither limit was exhausted.
func (t *trial) closedFor(c *closed, dc string, v *verdict) (longest time.Duration) {
	const step = 100 * time.Millisecond
	t.people.mu.Lock()
	here := slices.Clone(t.people.newest[dc])
	all := slices.Concat(slices.Collect(maps.Values(t.people.newest))...)
	t.people.mu.Unlock()
	within := func(entries []time.Duration, from, to time.Duration) (n int) {
		for _, at := range entries {
			if at >= from && at < to {
				n++
			}
		}
		return n
	}
	own, total, had := t.sessionsIn(v, dc), t.sessionsIn(v, ""), 0.0
	for at := c.from - 5*time.Second; at < c.from+5*time.Second; at += step {
		had = max(had, judge.Use(own, at, at+step))
	}
	gap := time.Duration(0)
	for at := c.since; at < c.until; at += step {
		switch {
		case within(here, at, at+step) > 0:
			gap = 0
		case judge.Use(own, at, at+step) >= full*had, judge.Use(total, at, at+step) >= full*float64(t.o.total),
			float64(within(all, at-time.Minute, at)) >= full*float64(t.o.rate):
		default:
			gap += step
		}
		longest = max(longest, gap)
	}
	return longest
}

// reportClosed prints the costs of the closures, by the site's log.
func (t *trial) reportClosed(v *verdict) {
	all := t.sessionsIn(v, "")
	for _, c := range t.closed {
		var parts []string
		for i, dc := range t.dcs {
			if !c.judges(i) {
				continue
			}
			took := t.closedFor(&c, dc, v)
			t.judge(closureGoals[i], c.name, took.Seconds())
			parts = append(parts, fmt.Sprintf("%s closed %.1f s", dc, took.Seconds()))
		}
		out := 0
		for _, at := range v.unrenewed {
			if at >= c.from && at <= c.until {
				out++
			}
		}
		t.judge("closures: visitors put out", c.name, float64(out))
		use := func(from, to time.Duration) float64 { return judge.Use(all, from, to) / float64(t.o.total) }
		t.row(c.name, "%s; put out %d; use of T %.2f, %.2f, %.2f", strings.Join(parts, ", "), out,
			use(c.from-10*time.Second, c.from), use(c.from, c.until-10*time.Second), use(c.until-10*time.Second, c.until))
	}
}

// restarted ends nodes at once and starts them again after a second.
func restarted(sig syscall.Signal, which func(*node) bool) func(context.Context, *trial) (time.Duration, error) {
	return func(ctx context.Context, t *trial) (time.Duration, error) {
		return 0, t.restart(ctx, t.chosen(which), sig, time.Second)
	}
}

// storesLost ends coordinators while stores are lost, or replaced by older ones.
func storesLost(who func(*node) bool, sig syscall.Signal, which func(*node) bool, older bool,
) func(context.Context, *trial) (time.Duration, error) {
	return func(ctx context.Context, t *trial) (since time.Duration, err error) {
		stores := t.chosen(which)
		if older {
			for _, n := range stores {
				if err := t.backUp(ctx, n); err != nil {
					return 0, err
				}
			}
			sleep(ctx, t.o.session/2)
			since = t.since()
		}
		var all sync.WaitGroup
		var lost, ended error
		all.Go(func() { ended = t.restart(ctx, t.chosen(who), sig, 3*time.Second) })
		all.Go(func() { lost = t.loseStores(ctx, stores, time.Second) })
		all.Wait()
		return since, errors.Join(ended, lost)
	}
}

// backUp copies the folder of a NATS server, which is stopped meanwhile. loseStores restores it.
func (t *trial) backUp(ctx context.Context, n *node) error {
	n.claim()
	defer n.free()
	if err := n.end(syscall.SIGTERM); err != nil {
		return err
	}
	return errors.Join(os.CopyFS(backupOf(n), os.DirFS(n.dataDir())), t.revive(ctx, n), t.settled(ctx, wholeWithin))
}

// backupOf returns the folder of a node's backup.
func backupOf(n *node) string {
	return filepath.Join(filepath.Dir(n.dataDir()), "backup-"+filepath.Base(n.dataDir()))
}

// recovered loses the store with all coordinators, and declares that no session of before is left.
func recovered(ctx context.Context, t *trial) (time.Duration, error) {
	if _, err := storesLost(coordinates, syscall.SIGKILL, storeNodes, false)(ctx, t); err != nil {
		return 0, err
	}
	sleep(ctx, settling)
	since := t.since()
	for _, dc := range t.dcs {
		if out, err := t.command(ctx, "fleet", "forget", "--all", "--over", "--dc", dc); err != nil {
			return 0, fmt.Errorf("%w: %s", err, out)
		}
	}
	return since, nil
}

// missedEdge loses an edge for a minute while its regionals and global are replaced.
func missedEdge(lose func(t *trial, n *node) (back func(), err error)) func(context.Context, *trial) (time.Duration, error) {
	return func(ctx context.Context, t *trial) (time.Duration, error) {
		n := t.chosen(anEdge)[0]
		n.claim()
		n.up.Store(true)
		back, err := lose(t, n)
		if err != nil {
			return 0, err
		}
		t.away.Add(1)
		time.AfterFunc(time.Minute, func() {
			defer t.away.Done()
			back()
			n.free()
		})
		return 0, t.restart(ctx, t.chosen(coordinatesFirst), syscall.SIGKILL, time.Second)
	}
}

func cutOff(t *trial, n *node) (back func(), err error) {
	gate := t.in.gates[cutEdge]
	gate.cut.Store(true)
	return func() { gate.cut.Store(false) }, nil
}

func standStill(t *trial, n *node) (back func(), err error) {
	well := n.unwell()
	return func() {
		_ = n.signal(syscall.SIGCONT) // it may have ended with the run
		well()
	}, n.signal(syscall.SIGSTOP)
}

// diskFull fills the disks of NATS servers. Nobody restarts them.
func diskFull(names ...string) func(context.Context, *trial) (time.Duration, error) {
	return func(ctx context.Context, t *trial) (time.Duration, error) {
		var all sync.WaitGroup
		var errs [8]error
		for i, n := range t.chosen(named(names...)) {
			all.Go(func() { errs[i] = t.fillDisk(ctx, n, 15*time.Second) })
		}
		all.Wait()
		return t.since(), errors.Join(errs[:]...)
	}
}
