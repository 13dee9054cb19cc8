//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"
)

// kind is a kind of fault. It happens to the fleet, or to a node that it claims.
type kind struct {
	name   string
	weight int                                                             // relative frequency
	draw   func(f *fault, rng *rand.Rand)                                  // changes what was drawn; nil for no change
	fleet  func(in *injector, ctx context.Context, f fault) error          // nil for a kind that claims a node
	node   func(in *injector, ctx context.Context, n *node, f fault) error // nil for one that does not
}

var kinds = []kind{
	{"edit", 5, nil, func(in *injector, _ context.Context, _ fault) error { return in.edit() }, nil},
	{"restart", 2, nil, (*injector).restartAll, nil},
	{"kill", 36, func(f *fault, rng *rand.Rand) { f.wipe = f.role == "edge" && rng.IntN(4) == 0 }, nil, (*injector).kill},
	{"stop", 15, nil, nil, (*injector).halt},
	{"cut", 12, func(f *fault, rng *rand.Rand) {
		from := rng.IntN(len(places))
		f.place, f.to = places[from], places[(from+1+rng.IntN(len(places)-1))%len(places)]
	}, (*injector).cut, nil},
	{"part", 8, func(f *fault, rng *rand.Rand) { f.place = places[rng.IntN(len(places))] }, (*injector).part, nil},
	{"narrow", 6, nil, (*injector).narrow, nil},
	{"late", 16, func(f *fault, rng *rand.Rand) {
		f.lasts *= 3 // long enough to matter
		mean := 20*time.Millisecond + time.Duration(rng.ExpFloat64()*float64(400*time.Millisecond))
		f.by = min(mean, 2*time.Second).Round(time.Millisecond)
	}, (*injector).late, nil},
}

// changes are the kinds that change the fleet itself.
var changes = []kind{
	{"rotate", 4, nil, func(in *injector, ctx context.Context, _ fault) error { return in.rotate(ctx) }, nil},
	{"replace", 4, ofEdge, nil, func(in *injector, ctx context.Context, n *node, _ fault) error { return in.replace(ctx, n) }},
	{
		"fill", 3, func(f *fault, _ *rand.Rand) { f.role, f.lasts = "nats", 3*f.lasts }, nil,
		func(in *injector, ctx context.Context, n *node, f fault) error { return in.fillDisk(ctx, n, f.lasts) },
	},
	{"lose", 1, nil, func(in *injector, ctx context.Context, f fault) error {
		return in.loseStores(ctx, in.of("nats", ""), f.lasts)
	}, nil},
	{"twin", 4, ofEdge, nil, (*injector).twin},
	{"member", 4, nil, func(in *injector, ctx context.Context, _ fault) error { return in.member(ctx) }, nil},
}

func ofEdge(f *fault, _ *rand.Rand) { f.role = "edge" }

// drawKind draws a kind by the weights.
func drawKind(kinds []kind, n int) *kind {
	i := 0
	for ; n >= kinds[i].weight; i++ {
		n -= kinds[i].weight
	}
	return &kinds[i]
}

// fault is one drawn fault.
type fault struct {
	kind   *kind
	at     time.Duration
	lasts  time.Duration
	role   string
	place  string // for a cut: the source place
	to     string
	by     time.Duration // delay of messages
	leader bool          // the leader
	wipe   bool          // an edge restarts without its folder
	pick   int           // otherwise this node, or the next one without a fault
}

// stormLength is the length of a series of faults. Then all heals, and the fleet has to recover before the next storm:
// under permanent faults it could keep the limits by admitting nobody.
const stormLength = 40 * time.Second

// firstGap is the mean gap between the faults of the first storm: at least twenty fit.
const firstGap = 1300 * time.Millisecond

// plan draws the faults of one storm, with the mean gap. Every role is killed and stopped.
func plan(rng *rand.Rand, length, gap time.Duration, dcs []string, change bool) []fault {
	roles := []string{"edge", "edge", "edge", "regional", "regional", "global", "global", "nats"}
	var out []fault
	for at := time.Duration(0); at < length; {
		f := fault{
			at: at, role: roles[rng.IntN(len(roles))], place: dcs[rng.IntN(len(dcs))],
			pick: rng.IntN(100), leader: rng.IntN(4) > 0,
			lasts: 200*time.Millisecond + time.Duration(rng.ExpFloat64()*float64(2*time.Second)),
		}
		if rng.IntN(6) == 0 {
			f.lasts *= 4 // longer than every lease
		}
		if f.kind = drawKind(kinds, rng.IntN(100)); change && rng.IntN(5) == 0 {
			f.kind = drawKind(changes, rng.IntN(20))
		}
		if f.kind.draw != nil {
			f.kind.draw(&f, rng)
		}
		f.lasts = min(f.lasts, 15*time.Second, length+5*time.Second-at)
		out = append(out, f)
		at += gap/4 + time.Duration(rng.Int64N(int64(gap*3/2)))
	}
	return out
}

// journal prints the faults with their times.
type journal struct {
	mu    sync.Mutex
	out   io.Writer
	since func() time.Duration
	done  map[string]int // by kind
}

func (j *journal) record(what, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if what != "" {
		j.done[what]++
	}
	fmt.Fprintf(j.out, "%7.2f s  %s\n", j.since().Seconds(), fmt.Sprintf(format, args...))
}

// injector injects faults into a deployment.
type injector struct {
	operator
	links *links
}

// do executes and reverts a fault. After an error the run cannot continue.
func (in *injector) do(ctx context.Context, f fault) error {
	if f.kind.fleet != nil {
		return f.kind.fleet(in, ctx, f)
	}
	n := in.victim(f)
	if n == nil {
		in.j.record("", "(every %s is in trouble already)", f.role)
		return nil
	}
	defer n.free()
	return f.kind.node(in, ctx, n, f)
}

// nameIn returns the name of a node, with its lead if the fault picks leaders.
func (f *fault) nameIn(n *node) string {
	if f.leader && (f.role == "global" || f.role == "regional") {
		return n.name + ", which leads"
	}
	return n.name
}

// halt stops a node with SIGSTOP for a while.
func (in *injector) halt(ctx context.Context, n *node, f fault) error {
	n.up.Store(true) // a stopped node is only noticed by requests
	well := n.unwell()
	in.j.record("stopped "+f.role, "stop     %s for %.1f s", f.nameIn(n), f.lasts.Seconds())
	if err := n.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	sleep(ctx, f.lasts)
	if err := n.signal(syscall.SIGCONT); err != nil {
		return err
	}
	well()
	return nil
}

// kill kills a node and starts it again after a while, without its folder if the fault wipes it.
func (in *injector) kill(ctx context.Context, n *node, f fault) error {
	verb, between := "kill     ", (func() error)(nil)
	var ended []uint64
	if f.wipe {
		verb, between = "kill+wipe", func() (err error) {
			if ended, err = n.instances(); err != nil {
				return err
			}
			return os.RemoveAll(n.dataDir())
		}
	}
	in.j.record("killed "+f.role, "%s %s, again after %.1f s", verb, f.nameIn(n), f.lasts.Seconds())
	err := in.startAgain(ctx, n, syscall.SIGKILL, f.lasts, between)
	if err == nil && len(ended) > 0 { // there is no proof any more that they have ended
		in.forget(ctx, n, ended...)
	}
	return err
}

// edit changes the rooms file, which all globals read: it replaces the second room.
func (op *operator) edit() error {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.edits++
	op.j.record("edited rooms", "edit     the rooms file: %s", op.second())
	return op.writeRooms(op.o.dir)
}

// victim claims the node of a fault, nil for none.
func (in *injector) victim(f fault) *node {
	place := f.place
	if f.role == "global" || f.role == "nats" {
		place = ""
	}
	candidates := in.of(f.role, place)
	if f.role == "nats" {
		// One at a time: writes need two of three.
		for _, n := range candidates {
			if !n.claim() {
				return nil
			}
			n.free()
		}
	}
	if f.leader && (f.role == "global" || f.role == "regional") {
		if n, _, err := in.leader(f.role, place); err == nil && n.claim() {
			return n
		}
	}
	for i := range candidates {
		if n := candidates[(f.pick+i)%len(candidates)]; n.claim() {
			return n
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// storm executes faults. The first error ends it.
func (in *injector) storm(ctx context.Context, faults []fault) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var all sync.WaitGroup
	begun := in.since()
	for _, f := range faults {
		sleep(ctx, f.at-(in.since()-begun))
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			if err := in.do(ctx, f); err != nil {
				end(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// restartAll ends every edge, regional and global that no other fault has claimed, and restarts them. With f.leader
// they are shut down, as by an operator, otherwise killed, as by a power cut. NATS and the machines keep running.
func (in *injector) restartAll(ctx context.Context, f fault) error {
	sig, verb := syscall.SIGKILL, "kill+all"
	if f.leader {
		sig, verb = syscall.SIGTERM, "restart"
	}
	var claimed []*node
	for _, role := range []string{"edge", "regional", "global"} {
		for _, n := range in.of(role, "") {
			if n.claim() {
				claimed = append(claimed, n)
			}
		}
	}
	in.j.record("started all again", "%-8s %d processes, again after %.1f s", verb, len(claimed), f.lasts.Seconds())
	return in.restart(ctx, claimed, sig, f.lasts)
}

// restart ends claimed or idle nodes at once, and starts them again after a while.
func (op *operator) restart(ctx context.Context, nodes []*node, sig syscall.Signal, after time.Duration) error {
	faults := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		n.claim()
		all.Go(func() {
			defer n.free()
			faults[i] = op.startAgain(ctx, n, sig, after, nil)
		})
	}
	all.Wait()
	return errors.Join(faults...)
}

// startAgain ends a process, calls between after a while, and starts the process.
func (op *operator) startAgain(ctx context.Context, n *node, sig syscall.Signal, after time.Duration,
	between func() error,
) error {
	n.up.Store(false)
	well := n.unwell()
	if err := n.end(sig); err != nil {
		return err
	}
	sleep(ctx, after)
	if n.gone.Load() { // removed meanwhile
		return nil
	}
	if between != nil {
		if err := between(); err != nil {
			return err
		}
	}
	if err := op.revive(ctx, n); err != nil {
		return err
	}
	if n.role == "edge" {
		if err := op.admits(ctx, n); err != nil {
			return err
		}
	}
	well()
	return nil
}

// revive starts a process that has ended. A connection may have taken its free port meanwhile.
func (op *operator) revive(ctx context.Context, n *node) error {
	return op.wait(ctx, 20*time.Second, func() error { return n.start() })
}
