//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"vestibule/internal/lab/judge"
)

// act is the kind of a fault.
type act uint8

const (
	actKill    act = iota // SIGKILL, and a new process after a while
	actStop               // SIGSTOP, and SIGCONT after a while
	actWipe               // an edge is killed and restarts without its folder
	actCut                // packets from one place to another are dropped
	actPart               // packets between a place and all others are dropped
	actNarrow             // a place has little bandwidth
	actLate               // messages between NATS and the nodes of a place are delayed
	actEdit               // the rooms file is edited
	actReplace            // an edge ends for good, and one with a new name starts
	actRotate             // the keys are rotated
	actFill               // the disk of a NATS server is full for a while
	actLose               // all data of NATS is lost
	actTwin               // an edge is copied, and both run
	actRestart            // every process ends and restarts
	actMember             // the third data centre is added, or removed
)

// fault is one drawn fault.
type fault struct {
	at     time.Duration
	lasts  time.Duration
	act    act
	role   string
	place  string // for a cut: the source place
	to     string
	by     time.Duration // delay of messages
	leader bool          // the leader
	pick   int           // otherwise this node, or the next one without a fault
}

// Limits of the recovery after the last fault. If an edge died together with its regional, its possible use is waited
// out, sixty seconds for R, and nodes report until when; otherwise admissions resume soon.
const (
	wholeWithin = 30 * time.Second  // every edge can admit and every role has a leader
	againWithin = 30 * time.Second  // admissions in every data centre
	afterWait   = 15 * time.Second  // the same, after the reported waits
	longestWait = 150 * time.Second // longest wait that a node may report
)

// usedAfter is the time from resumed admissions, without permits reserved for dead processes (presumedFor at most),
// until the use of the limits is measured, for usedFor. useGoal is its goal, for T or R. The use depends on the machine
// as well, so a miss fails a run with -strict only.
const (
	usedAfter   = 20 * time.Second
	presumedFor = 90 * time.Second // after the last fault: R's window and a lease, and some seconds
	usedFor     = 10 * time.Second
	useGoal     = 0.95

	sampleEvery = 500 * time.Millisecond
)

// stormLength is the length of a series of faults. Then all heals, and the fleet has to recover before the next storm:
// under permanent faults it could keep the limits by admitting nobody.
const stormLength = 40 * time.Second

// firstGap is the mean gap between the faults of the first storm: at least twenty fit.
const firstGap = 1300 * time.Millisecond

// kinds selects the kinds of faults: of links, of delayed messages, and changes of the fleet itself.
type kinds struct{ links, late, changes bool }

// change turns a fault into a change of the fleet itself.
func (f *fault) change(rng *rand.Rand, links bool) {
	switch n := rng.IntN(20); {
	case n < 4:
		f.act = actRotate
	case n < 8:
		f.act, f.role = actReplace, "edge"
	case n < 11 && links:
		f.act, f.role = actFill, "nats"
		f.lasts *= 3
	case n < 12:
		f.act, f.role = actLose, "nats"
	case n < 16:
		f.act, f.role = actTwin, "edge"
	default:
		f.act = actMember
	}
}

// plan draws the faults of one storm, with the mean gap. Every role is killed and stopped; stops replace unavailable
// faults of links and messages.
func plan(rng *rand.Rand, length, gap time.Duration, dcs []string, k kinds) []fault {
	roles := []string{"edge", "edge", "edge", "regional", "regional", "global", "global", "nats"}
	var out []fault
	for at := time.Duration(0); at < length; {
		f := fault{
			at: at, role: roles[rng.IntN(len(roles))], place: dcs[rng.IntN(len(dcs))], pick: rng.IntN(100), leader: rng.IntN(4) > 0,
			lasts: 200*time.Millisecond + time.Duration(rng.ExpFloat64()*float64(2*time.Second)),
		}
		if rng.IntN(6) == 0 {
			f.lasts *= 4 // longer than every lease
		}
		switch n := rng.IntN(100); {
		case k.changes && rng.IntN(5) == 0:
			f.change(rng, k.links)
		case n < 5:
			f.act = actEdit
		case n < 7:
			f.act = actRestart
		case n < 43:
			f.act = actKill
			if f.role == "edge" && rng.IntN(4) == 0 {
				f.act = actWipe
			}
		case n < 58 || (!k.links && (n < 84 || !k.late)):
			f.act = actStop
		case n < 70:
			f.act = actCut
			from := rng.IntN(len(places))
			f.place, f.to = places[from], places[(from+1+rng.IntN(len(places)-1))%len(places)]
		case n < 78:
			f.act, f.place = actPart, places[rng.IntN(len(places))]
		case n < 84 || !k.late:
			f.act = actNarrow
		default:
			f.act = actLate
			f.lasts *= 3 // long enough to matter
			f.by = min(20*time.Millisecond+time.Duration(rng.ExpFloat64()*float64(400*time.Millisecond)), 2*time.Second).Round(time.Millisecond)
		}
		f.lasts = min(f.lasts, 15*time.Second, length+5*time.Second-at)
		out = append(out, f)
		at += gap/4 + time.Duration(rng.Int64N(int64(gap*3/2)))
	}
	return out
}

// journal prints the faults with their times.
type journal struct {
	mu   sync.Mutex
	out  io.Writer
	d    *deployment
	base time.Duration
	done map[string]int
}

func (j *journal) record(what, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if what != "" {
		j.done[what]++
	}
	fmt.Fprintf(j.out, "%7.2f s  %s\n", (j.d.since() - j.base).Seconds(), fmt.Sprintf(format, args...))
}

// injector injects faults into a deployment.
type injector struct {
	operator
	links *links
}

// do executes and reverts a fault. After an error the run cannot continue.
func (in *injector) do(ctx context.Context, f fault) error {
	switch f.act {
	case actCut, actPart, actNarrow, actLate:
		return in.links.do(ctx, f, in.j)
	case actEdit:
		return in.edit()
	case actRotate:
		return in.rotate(ctx)
	case actLose:
		return in.loseStore(ctx, f.lasts)
	case actMember:
		return in.member(ctx)
	case actRestart:
		return in.restartAll(ctx, f)
	case actReplace, actFill, actTwin:
	case actKill, actStop, actWipe:
	}
	n := in.victim(f)
	if n == nil {
		in.j.record("", "(every %s is in trouble already)", f.role)
		return nil
	}
	defer n.free()
	switch f.act {
	case actReplace:
		return in.replace(ctx, n)
	case actTwin:
		return in.twin(ctx, n, f)
	case actFill:
		return in.fillDisk(ctx, n, f.lasts)
	case actStop:
		return in.halt(ctx, n, f)
	default:
		return in.kill(ctx, n, f)
	}
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
	if f.act == actWipe {
		verb, between = "kill+wipe", func() (err error) {
			if ended, err = n.incarnations(); err != nil {
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
	return op.writeRooms()
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
		if n, err := in.leader(f.role, place); err == nil && n.claim() {
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

// links tracks cut and slow links, with the number of concurrent faults.
type links struct {
	net   network
	gates map[string]*gateway

	mu   sync.Mutex
	cuts map[[2]string]int
	heal map[[2]string]func() error
	slow map[slowness]bool

	since    func() time.Duration
	narrowed map[string][]judge.Span // low bandwidth, by place: connections take seconds
}

// slowness is a place with its kind of slowness.
type slowness struct {
	act   act
	place string
}

func newLinks(d *deployment) *links {
	return &links{net: d.net, gates: d.gates, cuts: map[[2]string]int{}, heal: map[[2]string]func() error{}, slow: map[slowness]bool{}, since: d.since, narrowed: map[string][]judge.Span{}}
}

func (l *links) do(ctx context.Context, f fault, j *journal) error {
	if f.act == actNarrow || f.act == actLate {
		return l.slowDown(ctx, f, j)
	}
	var pairs [][2]string
	if f.act == actCut {
		j.record("cut one way", "cut      %s -> %s for %.1f s", f.place, f.to, f.lasts.Seconds())
		pairs = append(pairs, [2]string{f.place, f.to})
	} else {
		j.record("cut off", "cut off  %s from all others for %.1f s", f.place, f.lasts.Seconds())
		for _, o := range places {
			if o != f.place {
				pairs = append(pairs, [2]string{f.place, o}, [2]string{o, f.place})
			}
		}
	}
	if err := l.each(pairs, l.cut); err != nil {
		return err
	}
	sleep(ctx, f.lasts)
	return l.each(pairs, l.mend)
}

// slowDown limits the bandwidth of a place, or delays its messages.
func (l *links) slowDown(ctx context.Context, f fault, j *journal) error {
	key := slowness{f.act, f.place}
	l.mu.Lock()
	taken := l.slow[key]
	l.slow[key] = true
	l.mu.Unlock()
	var heal func() error
	var err error
	switch {
	case taken:
		j.record("", "(%s is slow already)", f.place)
		return nil
	case f.act == actLate:
		j.record("made late", "late     %s's nodes and NATS hear each other %v later, for %.1f s", f.place, f.by, f.lasts.Seconds())
		heal, err = l.gates[f.place].late(f.by)
	default:
		j.record("narrowed", "narrow   the way to %s for %.1f s", f.place, f.lasts.Seconds())
		heal, err = l.net.narrow(f.place)
	}
	if err != nil {
		return err
	}
	begun := l.since()
	sleep(ctx, f.lasts)
	err = heal()
	l.mu.Lock()
	if f.act == actNarrow {
		l.narrowed[f.place] = append(l.narrowed[f.place], judge.Span{From: begun, To: l.since()})
	}
	l.slow[key] = false
	l.mu.Unlock()
	return err
}

func (l *links) each(pairs [][2]string, do func([2]string) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range pairs {
		if err := do(p); err != nil {
			return err
		}
	}
	return nil
}

func (l *links) cut(p [2]string) (err error) {
	if l.cuts[p]++; l.cuts[p] == 1 {
		l.heal[p], err = l.net.cut(p[0], p[1])
	}
	return err
}

func (l *links) mend(p [2]string) error {
	if l.cuts[p]--; l.cuts[p] == 0 {
		return l.heal[p]()
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

// stalls records stalls of this process, and so of the machine.
func (d *deployment) stalls(ctx context.Context) []judge.Span {
	const step, limit = 10 * time.Millisecond, 150 * time.Millisecond
	var out []judge.Span
	tick := time.NewTicker(step)
	defer tick.Stop()
	for last := d.since(); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		now := d.since()
		if now-last > limit {
			out = append(out, judge.Span{From: last, To: now})
		}
		last = now
	}
	return out
}

// errNobody reports that admissions did not resume.
var errNobody = errors.New("too few visitors were admitted")

// enough is the number of admissions required in every data centre for a good end of the run.
const enough = 5

// errBroken reports a broken promise.
var errBroken = errors.New("a promise broke")

// errBelow reports a figure below its goal.
var errBelow = errors.New("every promise is kept, but a figure is below its goal")

// storm executes faults.
func (in *injector) storm(ctx context.Context, faults []fault) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	errs := make([]error, len(faults))
	var all sync.WaitGroup
	begun := in.since()
	for i, f := range faults {
		sleep(ctx, f.at-(in.since()-begun))
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			if errs[i] = in.do(ctx, f); errs[i] != nil {
				end()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// recovery watches a deployment and its visitors after faults.
type recovery struct {
	operator
	people *crowdOfPeople
}

// calm is the recovery after a storm, timed from the end of its last fault.
type calm struct {
	whole, again time.Duration
	waits        time.Duration // latest wait reported by nodes
	use          float64       // of T or of R, the larger
	measured     bool          // use was measured
}

// below reports whether the use is below its goal.
func (c *calm) below() bool { return c.measured && c.use < useGoal }

// usage describes the use and its goal, "" if not measured.
func (c *calm) usage() string {
	switch {
	case !c.measured:
		return ""
	case c.below():
		return fmt.Sprintf("; use %.3f, BELOW THE GOAL of %.2f", c.use, useGoal)
	}
	return fmt.Sprintf("; use %.3f (goal %.2f)", c.use, useGoal)
}

// calm waits for the recovery.
func (r *recovery) calm(ctx context.Context) (c calm, err error) {
	healed := r.since()
	r.j.record("", "nothing is broken any more")
	if err := r.settled(ctx, wholeWithin); err != nil {
		return c, fmt.Errorf("%v after the last fault: %w", wholeWithin, err)
	}
	c.whole = r.since() - healed
	r.j.record("", "every edge is ready, one global and one regional per data centre lead: %.1f s later", c.whole.Seconds())
	if err := r.comeAgain(ctx, healed, &c); err != nil {
		return c, err
	}
	c.again = r.since() - healed
	r.j.record("", "people come in again in every data centre: %.1f s later", c.again.Seconds())
	return c, nil
}

// operatorEvery is the interval at which an operator checks for waits of nodes, because a new leader may report others.
const operatorEvery = 5 * time.Second

// comeAgain waits for admissions in every data centre. Time with exhausted limits does not count: one data centre may
// have all permits, and the others' turn comes as sessions end.
func (r *recovery) comeAgain(ctx context.Context, healed time.Duration, c *calm) error {
	full, at := time.Duration(0), r.since()
	for looked := time.Duration(0); ctx.Err() == nil; sleep(ctx, 100*time.Millisecond) {
		if passed := r.since() - at; passed > sampleEvery {
			at += passed
			if used, ok := r.currentUse(); ok && used >= useGoal {
				full += passed
			}
		}
		empty := ""
		for _, dc := range r.serving() {
			if r.people.entered(dc, healed) < enough {
				empty = dc
			}
		}
		if empty == "" {
			return nil
		}
		if looked == 0 || r.since()-looked > operatorEvery {
			until, err := r.lookAround(ctx)
			if err != nil {
				return err
			}
			if waits := until - healed; waits > c.waits+time.Second {
				c.waits = waits
				r.j.record("", "nodes say that they wait until %.1f s after the last fault", waits.Seconds())
			}
			looked = r.since()
		}
		if c.waits > longestWait {
			return fmt.Errorf("nodes report waits until %v after the last fault, the limit is %v", c.waits, longestWait)
		}
		within := min(max(againWithin, c.waits+afterWait)+full, longestWait)
		if r.o.upgrade != "" { // nothing was lost: if R is exhausted elsewhere, a data centre's turn comes later
			within = longestWait
		}
		if r.since()-healed > within {
			return fmt.Errorf("%v after the last fault: %w in %s", within, errNobody, empty)
		}
	}
	return ctx.Err()
}

// filled waits until the limits should be fully used again, and measures the use. While permits are reserved for dead
// processes, some are missing.
func (r *recovery) filled(ctx context.Context, healed time.Duration, c *calm) {
	for ; ctx.Err() == nil && r.since()-healed < presumedFor; sleep(ctx, sampleEvery) {
		if s, ok := r.books(); ok && s.Presumed == 0 && s.RatePresumed == 0 {
			break
		}
	}
	if r.since()-healed > c.again+operatorEvery {
		r.j.record("", "nothing is presumed of whoever died: %.1f s after the last fault", (r.since() - healed).Seconds())
	}
	sleep(ctx, usedAfter)
	use := r.use(ctx)
	if ctx.Err() != nil {
		return
	}
	c.use, c.measured = use, true
	r.j.record("", "%.3f of T or of R is used, the goal is %.2f", use, useGoal)
}

// counted holds a regional's counts of a room.
type counted struct {
	Active       int64 `json:"sessions"`
	Presumed     int64 `json:"sessions_presumed"`
	RatePresumed int64 `json:"rate_rights_presumed_used"`
}

// books returns the sum of the regionals' counts. It reports false if one does not answer.
func (r *recovery) books() (sum counted, ok bool) {
	for _, dc := range places {
		if len(r.of("regional", dc)) == 0 {
			continue
		}
		n, err := r.leader("regional", dc)
		if err != nil {
			return sum, false
		}
		var s struct{ Rooms map[string]counted }
		if err := r.get(text(&n.metrics)+"/status", &s); err != nil {
			return sum, false
		}
		l := s.Rooms["shop"]
		sum.Active, sum.Presumed, sum.RatePresumed = sum.Active+l.Active, sum.Presumed+l.Presumed, sum.RatePresumed+l.RatePresumed
	}
	return sum, true
}

// currentUse returns the use of the more used limit: of T by sessions that the regionals count, without reserved ones,
// or of R by admissions of the last minute. It reports false if a regional does not answer.
func (r *recovery) currentUse() (used float64, ok bool) {
	admitted := 0
	for _, dc := range places {
		admitted += r.people.entered(dc, r.since()-time.Minute)
	}
	s, ok := r.books()
	return max(float64(s.Active-s.Presumed)/float64(r.o.total), float64(admitted)/float64(r.o.rate)), ok
}

// use returns the mean use over a while.
func (r *recovery) use(ctx context.Context) float64 {
	sum, n := 0.0, 0
	for begun := r.since(); r.since()-begun < usedFor && ctx.Err() == nil; sleep(ctx, sampleEvery) {
		if used, ok := r.currentUse(); ok {
			sum += used
			n++
		}
	}
	return sum / float64(max(1, n))
}

// trial is a run with visitors, from their invitation to the verdict.
type trial struct {
	recovery
	in    *injector
	out   io.Writer
	come  context.Context // ends when the visitors go home
	home  func()
	noted func() ([]judge.Span, error)
	calms []calm
}

// begin invites the visitors. The events of the run are printed to events.
func (d *deployment) begin(ctx context.Context, out, events io.Writer) *trial {
	j := &journal{out: events, d: d, base: d.since(), done: map[string]int{}}
	t := &trial{out: out, noted: d.observe(ctx)}
	t.operator = operator{d, j}
	t.people, t.come, t.home = d.invite(ctx)
	t.in = &injector{t.operator, newLinks(d)}
	return t
}

// end sends the visitors home and prints the verdict.
func (t *trial) end(ctx context.Context, trouble ...error) error {
	t.home()
	died := t.died()
	stood, err := t.noted()
	trouble = append(trouble, died, err)
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), errors.Join(trouble...))
	}
	return errors.Join(errors.Join(trouble...), report(t.out, t.deployment, t.people, t.j, t.in.links, stood, t.calms))
}

// faultRun is a whole run with faults.
func faultRun(ctx context.Context, d *deployment, out io.Writer) error {
	o := d.o
	fmt.Fprintf(out, "seed %d, %v; T %d, R %d/min, session_duration %v; %d people; %d edges, %d regionals, %d globals, %d NATS servers\n",
		o.seed, o.length, o.total, o.rate, o.session, o.visitors,
		len(d.of("edge", "")), len(d.of("regional", "")), len(d.of("global", "")), len(d.of("nats", "")))
	t := d.begin(ctx, out, out)
	rng := rand.New(rand.NewPCG(o.seed, 1))
	sleep(t.come, 5*time.Second) // some admissions first
	gap := firstGap
	var trouble error
	for trouble == nil && t.come.Err() == nil && (len(t.calms) == 0 || d.since()-t.j.base < o.length) {
		faults := plan(rng, min(stormLength, o.length), gap, d.where(), kinds{d.net.links(), o.toxiproxy != "", o.changes})
		t.j.record("", "storm: %d faults", len(faults))
		if trouble = t.in.storm(t.come, faults); trouble != nil {
			break
		}
		var c calm
		if c, trouble = t.calm(t.come); trouble == nil {
			t.filled(t.come, d.since()-c.again, &c)
		}
		t.calms = append(t.calms, c)
		gap = time.Second + time.Duration(rng.Int64N(int64(5*time.Second)))
	}
	return t.end(ctx, trouble)
}

// report evaluates the run and prints the result.
func report(out io.Writer, d *deployment, people *crowdOfPeople, j *journal, links *links, stood []judge.Span, calms []calm) error {
	c := oracle{total: d.o.total, rate: d.o.rate, wall: d.zero, stalls: stood, planned: d.o.planned}
	for _, e := range d.edgesEver() {
		c.outages = append(c.outages, slices.Concat(e.outages, links.narrowed[e.place]))
	}
	tickets, err := d.keys.reader()
	if err != nil {
		return err
	}
	stays := make([]stay, len(people.stays))
	for i, s := range people.stays {
		stays[i] = *s
		for k := range s.requests {
			r := &s.requests[k]
			r.arrived = d.site.Arrived(requestID(i, k))
			if r.outcome == waiting {
				r.joined = tickets.joined(r.ticket)
			}
		}
	}
	v := c.judge(stays, d.o.session)
	row := func(what, format string, args ...any) {
		fmt.Fprintf(out, "  %-44s "+format+"\n", append([]any{what}, args...)...)
	}
	fmt.Fprintln(out)
	var parts []string
	total := 0
	for what, n := range j.done {
		parts = append(parts, fmt.Sprintf("%d %s", n, what))
		total += n
	}
	slices.Sort(parts)
	row("faults", "%d: %s", total, strings.Join(parts, ", "))
	row("visits, of them came in", "%d, %d", len(stays), v.admitted)
	row("pages of the site, waiting pages", "%d, %d", v.pages, v.waits)
	row("most sessions at an instant / T", "%d / %d", v.peak, c.total)
	row("most admissions in any 60 s / R", "%d / %d", v.rate, c.rate)
	row("put out early where an edge may not renew", "%d", v.unrenewed)
	row("requests that failed at a dead or stopped edge", "%d", v.excused)
	for what, n := range v.errors {
		row("errors seen by people who wait", "%d: %s", n, what)
	}
	var longest time.Duration
	for _, s := range stood {
		longest = max(longest, s.To-s.From)
	}
	row("the machine stood still", "%d times, longest %.2f s", len(stood), longest.Seconds())
	below := false
	for _, c := range calms {
		row("after a storm: whole, people come in again", "%.1f s, %.1f s (nodes said that they wait until %.1f s)%s", c.whole.Seconds(), c.again.Seconds(), c.waits.Seconds(), c.usage())
		below = below || c.below()
	}
	if len(v.broken) == 0 {
		row("promises", "kept")
		if below && d.o.strict {
			return fmt.Errorf("%w; again with SEED=%d LENGTH=%v", errBelow, d.o.seed, d.o.length)
		}
		return nil
	}
	for _, b := range v.broken {
		fmt.Fprintln(out, "  BROKEN:", b)
	}
	return fmt.Errorf("%w; again with SEED=%d LENGTH=%v", errBroken, d.o.seed, d.o.length)
}

// quantile returns the q-quantile of sorted values: the smallest with at least that fraction at or below it.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
