package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Faults configures the faults. The zero value has none.
type Faults struct {
	Every time.Duration // mean time between two faults; 0 for none
	Last  time.Duration // mean length of a cut, a stop, or a downtime
	Until time.Duration // no fault begins or lasts beyond it; 0 for the end of the run

	// The kinds of faults.
	CrashEdge, CrashRegion, CrashGlobal bool
	Zombies                             bool // a replaced leader lives on for a while and believes that it leads
	Twins                               bool // another process starts with an edge's name
	Folders                             bool // an edge restarts in an empty folder, or a moved one
	Forget                              bool // an operator declares an edge dead: a dead one, or one that is cut off
	Ephemeral                           bool // an edge shuts down, and one with a new name replaces it
	Forever                             bool // an edge, or a whole data centre, never returns
	CutEdge, CutRegion                  bool // in one direction or both
	CutPair                             bool // between two processes, which may reach others
	Stop                                bool // processes are stopped and continued
	Limits                              bool // T and R are lowered and raised
	Session                             bool // session_duration is edited
	Policy                              bool // partition_policy is edited; in no profile yet, see enableFaults
	Epoch                               bool // the room's epoch is raised
	Remove                              bool // the room is removed and restored
	Drop                                bool // with Remove: often, and sometimes for so long that nodes drop the room
	Disk                                bool // stores are slow, and writes fail, or succeed without an answer
	Fail                                bool // stores fail for the length of a fault
	Torn                                bool // a store has lost part of its data when a new leader begins
	Blank                               bool // a data centre's store loses its data
	Wipe                                bool // a store is lost with its leader, and an earlier leader succeeds
	Rollback                            bool // the coordinator's lease is restored from a backup: a term is repeated
	Keys                                bool // keys are rotated
	Members                             bool // data centres are added and drained, and lists are rolled back
	Copies                              bool // data centres are copied, with their names, onto another NATS
	Forsake                             bool // with Members: data centres are removed by force, and live on
	Methods                             bool // queueing_method and queue_all are edited
	Pause                               bool // the room is paused for a while
	ForNow                              bool // T and R are overridden for a while
	Suspend                             bool // the room is suspended for a while
	Renewal                             bool // disable_session_renewal is edited
	Rename                              bool // the room is renamed, and keeps its id
	Events                              bool // the room has events, with visitors that gather before
	Draws                               bool // the room has events with a draw
	Release                             bool // the room is paused, and some visitors are released
	Rules                               bool // the bypass rules of the room are edited
	Pasts                               bool // edges store snapshots in their data folders, by which a successor settles them
	BadFolders                          bool // with Pasts: their writes fail, or take long
	OldImages                           bool // with Pasts: an edge's disk comes back as it was a while before
	Restart                             bool // every process ends and restarts on its machine
	Forgetful                           bool // no process stores fleet time in its data folder
	Clocks                              bool // wall clocks are off by up to 5 min, monotonic ones drift at their bound

	Doubled float64       // fraction of messages that arrive twice
	Tardy   float64       // fraction of messages that are late
	Late    time.Duration // by at most this

	// Vague is the uncertainty of fleet time in the data centres, and their alternating difference: as after hours
	// without a leader.
	Vague time.Duration

	// Only lists the numbers of the drawn faults that happen; nil for all.
	Only []int
}

// any reports whether there are any faults.
func (f *Faults) any() bool { return f.Every > 0 }

// cutsCentres reports whether a data centre may be disconnected from a coordinator for longer than its lease.
func (f *Faults) cutsCentres() bool {
	return f.CutRegion || f.CutPair || f.Stop || f.Forever || f.Rollback || f.Disk
}

func (f *Faults) drift() float64 {
	if f.Clocks {
		return 100e-6 // either way: 200 ppm between two
	}
	return 50e-6
}

// vague changes a grant as if the data centre had used its own clock for long. A coordinator that adopted such a time
// has the same uncertainty.
func (f *Faults) vague(g *wire.Grant, centre int) {
	if f.Vague == 0 || g.AtBound > fleettime.MaxError {
		return
	}
	g.At = g.At.Add(f.Vague * time.Duration(1-2*(centre%2)))
	g.AtBound += f.Vague
}

// wall draws the error of a machine's wall clock.
func (f *Faults) wall(rng *rand.Rand) time.Duration {
	if !f.Clocks {
		return 0
	}
	return time.Duration((rng.Float64()*2 - 1) * float64(5*time.Minute))
}

func (f *Faults) doubled(rng *rand.Rand) bool { return f.Doubled > 0 && rng.Float64() < f.Doubled }

func (f *Faults) late(rng *rand.Rand) bool { return f.Tardy > 0 && rng.Float64() < f.Tardy }

// slowDisk draws the extra duration of a write.
func (w *World) slowDisk() int64 {
	if !w.cfg.Faults.Disk || w.calm || w.chaos.IntN(4) > 0 {
		return 0
	}
	return w.chaos.Int64N(int64(3 * time.Second))
}

// faultKind is a kind of fault.
type faultKind struct {
	weight int // relative frequency
	drawn  func(*Faults) bool
	happen func(*World, *fault)
}

// faultKinds lists all kinds, in the order of the draw.
var faultKinds = []faultKind{
	{3, func(f *Faults) bool { return f.CrashEdge }, (*World).crashAnEdge},
	{3, func(f *Faults) bool { return f.CrashRegion }, (*World).crashAnAggregator},
	{3, func(f *Faults) bool { return f.CrashGlobal }, (*World).crashTheCoordinator},
	{1, func(f *Faults) bool { return f.Forever }, (*World).loseAnEdge},
	{1, func(f *Faults) bool { return f.Forever }, (*World).loseACentre},
	{3, func(f *Faults) bool { return f.CutEdge }, (*World).cutAnEdge},
	{3, func(f *Faults) bool { return f.CutRegion }, (*World).cutACentre},
	{3, func(f *Faults) bool { return f.CutPair }, (*World).cutPair},
	{3, func(f *Faults) bool { return f.Stop }, (*World).stop},
	{3, func(f *Faults) bool { return f.Limits }, (*World).changeLimits},
	{2, func(f *Faults) bool { return f.Session }, (*World).editSession},
	{2, func(f *Faults) bool { return f.Policy }, (*World).editPolicy},
	{1, func(f *Faults) bool { return f.Epoch }, (*World).raiseEpoch},
	{1, func(f *Faults) bool { return f.Remove }, (*World).removeRoom},
	{3, func(f *Faults) bool { return f.Drop }, (*World).removeRoom},
	{1, func(f *Faults) bool { return f.Blank }, (*World).blankStore},
	{3, func(f *Faults) bool { return f.Rollback }, (*World).rollBackLease},
	{3, func(f *Faults) bool { return f.Twins }, (*World).twinEdge},
	{3, func(f *Faults) bool { return f.Folders }, (*World).changeFolder},
	{3, func(f *Faults) bool { return f.BadFolders }, (*World).failFolder},
	{6, func(f *Faults) bool { return f.Forget }, (*World).forgetAnEdge},
	{2, func(f *Faults) bool { return f.Keys }, (*World).rotate},
	{4, func(f *Faults) bool { return f.Members }, (*World).changeMembers},
	{3, func(f *Faults) bool { return f.Members }, (*World).oldLeader},
	{1, func(f *Faults) bool { return f.Members }, (*World).rollBackMembers},
	{6, func(f *Faults) bool { return f.Ephemeral }, (*World).renewEdge},
	{4, func(f *Faults) bool { return f.Copies }, (*World).copyCentre},
	{3, func(f *Faults) bool { return f.Fail }, (*World).failStore},
	{3, func(f *Faults) bool { return f.Restart }, (*World).restartAll},
}

// operatorKinds are actions of operators. They are drawn separately, so that the faults stay the same.
var operatorKinds = []faultKind{
	{3, func(f *Faults) bool { return f.Methods }, (*World).editMethod},
	{2, func(f *Faults) bool { return f.Pause }, (*World).pauseRoom},
	{2, func(f *Faults) bool { return f.ForNow }, (*World).limitForNow},
	{1, func(f *Faults) bool { return f.Suspend }, (*World).suspendRoom},
	{1, func(f *Faults) bool { return f.Renewal }, (*World).editRenewal},
	{1, func(f *Faults) bool { return f.Rename }, (*World).renameRoom},
	{4, func(f *Faults) bool { return f.Events }, (*World).scheduleEvent},
	{4, func(f *Faults) bool { return f.Release }, (*World).releaseSome},
	{4, func(f *Faults) bool { return f.Draws }, (*World).scheduleDraw},
	{4, func(f *Faults) bool { return f.Rules }, (*World).editRules},
}

// fault is one fault. All its parameters are drawn beforehand, so that it stays the same if others are left out.
type fault struct {
	number int
	at     int64
	kind   *faultKind
	who    int           // edge, data centre or process, modulo their number
	other  int           // the other end
	last   time.Duration // its length
	up     bool          // of a link: cut directions
	down   bool
	zombie bool // the replaced leader lives on
	alone  bool // there is no standby
	bound  bool // a leader that lives on has a lease, as from its store
	after  time.Duration
	x, y   float64
}

// draw returns all faults of the run, ascending.
func (f *Faults) draw(seed uint64, length time.Duration) []fault {
	if !f.any() {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0x6c697374))
	pause := func(mean time.Duration) time.Duration { return time.Duration(rng.ExpFloat64() * float64(mean)) }
	kinds := f.kinds(faultKinds)
	end := length
	if f.Until > 0 {
		end = f.Until
	}
	var out []fault
	for at := min(5*time.Second, 2*f.Every) + pause(f.Every); at < end && len(kinds) > 0; at += pause(f.Every) {
		d := min(pause(f.Last), 10*f.Last, end-at)
		dir := rng.IntN(3)
		out = append(out, fault{
			number: len(out), at: int64(at), kind: kinds[rng.IntN(len(kinds))], who: rng.IntN(1 << 16), other: rng.IntN(1 << 16), last: d,
			up: dir != 1, down: dir != 2,
			zombie: rng.IntN(5) < 3 && f.Zombies, alone: rng.IntN(4) == 0,
			// A leader that reaches only some nodes could lead for ever without an end of its lease: the protocol
			// relies on that end.
			bound: rng.IntN(2) == 0 || f.CutPair,
			after: 1300*time.Millisecond + time.Duration(rng.Int64N(int64(700*time.Millisecond))),
			x:     rng.Float64(), y: rng.Float64(),
		})
	}
	rng = rand.New(rand.NewPCG(seed, 0x6f706572))
	kinds, every := f.kinds(operatorKinds), 2*time.Second+2*f.Every
	for at := every + pause(every); at < end && len(kinds) > 0; at += pause(every) {
		out = append(out, fault{
			number: len(out), at: int64(at), kind: kinds[rng.IntN(len(kinds))],
			last: min(time.Second+pause(max(every, f.Last)), 2*time.Minute, end-at), x: rng.Float64(), y: rng.Float64(),
		})
	}
	return out
}

// kinds returns the enabled faults, each repeated by its weight.
func (f *Faults) kinds(all []faultKind) []*faultKind {
	var out []*faultKind
	for i := range all {
		k := &all[i]
		if !k.drawn(f) {
			continue
		}
		for range k.weight {
			out = append(out, k)
		}
	}
	return out
}

func (w *World) tracef(format string, args ...any) {
	if w.trace != nil {
		w.trace("%10.3f  %s\n", float64(w.now)/1e9, fmt.Sprintf(format, args...))
	}
}

// books traces the ledgers of all nodes.
func (w *World) books() {
	if w.trace == nil {
		return
	}
	for i, g := range w.globals {
		if g.gone {
			continue
		}
		l := g.core.Ledger(w.room)
		w.tracef("coordinator %d, term %d, list %d: limit %d/%d free %d/%d, complete %v", i+1, g.term, g.members, l.Total, l.Rate, l.Free, l.RateFree, l.Complete)
		for _, c := range l.Centres {
			w.tracef("  %s: lent %d/%d idle %d/%d keep %d/%d, generation %d, adopted %v, %s", c.Name, c.Held, c.RateHeld, c.Idle, c.RateIdle, c.Keep, c.RateKeep, c.Gen, c.Adopted, c.Standing)
		}
	}
	for i, r := range w.regions {
		c := &w.oracle.centres[i]
		w.tracef("%s: %d sessions in truth, %d admitted in 60 s", r.name, len(c.until), c.minute.count(w.now))
		for _, n := range r.procs {
			if n.gone {
				continue
			}
			now := n.clock.read(w.now)
			l, st := n.core.Ledger(w.room), n.core.Status(now)
			w.tracef("  aggregator %d, list %d, %s, follows %d (leased %v): granted %d/%d returned %d/%d free %d/%d credit %d active %d reserved %d, settled %v, declared %v, generation %d, watermark %v ago",
				n.term, n.members, st.Standing, st.Follows.N, st.Leased, l.Granted, l.RateGranted, l.Returned, l.RateReturned, l.Free, l.RateFree, l.Credit, l.Active, l.Reserved,
				l.Settled, l.Reconstructed, l.Gen, w.fleetTime().Sub(st.Watermark))
			for _, e := range st.Edges {
				w.tracef("    %s %016x %s, as of %v ago, heard %v ago", e.Name, e.Instance, e.State, w.fleetTime().Sub(e.AsOf), now.Sub(e.Heard))
			}
		}
		for _, k := range r.edges {
			e := w.edges[k]
			now := e.clock.read(w.now)
			l, st := e.core.Ledger(now, w.room), e.core.Status(now)
			w.tracef("  %s %016x, lease epoch %d, follows %d (leased %v, down %v): granted %d/%d spent %d returned %d/%d idle %d, renewed %d of %d, sessions %d, off by %v",
				e.name, st.Instance, st.LeaseEpoch, st.Follows.N, st.Leased, e.down, l.Granted, l.RateGranted, l.Spent, l.Returned, l.RateReturned, l.RateIdle,
				l.Renewed, l.RenewCeil, l.Sessions, st.Time.Sub(w.fleetTime()))
		}
		for id, until := range c.until {
			w.tracef("  ticket %016x until %v from now", id, time.Duration(int64(until)*1000-int64(w.fleetTime()))*time.Millisecond)
		}
	}
}

// beginFaults plans all faults.
func (w *World) beginFaults() {
	w.faults = w.cfg.Faults.draw(w.cfg.Seed, w.cfg.Length)
	for i := range w.faults {
		f := &w.faults[i]
		if only := w.cfg.Faults.Only; only == nil || slices.Contains(only, f.number) {
			w.plan(event{at: f.at, kind: evFault, node: int32(i)})
		}
	}
	if at := w.cfg.Calm; at > 0 {
		w.plan(event{at: int64(at), kind: evDo, msg: w.calmDown})
	}
}

// in calls do after d.
func (w *World) in(d time.Duration, do func()) {
	w.plan(event{at: w.now + int64(d), kind: evDo, msg: do})
}

// until returns the end of a fault that begins now.
func (w *World) until(f *fault) int64 { return w.now + int64(f.last) }

// runFault executes one fault.
func (w *World) runFault(f *fault) {
	if w.calm {
		return
	}
	w.telling = f.number
	f.kind.happen(w, f)
}

func (w *World) crashAnEdge(f *fault) { w.crashEdge(int32(f.who%len(w.edges)), f.last, false) }

func (w *World) loseAnEdge(f *fault) { w.crashEdge(int32(f.who%len(w.edges)), 0, true) }

func (w *World) forgetAnEdge(f *fault) { w.forget(int32(f.who % len(w.edges))) }

func (w *World) loseACentre(f *fault) { w.loseCentre(f.who % w.cfg.Centres) }

// changeFolder ends an edge's process; the next one has another data folder.
func (w *World) changeFolder(f *fault) {
	i := int32(f.who % len(w.edges))
	if w.edges[i].lost || w.edges[i].down {
		return
	}
	w.crashEdge(i, f.last, false)
	w.moveFolder(w.edges[i], f)
}

// crashAnAggregator ends the leading aggregator of a data centre; another one takes over.
func (w *World) crashAnAggregator(f *fault) {
	i := int32(f.who % len(w.regions))
	r := w.regions[i]
	n := r.newest()
	if n.gone || r.lost {
		return
	}
	w.replace(f, &n.proc, n.core, r.name+"'s aggregator", w.nextRegion(i))
}

// crashTheCoordinator ends the leading coordinator; another one takes over.
func (w *World) crashTheCoordinator(f *fault) {
	if n := w.newest(); !n.gone {
		w.pending++
		w.replace(f, &n.proc, n.core, "the coordinator", w.nextGlobal)
	}
}

// rollBackLease does the same with a lease restored from a backup.
func (w *World) rollBackLease(f *fault) {
	if w.newest().gone {
		return
	}
	w.rolled = 1 + uint64(f.x*float64(w.lease))
	w.tracef("#%d the coordinators' lease comes back from a backup: the next term is %d", f.number, w.rolled)
	w.crashTheCoordinator(f)
}

func (w *World) cutAnEdge(f *fault) {
	n := w.edges[f.who%len(w.edges)]
	w.tracef("#%d %s is cut off for %v (up %v, down %v)", f.number, w.name(n), f.last, f.up, f.down)
	w.cut(f, &n.cutUp, &n.cutDown)
}

func (w *World) cutACentre(f *fault) {
	r := w.regions[f.who%len(w.regions)]
	w.tracef("#%d %s is cut off for %v (up %v, down %v)", f.number, r.name, f.last, f.up, f.down)
	w.cut(f, &r.cutUp, &r.cutDown)
}

func (w *World) editSession(f *fault) {
	w.cfg.Session = max(5*time.Second, time.Duration(float64(w.oracle.first.session)*(0.4+1.6*f.x)).Round(time.Second))
	w.tracef("#%d session_duration is now %v", f.number, w.cfg.Session)
	w.publish()
}

func (w *World) editPolicy(f *fault) {
	w.cfg.Cap = f.x < 0.5
	w.tracef("#%d partition_policy cap: %v", f.number, w.cfg.Cap)
	w.publish()
}

func (w *World) raiseEpoch(f *fault) {
	w.epoch++
	w.tracef("#%d the room's epoch is now %d", f.number, w.epoch)
	w.publish()
}

// removeRoom removes the room from the set for a while.
func (w *World) removeRoom(f *fault) {
	if w.removed {
		return
	}
	last := f.last
	if w.cfg.Faults.Drop && f.x < 0.7 {
		last = dropLeast + time.Duration(f.y*float64(dropSpread))
	}
	w.tracef("#%d the room is removed for %v", f.number, last)
	w.removed = true
	w.publish()
	w.in(last, func() {
		if w.removed {
			w.tracef("#%d the room is put back: %s", f.number, w.havingRoom())
			w.removed = false
			w.publish()
		}
	})
}

// Nodes drop a removed room about a minute after its last visitor, in the middle of this range.
const (
	dropLeast  = 45 * time.Second
	dropSpread = 50 * time.Second
)

// havingRoom counts the nodes that have dropped a room, and describes those that have not.
func (w *World) havingRoom() string {
	var have []string
	edges, dropped := 0, 0
	for _, n := range w.edges {
		if n.down {
			continue
		}
		if edges++; n.core.Rooms() == 0 {
			dropped++
		} else {
			have = append(have, w.name(n))
		}
	}
	for _, r := range w.regions {
		if n := r.newest(); !n.gone && n.core.Rooms() > 0 {
			have = append(have, r.name)
		}
	}
	if g := w.newest(); !g.gone && g.core.Rooms() > 0 {
		have = append(have, "global")
	}
	if w.drops.edges += dropped; edges > 0 && len(have) == 0 {
		w.drops.all++
	}
	return fmt.Sprintf("%d of %d edges have dropped it; left: %v", dropped, edges, have)
}

func (w *World) blankStore(f *fault) {
	r := w.regions[f.who%len(w.regions)]
	w.tracef("#%d the store of %s loses its memory", f.number, r.name)
	r.forget()
}

func (w *World) failStore(f *fault) {
	r := w.regions[f.who%len(w.regions)]
	w.tracef("#%d nothing can be stored in %s for %v", f.number, r.name, f.last)
	r.failing = max(r.failing, w.until(f))
}

func (w *World) name(n *edgeNode) string { return n.name + " of " + w.regions[n.region].name }

// cut cuts the directions of a link given by the fault.
func (w *World) cut(f *fault, up, down *int64) {
	if f.up {
		*up = max(*up, w.until(f))
	}
	if f.down {
		*down = max(*down, w.until(f))
	}
}

// cutPair separates one edge from one aggregator, or one aggregator from one coordinator, while each may reach other
// processes of the same role.
func (w *World) cutPair(f *fault) {
	var low, high nodeID
	var text string
	if f.x < 0.5 {
		low = nodeID{0, int32(f.who % len(w.edges))}
		r := w.regions[w.edges[low.n].region]
		p := r.procs[max(0, len(r.procs)-1-f.other%2)]
		high = nodeID{1, p.id}
		text = fmt.Sprintf("%s and aggregator %d", w.name(w.edges[low.n]), p.term)
	} else {
		r := w.regions[f.who%len(w.regions)]
		low = nodeID{1, r.newest().id}
		high = nodeID{2, int32(max(0, len(w.globals)-1-f.other%2))}
		text = fmt.Sprintf("%s and coordinator %d", r.name, high.n+1)
	}
	w.tracef("#%d %s do not hear each other for %v (up %v, down %v)", f.number, text, f.last, f.up, f.down)
	w.pairs = slices.DeleteFunc(w.pairs, func(p pairCut) bool { return p.until <= w.now })
	if f.up {
		w.pairs = append(w.pairs, pairCut{low, high, w.until(f)})
	}
	if f.down {
		w.pairs = append(w.pairs, pairCut{high, low, w.until(f)})
	}
}

// crashEdge ends the life of an edge, for a while or for good.
func (w *World) crashEdge(i int32, d time.Duration, forever bool) {
	n := w.edges[i]
	if n.lost || (n.down && !forever) {
		return
	}
	if n.lost = forever; forever {
		w.tracef("#%d %s ends and never comes back", w.telling, w.name(n))
	} else {
		w.tracef("#%d %s crashes for %v", w.telling, w.name(n), d)
	}
	n.down = true
	w.hangUp(i)
	if forever {
		return
	}
	w.in(d, func() { w.reviveEdge(i) })
}

// forget declares the newest process of an edge dead, as an operator does. The aggregator refuses if that process
// reports to it. The declaration may be wrong: renewals of that process are then not counted.
func (w *World) forget(i int32) {
	n := w.edges[i]
	agg := w.regions[n.region].newest()
	if agg.gone || agg.asleep > w.now {
		return
	}
	instance := n.core.Status(n.clock.read(w.now)).Instance
	if _, err := agg.core.Forget(agg.clock.read(w.now), n.name, instance, false); err != nil {
		return
	}
	w.tracef("#%d %s is declared ended (it has: %v)", w.telling, w.name(n), n.down)
	n.forgotten, n.misjudged = !n.down, n.misjudged || !n.down
	w.runRegion(agg.id)
}

// moveFolder gives the next process of an edge an empty folder, or a copy of the former one.
func (w *World) moveFolder(n *edgeNode, f *fault) {
	if n.place = w.newPlace(); f.x < 0.5 {
		n.folder, n.ended = fleettime.Lives{}, nil
	}
	w.tracef("#%d the data folder of %s is another one (copied %v)", f.number, w.name(n), f.x >= 0.5)
}

// mostTwins bounds the number of twins.
const mostTwins = 3

// twinEdge starts another process with an edge's name, in an empty folder or in a copy of that edge's, often while that
// edge is cut off. It ends with the fault.
func (w *World) twinEdge(f *fault) {
	k := f.who % (w.cfg.Centres * w.cfg.Edges)
	n := w.edges[k]
	if n.lost || w.regions[n.region].lost || w.twins >= mostTwins {
		return
	}
	w.twins++
	if f.other%3 > 0 {
		w.tracef("#%d %s is cut off for %v (up %v, down %v)", f.number, w.name(n), f.last, f.up, f.down)
		w.cut(f, &n.cutUp, &n.cutDown)
	}
	folder := fleettime.Lives{}
	if f.x < 0.5 {
		folder = n.folder
	}
	w.tracef("#%d another process begins as %s, for %v (copied folder %v)", f.number, w.name(n), f.last, f.x < 0.5)
	i := w.newEdge(n.region, n.name, folder, false)
	w.in(f.last, func() {
		w.twins--
		w.tracef("the other %s ends", w.name(n))
		w.crashEdge(i, 0, true)
	})
}

// renewEdge shuts an edge down; another one with a new name replaces it.
func (w *World) renewEdge(f *fault) {
	i := int32(f.who % len(w.edges))
	n := w.edges[i]
	if n.down || n.asleep > w.now {
		return
	}
	w.leaveEdge(i)
	w.renewed++
	n.name, n.folder, n.place = fmt.Sprintf("edge%d-%d", int(i)%w.cfg.Edges+1, w.renewed), fleettime.Lives{}, w.newPlace()
	w.in(f.last, func() { w.reviveEdge(i) })
}

func (w *World) reviveEdge(i int32) {
	if n := w.edges[i]; n.down && !n.lost {
		w.tracef("%s starts anew", w.name(n))
		w.startEdge(i)
	}
}

// loseCentre ends a data centre for good, unless it is the last.
func (w *World) loseCentre(i int) {
	left := 0
	for _, r := range w.regions {
		if !r.lost && !r.copied {
			left++
		}
	}
	r := w.regions[i]
	if left < 2 || r.lost {
		return
	}
	w.tracef("#%d %s ends and never comes back", w.telling, r.name)
	r.lost = true
	for _, n := range r.procs {
		n.gone = true
	}
	for k := range w.edges {
		if w.edges[k].region == int32(i) {
			w.crashEdge(int32(k), 0, true)
		}
	}
}

// leader is the core of a leading process.
type leader interface{ SetLease(until fleettime.Mono) }

// replace ends a leader, at once or long after its successor has begun.
func (w *World) replace(f *fault, p *proc, core leader, who string, next func() bool) {
	p.doomed = true
	after := f.after
	if f.alone {
		after += f.last
	}
	switch {
	case f.zombie && f.bound:
		// Its lease ends by the time that the protocol assumes.
		left := after + time.Duration(f.y*float64(4*time.Second))
		w.tracef("#%d %s is replaced and lives on for %v, with a lease for %v", f.number, who, f.last, left)
		core.SetLease(p.clock.read(w.now).Add(fleettime.Shrink(left)))
		w.in(f.last, func() { p.gone = true })
	case f.zombie:
		w.tracef("#%d %s is replaced and lives on for %v", f.number, who, f.last)
		w.in(f.last, func() { p.gone = true })
	default:
		w.tracef("#%d %s crashes", f.number, who)
		p.gone = true
	}
	w.succeed(after, who, next)
}

// succeed starts the next leader after a while, unless another has begun by then.
func (w *World) succeed(after time.Duration, who string, next func() bool) {
	calm := w.calm
	w.in(after, func() {
		if w.calm == calm && next() { // else another began when all faults ended
			w.tracef("a successor of %s begins", who)
		}
	})
}

// takeover draws the time without a leader.
func (w *World) takeover() time.Duration {
	return 1300*time.Millisecond + time.Duration(w.chaos.Int64N(int64(700*time.Millisecond)))
}

// nextGlobal starts the next coordinator.
func (w *World) nextGlobal() bool {
	w.pending--
	w.startGlobal(false)
	return true
}

// stop stops a process for a while; it then continues.
func (w *World) stop(f *fault) {
	switch f.other % 4 {
	case 0:
		w.tracef("#%d the coordinator stands still for %v", f.number, f.last)
		p := &w.newest().proc
		p.asleep = max(p.asleep, w.until(f))
	case 1:
		r := w.regions[f.who%len(w.regions)]
		w.tracef("#%d %s's aggregator stands still for %v", f.number, r.name, f.last)
		p := &r.newest().proc
		p.asleep = max(p.asleep, w.until(f))
	default:
		n := w.edges[f.who%len(w.edges)]
		w.tracef("#%d %s stands still for %v", f.number, w.name(n), f.last)
		n.asleep = max(n.asleep, w.until(f))
	}
}

// changeLimits sets T and R to between half and twice their initial values.
func (w *World) changeLimits(f *fault) {
	first := w.oracle.first
	w.cfg.Total = max(1, int(float64(first.total)*(0.5+1.5*f.x)))
	w.cfg.Rate = max(1, int(float64(first.rate)*(0.5+1.5*f.y)))
	w.tracef("#%d T is now %d, R %d", f.number, w.cfg.Total, w.cfg.Rate)
	w.oracle.raise(w)
	w.publish()
}

// publish sends the room set to every node, with separate delays.
func (w *World) publish() {
	w.edition++
	delay := func() time.Duration { return time.Duration(w.chaos.ExpFloat64() * float64(300*time.Millisecond)) }
	for i := range w.globals {
		if !w.globals[i].gone {
			w.in(delay(), func() { w.readGlobal(int32(i)) })
		}
	}
	for i := range w.aggs {
		if !w.aggs[i].gone {
			w.in(delay(), func() { w.readRegion(int32(i)) })
		}
	}
	for i := range w.edges {
		w.in(delay(), func() { w.readEdge(int32(i)) })
	}
}

// readGlobal, readRegion and readEdge make a node read the newest room set.
func (w *World) readGlobal(i int32) {
	n := w.globals[i]
	w.deliver(&n.proc, func() {
		if n.edition != w.edition {
			n.edition, n.told = w.edition, w.roomsBy(n)
			n.core.SetRooms(n.clock.read(w.now), n.told)
			w.wakeGlobal(i)
		}
	})
}

func (w *World) readRegion(i int32) {
	n := w.aggs[i]
	w.deliver(&n.proc, func() {
		if n.edition != w.edition {
			n.edition, n.told = w.edition, w.regionRooms(n)
			n.core.SetRooms(n.clock.read(w.now), n.told)
			w.wakeRegion(i)
		}
	})
}

func (w *World) readEdge(i int32) {
	n := w.edges[i]
	w.deliver(&n.proc, func() {
		if !n.down && n.edition != w.edition {
			n.edition = w.edition
			w.tellEdge(n, n.clock.read(w.now))
			w.release(i)
			w.wakeEdge(i)
		}
	})
}
