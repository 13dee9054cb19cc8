package sim

import (
	"fmt"
	"math/rand/v2"
	"reflect"
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
	CrashEdge   bool `without:"crash-edge"`
	CrashRegion bool `without:"crash-regional"`
	CrashGlobal bool `without:"crash-global"`
	Zombies     bool `without:"zombies"`   // a replaced leader lives on for a while and believes that it leads
	Twins       bool `without:"twins"`     // another process starts with an edge's name
	Folders     bool `without:"folders"`   // an edge restarts in an empty folder, or a moved one
	Forget      bool `without:"forget"`    // an operator declares an edge dead: a dead one, or one that is cut off
	Ephemeral   bool `without:"ephemeral"` // an edge shuts down, and one with a new name replaces it
	Forever     bool `without:"forever"`   // an edge, or a whole data centre, never returns
	CutEdge     bool `without:"cut-edge"`  // in one direction or both
	CutRegion   bool `without:"cut-region"`
	CutPair     bool `without:"cut-pair"`          // between two processes, which may reach others
	Stop        bool `without:"stop"`              // processes are stopped and continued
	Limits      bool `without:"limits"`            // T and R are lowered and raised
	Session     bool `without:"session"`           // session_duration is edited
	Epoch       bool `without:"epoch"`             // the room's epoch is raised
	Remove      bool `without:"remove"`            // the room is removed and restored
	Drop        bool `without:"dropped"`           // with Remove: often, and sometimes for so long that nodes drop the room
	Disk        bool `without:"disk"`              // stores are slow, and writes fail, or succeed without an answer
	Fail        bool `without:"fail"`              // stores fail for the length of a fault
	Torn        bool `without:"torn"`              // a store has lost part of its data when a new leader begins
	Blank       bool `without:"blank"`             // a data centre's store loses its data
	Wipe        bool `without:"wipe"`              // a store is lost with its leader, and an earlier leader succeeds
	Rollback    bool `without:"rollback"`          // the coordinator's lease is restored from a backup: a term is repeated
	Keys        bool `without:"keys"`              // keys are rotated
	Members     bool `without:"members"`           // data centres are added and drained, and lists are rolled back
	Copies      bool `without:"copies"`            // data centres are copied, with their names, onto another NATS
	Forsake     bool `without:"forsake"`           // with Members: data centres are removed by force, and live on
	Methods     bool `without:"methods"`           // queueing_method and queue_all are edited
	Pause       bool `without:"pause"`             // the room is paused for a while
	ForNow      bool `without:"for-now"`           // T and R are overridden for a while
	Suspend     bool `without:"suspend"`           // the room is suspended for a while
	Renewal     bool `without:"renewal"`           // disable_session_renewal is edited
	Rename      bool `without:"rename"`            // the room is renamed, and keeps its id
	Events      bool `without:"events"`            // the room has events, with visitors that gather before
	Draws       bool `without:"draws"`             // the room has events with a draw
	Release     bool `without:"release"`           // the room is paused, and some visitors are released
	Rules       bool `without:"rules"`             // the bypass rules of the room are edited
	Pasts       bool `without:"pasts"`             // edges store snapshots in their data folders, by which a successor settles them
	BadFolders  bool `without:"bad-folders,pasts"` // with Pasts: their writes fail, or take long
	OldImages   bool `without:"old-images,pasts"`  // with Pasts: an edge's disk comes back as it was a while before
	Restart     bool `without:"restart"`           // every process ends and restarts on its machine
	Forgetful   bool `without:"forgetful"`         // no process stores fleet time in its data folder
	Clocks      bool `without:"clocks"`            // wall clocks are off by up to 5 min, monotonic ones drift at their bound

	Doubled float64       `without:"doubled"` // fraction of messages that arrive twice
	Tardy   float64       `without:"late"`    // fraction of messages that are late
	Late    time.Duration // by at most this

	// Vague is the uncertainty of fleet time in the data centres, and their alternating difference: as after hours
	// without a leader.
	Vague time.Duration `without:"vague"`

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
func (k *kernel) slowDisk() int64 {
	if !k.cfg.Faults.Disk || k.calm || k.chaos.IntN(4) > 0 {
		return 0
	}
	return k.chaos.Int64N(int64(3 * time.Second))
}

// faultKind is a kind of fault.
type faultKind struct {
	weight int    // relative frequency
	part   string // under which it can be left out, see parts
	happen func(*World, *fault)
}

// faultKinds lists all kinds, in the order of the draw.
var faultKinds = []faultKind{
	{3, "crash-edge", func(w *World, f *fault) { w.edges.crash(w.edges.of(f), f.last, false) }},
	{3, "crash-regional", func(w *World, f *fault) { w.centres.crashLeader(f) }},
	{3, "crash-global", func(w *World, f *fault) { w.globals.crashLeader(f) }},
	{1, "forever", func(w *World, f *fault) { w.edges.crash(w.edges.of(f), 0, true) }},
	{1, "forever", func(w *World, f *fault) { w.centres.lose(f.who % w.cfg.Centres) }},
	{3, "cut-edge", func(w *World, f *fault) { w.edges.cutOff(f) }},
	{3, "cut-region", func(w *World, f *fault) { w.centres.cutOff(f) }},
	{3, "cut-pair", func(w *World, f *fault) { w.cutPair(f) }},
	{3, "stop", func(w *World, f *fault) { w.stop(f) }},
	{3, "limits", func(w *World, f *fault) { w.operator.changeLimits(f) }},
	{2, "session", func(w *World, f *fault) { w.operator.editSession(f) }},
	{1, "epoch", func(w *World, f *fault) { w.operator.raiseEpoch(f) }},
	{1, "remove", func(w *World, f *fault) { w.operator.removeRoom(f) }},
	{3, "dropped", func(w *World, f *fault) { w.operator.removeRoom(f) }},
	{1, "blank", func(w *World, f *fault) { w.centres.blankStore(f) }},
	{3, "rollback", func(w *World, f *fault) { w.globals.rollBackLease(f) }},
	{3, "twins", func(w *World, f *fault) { w.edges.twin(f) }},
	{3, "folders", func(w *World, f *fault) { w.edges.changeFolder(f) }},
	{3, "bad-folders", func(w *World, f *fault) { w.edges.failFolder(f) }},
	{6, "forget", func(w *World, f *fault) { w.centres.forgetEdge(w.edges.of(f)) }},
	{2, "keys", func(w *World, f *fault) { w.edges.rotate(f) }},
	{4, "members", func(w *World, f *fault) { w.members.change(f) }},
	{3, "members", func(w *World, f *fault) { w.members.oldLeader(f) }},
	{1, "members", func(w *World, f *fault) { w.members.rollBack(f) }},
	{6, "ephemeral", func(w *World, f *fault) { w.edges.renew(f) }},
	{4, "copies", func(w *World, f *fault) { w.members.copyCentre(f) }},
	{3, "fail", func(w *World, f *fault) { w.centres.failStore(f) }},
	{3, "restart", func(w *World, f *fault) { w.restartAll(f) }},
}

// operatorKinds are actions of operators. They are drawn separately, so that the faults stay the same.
var operatorKinds = []faultKind{
	{3, "methods", func(w *World, f *fault) { w.operator.editMethod(f) }},
	{2, "pause", func(w *World, f *fault) { w.operator.pauseRoom(f) }},
	{2, "for-now", func(w *World, f *fault) { w.operator.limitForNow(f) }},
	{1, "suspend", func(w *World, f *fault) { w.operator.suspendRoom(f) }},
	{1, "renewal", func(w *World, f *fault) { w.operator.editRenewal(f) }},
	{1, "rename", func(w *World, f *fault) { w.operator.renameRoom(f) }},
	{4, "events", func(w *World, f *fault) { w.operator.scheduleEvent(f) }},
	{4, "release", func(w *World, f *fault) { w.operator.releaseSome(f) }},
	{4, "draws", func(w *World, f *fault) { w.operator.scheduleDraw(f) }},
	{4, "rules", func(w *World, f *fault) { w.operator.editRules(f) }},
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

// drawFaults returns all faults of the run, ascending.
func (c *Config) drawFaults() []fault {
	f := &c.Faults
	if !f.any() {
		return nil
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0x6c697374))
	pause := func(mean time.Duration) time.Duration { return time.Duration(rng.ExpFloat64() * float64(mean)) }
	kinds := c.kinds(faultKinds)
	end := c.Length
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
	rng = rand.New(rand.NewPCG(c.Seed, 0x6f706572))
	kinds, every := c.kinds(operatorKinds), 2*time.Second+2*f.Every
	for at := every + pause(every); at < end && len(kinds) > 0; at += pause(every) {
		out = append(out, fault{
			number: len(out), at: int64(at), kind: kinds[rng.IntN(len(kinds))],
			last: min(time.Second+pause(max(every, f.Last)), 2*time.Minute, end-at), x: rng.Float64(), y: rng.Float64(),
		})
	}
	return out
}

// has reports whether a part is in the experiment.
func (c *Config) has(part string) bool {
	e := enemies[slices.IndexFunc(enemies, func(e enemy) bool { return e.name == part })]
	return !reflect.ValueOf(c).Elem().FieldByIndex(e.fields[0]).IsZero()
}

// kinds returns the enabled faults, each repeated by its weight.
func (c *Config) kinds(all []faultKind) []*faultKind {
	var out []*faultKind
	for i := range all {
		if k := &all[i]; c.has(k.part) {
			out = append(out, slices.Repeat([]*faultKind{k}, k.weight)...)
		}
	}
	return out
}

// tracef traces a line, with its time.
func (k *kernel) tracef(format string, args ...any) {
	if k.trace != nil {
		k.trace("%10.3f  %s\n", float64(k.now)/1e9, fmt.Sprintf(format, args...))
	}
}

// broken reports whether a promise is broken: the run is over.
func (k *kernel) broken() bool { return k.fault != "" || k.excused != "" }

// fail records a broken promise, the first one only.
func (k *kernel) fail(format string, args ...any) {
	if k.broken() {
		return
	}
	text := fmt.Sprintf("%v: ", time.Duration(k.now)) + fmt.Sprintf(format, args...)
	k.tracef("%s", text)
	if k.trace != nil {
		k.atFault()
	}
	if k.guess {
		k.excused = text
	} else {
		k.fault = text
	}
}

// books traces the ledgers of all nodes.
func (j *oracle) books() {
	for i, g := range j.globals.all {
		if g.gone {
			continue
		}
		l := g.core.Ledger(j.room)
		j.tracef("coordinator %d, term %d, list %d: limit %d/%d free %d/%d, complete %v", i+1, g.term, g.members, l.Total, l.Rate, l.Free, l.RateFree, l.Complete)
		for _, c := range l.Centres {
			j.tracef("  %s: lent %d/%d idle %d/%d keep %d/%d, generation %d, adopted %v, %s", c.Name, c.Held, c.RateHeld, c.Idle, c.RateIdle, c.Keep, c.RateKeep, c.Gen, c.Adopted, c.Standing)
		}
	}
	for i, r := range j.fleet.centres.all {
		c := &j.centres[i]
		j.tracef("%s: %d sessions in truth, %d admitted in 60 s", r.name, c.here, c.minute.count(j.now))
		for _, n := range r.procs {
			if n.gone {
				continue
			}
			now := n.clock.read(j.now)
			l, st := n.core.Ledger(j.room), n.core.Status(now)
			j.tracef("  aggregator %d, list %d, %s, follows %d (leased %v): granted %d/%d returned %d/%d free %d/%d credit %d active %d reserved %d, settled %v, declared %v, generation %d, watermark %v ago",
				n.term, n.members, st.Standing, st.Follows.N, st.Leased, l.Granted, l.RateGranted, l.Returned, l.RateReturned, l.Free, l.RateFree, l.Credit, l.Active, l.Reserved,
				l.Settled, l.Reconstructed, l.Gen, j.fleetTime().Sub(st.Watermark))
			for _, e := range st.Edges {
				j.tracef("    %s %016x %s, as of %v ago, heard %v ago", e.Name, e.Instance, e.State, j.fleetTime().Sub(e.AsOf), now.Sub(e.Heard))
			}
		}
		for _, k := range r.edges {
			e := j.edges.all[k]
			now := e.clock.read(j.now)
			l, st := e.core.Ledger(now, j.room), e.core.Status(now)
			j.tracef("  %s %016x, lease epoch %d, follows %d (leased %v, down %v): granted %d/%d spent %d returned %d/%d idle %d, renewed %d of %d, sessions %d, off by %v",
				e.name, st.Instance, st.LeaseEpoch, st.Follows.N, st.Leased, e.down, l.Granted, l.RateGranted, l.Spent, l.Returned, l.RateReturned, l.RateIdle,
				l.Renewed, l.RenewCeil, l.Sessions, st.Time.Sub(j.fleetTime()))
		}
		for id, t := range j.tickets {
			if t.home == i {
				j.tracef("  ticket %016x until %v from now", id, time.Duration(int64(t.until[i])*1000-int64(j.fleetTime()))*time.Millisecond)
			}
		}
	}
}

// in calls do after d.
func (k *kernel) in(d time.Duration, do func()) {
	k.plan(event{at: k.now + int64(d), kind: evDo, msg: do})
}

// until returns the end of a fault that begins now.
func (k *kernel) until(f *fault) int64 { return k.now + int64(f.last) }

// of returns the edge of a fault.
func (es *edges) of(f *fault) int32 { return int32(f.who % len(es.all)) }

// changeFolder ends an edge's process; the next one has another data folder.
func (es *edges) changeFolder(f *fault) {
	i := es.of(f)
	if es.all[i].lost || es.all[i].down {
		return
	}
	es.crash(i, f.last, false)
	es.moveFolder(es.all[i], f)
}

// crashLeader ends the leading aggregator of a data centre; another one takes over.
func (cs *centres) crashLeader(f *fault) {
	i := int32(f.who % len(cs.all))
	r := cs.all[i]
	n := r.newest()
	if n.gone || r.lost {
		return
	}
	cs.replace(f, &n.proc, n.core, r.name+"'s aggregator", cs.next(i))
}

// crashLeader ends the leading coordinator; another one takes over.
func (gs *coordinators) crashLeader(f *fault) {
	if n := gs.newest(); !n.gone {
		gs.pending++
		gs.replace(f, &n.proc, n.core, "the coordinator", gs.next)
	}
}

// rollBackLease does the same with a lease restored from a backup.
func (gs *coordinators) rollBackLease(f *fault) {
	if gs.newest().gone {
		return
	}
	gs.rolled = 1 + uint64(f.x*float64(gs.lease))
	gs.tracef("#%d the coordinators' lease comes back from a backup: the next term is %d", f.number, gs.rolled)
	gs.crashLeader(f)
}

func (es *edges) cutOff(f *fault) {
	n := es.all[es.of(f)]
	es.tracef("#%d %s is cut off for %v (up %v, down %v)", f.number, n, f.last, f.up, f.down)
	es.cut(f, &n.cutUp, &n.cutDown)
}

func (cs *centres) cutOff(f *fault) {
	r := cs.all[f.who%len(cs.all)]
	cs.tracef("#%d %s is cut off for %v (up %v, down %v)", f.number, r.name, f.last, f.up, f.down)
	cs.cut(f, &r.cutUp, &r.cutDown)
}

func (o *operator) editSession(f *fault) {
	o.cfg.Session = max(5*time.Second, time.Duration(float64(o.oracle.first.session)*(0.4+1.6*f.x)).Round(time.Second))
	o.tracef("#%d session_duration is now %v", f.number, o.cfg.Session)
	o.publish()
}

func (o *operator) raiseEpoch(f *fault) {
	o.epoch++
	o.tracef("#%d the room's epoch is now %d", f.number, o.epoch)
	o.publish()
}

// removeRoom removes the room from the set for a while.
func (o *operator) removeRoom(f *fault) {
	if o.removed {
		return
	}
	last := f.last
	if o.cfg.Faults.Drop && f.x < 0.7 {
		last = dropLeast + time.Duration(f.y*float64(dropSpread))
	}
	o.tracef("#%d the room is removed for %v", f.number, last)
	o.removed = true
	o.publish()
	o.in(last, func() {
		if o.removed {
			o.tracef("#%d the room is put back: %s", f.number, o.havingRoom())
			o.removed = false
			o.publish()
		}
	})
}

// Nodes drop a removed room about a minute after its last visitor, in the middle of this range.
const (
	dropLeast  = 45 * time.Second
	dropSpread = 50 * time.Second
)

// havingRoom counts the nodes that have dropped a room, and describes those that have not.
func (o *operator) havingRoom() string {
	var have []string
	edges, dropped := 0, 0
	for _, n := range o.edges.all {
		if n.down {
			continue
		}
		if edges++; n.core.Rooms() == 0 {
			dropped++
		} else {
			have = append(have, n.String())
		}
	}
	for _, r := range o.centres.all {
		if n := r.newest(); !n.gone && n.core.Rooms() > 0 {
			have = append(have, r.name)
		}
	}
	if g := o.globals.newest(); !g.gone && g.core.Rooms() > 0 {
		have = append(have, "global")
	}
	if o.drops.edges += dropped; edges > 0 && len(have) == 0 {
		o.drops.all++
	}
	return fmt.Sprintf("%d of %d edges have dropped it; left: %v", dropped, edges, have)
}

func (cs *centres) blankStore(f *fault) {
	r := cs.all[f.who%len(cs.all)]
	cs.tracef("#%d the store of %s loses its memory", f.number, r.name)
	r.stored = wire.Durable{} // the lease keeps its owner
}

func (cs *centres) failStore(f *fault) {
	r := cs.all[f.who%len(cs.all)]
	cs.tracef("#%d nothing can be stored in %s for %v", f.number, r.name, f.last)
	r.failing = max(r.failing, cs.until(f))
}

// cut cuts the directions of a link given by the fault.
func (k *kernel) cut(f *fault, up, down *int64) {
	if f.up {
		*up = max(*up, k.until(f))
	}
	if f.down {
		*down = max(*down, k.until(f))
	}
}

// cutPair separates one edge from one aggregator, or one aggregator from one coordinator, while each may reach other
// processes of the same role.
func (fl *fleet) cutPair(f *fault) {
	var low, high nodeID
	var text string
	if f.x < 0.5 {
		low = nodeID{0, int32(f.who % len(fl.edges.all))}
		r := fl.centres.all[fl.edges.all[low.n].region]
		p := r.procs[max(0, len(r.procs)-1-f.other%2)]
		high = nodeID{1, p.id}
		text = fmt.Sprintf("%s and aggregator %d", fl.edges.all[low.n], p.term)
	} else {
		r := fl.centres.all[f.who%len(fl.centres.all)]
		low = nodeID{1, r.newest().id}
		high = nodeID{2, int32(max(0, len(fl.globals.all)-1-f.other%2))}
		text = fmt.Sprintf("%s and coordinator %d", r.name, high.n+1)
	}
	fl.tracef("#%d %s do not hear each other for %v (up %v, down %v)", f.number, text, f.last, f.up, f.down)
	fl.net.pairs = slices.DeleteFunc(fl.net.pairs, func(p pairCut) bool { return p.until <= fl.now })
	if f.up {
		fl.net.pairs = append(fl.net.pairs, pairCut{low, high, fl.until(f)})
	}
	if f.down {
		fl.net.pairs = append(fl.net.pairs, pairCut{high, low, fl.until(f)})
	}
}

// crash ends the life of an edge, for a while or for good.
func (es *edges) crash(i int32, d time.Duration, forever bool) {
	n := es.all[i]
	if n.lost || (n.down && !forever) {
		return
	}
	if n.lost = forever; forever {
		es.tracef("#%d %s ends and never comes back", es.telling, n)
	} else {
		es.tracef("#%d %s crashes for %v", es.telling, n, d)
	}
	n.down = true
	es.hangUp(i)
	if forever {
		return
	}
	es.in(d, func() { es.revive(i) })
}

// forgetEdge declares the newest process of an edge dead, as an operator does. The aggregator refuses if that process
// reports to it. The declaration may be wrong: renewals of that process are then not counted.
func (cs *centres) forgetEdge(i int32) {
	n := cs.edges.all[i]
	agg := cs.all[n.region].newest()
	if agg.gone || agg.asleep > cs.now {
		return
	}
	instance := n.core.Status(n.clock.read(cs.now)).Instance
	if _, err := agg.core.Forget(agg.clock.read(cs.now), n.name, instance, false); err != nil {
		return
	}
	cs.tracef("#%d %s is declared ended (it has: %v)", cs.telling, n, n.down)
	n.forgotten, n.misjudged = !n.down, n.misjudged || !n.down
	cs.run(agg.id)
}

// moveFolder gives the next process of an edge an empty folder, or a copy of the former one.
func (es *edges) moveFolder(n *edgeNode, f *fault) {
	if n.place = es.newPlace(); f.x < 0.5 {
		n.folder, n.ended = fleettime.Lives{}, nil
	}
	es.tracef("#%d the data folder of %s is another one (copied %v)", f.number, n, f.x >= 0.5)
}

// mostTwins bounds the number of twins.
const mostTwins = 3

// twin starts another process with an edge's name, in an empty folder or in a copy of that edge's, often while that
// edge is cut off. It ends with the fault.
func (es *edges) twin(f *fault) {
	k := f.who % (es.cfg.Centres * es.cfg.Edges)
	n := es.all[k]
	if n.lost || n.centre.lost || es.twins >= mostTwins {
		return
	}
	es.twins++
	if f.other%3 > 0 {
		es.tracef("#%d %s is cut off for %v (up %v, down %v)", f.number, n, f.last, f.up, f.down)
		es.cut(f, &n.cutUp, &n.cutDown)
	}
	folder := fleettime.Lives{}
	if f.x < 0.5 {
		folder = n.folder
	}
	es.tracef("#%d another process begins as %s, for %v (copied folder %v)", f.number, n, f.last, f.x < 0.5)
	i := es.add(n.region, n.centre, n.name, folder, false)
	es.in(f.last, func() {
		es.twins--
		es.tracef("the other %s ends", n)
		es.crash(i, 0, true)
	})
}

// renew shuts an edge down; another one with a new name replaces it.
func (es *edges) renew(f *fault) {
	i := es.of(f)
	n := es.all[i]
	if n.down || n.asleep > es.now {
		return
	}
	es.leave(i)
	es.renewed++
	n.name, n.folder, n.place = fmt.Sprintf("edge%d-%d", int(i)%es.cfg.Edges+1, es.renewed), fleettime.Lives{}, es.newPlace()
	es.in(f.last, func() { es.revive(i) })
}

func (es *edges) revive(i int32) {
	if n := es.all[i]; n.down && !n.lost {
		es.tracef("%s starts anew", n)
		es.start(i)
	}
}

// lose ends a data centre for good, unless it is the last.
func (cs *centres) lose(i int) {
	left := 0
	for _, r := range cs.all {
		if !r.lost && !r.copied {
			left++
		}
	}
	r := cs.all[i]
	if left < 2 || r.lost {
		return
	}
	cs.tracef("#%d %s ends and never comes back", cs.telling, r.name)
	r.lost = true
	for _, n := range r.procs {
		n.gone = true
	}
	for k := range cs.edges.all {
		if cs.edges.all[k].region == int32(i) {
			cs.edges.crash(int32(k), 0, true)
		}
	}
}

// leader is the core of a leading process.
type leader interface{ SetLease(until fleettime.Mono) }

// replace ends a leader, at once or long after its successor has begun.
func (k *kernel) replace(f *fault, p *proc, core leader, who string, next func() bool) {
	p.doomed = true
	after := f.after
	if f.alone {
		after += f.last
	}
	switch {
	case f.zombie && f.bound:
		// Its lease ends by the time that the protocol assumes.
		left := after + time.Duration(f.y*float64(4*time.Second))
		k.tracef("#%d %s is replaced and lives on for %v, with a lease for %v", f.number, who, f.last, left)
		core.SetLease(p.clock.read(k.now).Add(fleettime.Shrink(left)))
		k.in(f.last, func() { p.gone = true })
	case f.zombie:
		k.tracef("#%d %s is replaced and lives on for %v", f.number, who, f.last)
		k.in(f.last, func() { p.gone = true })
	default:
		k.tracef("#%d %s crashes", f.number, who)
		p.gone = true
	}
	k.succeed(after, who, next)
}

// succeed starts the next leader after a while, unless another has begun by then.
func (k *kernel) succeed(after time.Duration, who string, next func() bool) {
	calm := k.calm
	k.in(after, func() {
		if k.calm == calm && next() { // else another began when all faults ended
			k.tracef("a successor of %s begins", who)
		}
	})
}

// takeover draws the time without a leader.
func (k *kernel) takeover() time.Duration {
	return 1300*time.Millisecond + time.Duration(k.chaos.Int64N(int64(700*time.Millisecond)))
}

// next starts the next coordinator.
func (gs *coordinators) next() bool {
	gs.pending--
	gs.start(false)
	return true
}

// stop stops a process for a while; it then continues.
func (fl *fleet) stop(f *fault) {
	p, who := &fl.globals.newest().proc, "the coordinator"
	if r := fl.centres.all[f.who%len(fl.centres.all)]; f.other%4 == 1 {
		p, who = &r.newest().proc, r.name+"'s aggregator"
	} else if n := fl.edges.all[fl.edges.of(f)]; f.other%4 > 1 {
		p, who = &n.proc, n.String()
	}
	fl.tracef("#%d %s stands still for %v", f.number, who, f.last)
	p.asleep = max(p.asleep, fl.until(f))
}

// changeLimits sets T and R to between half and twice their initial values.
func (o *operator) changeLimits(f *fault) {
	first := o.oracle.first
	o.cfg.Total = max(1, int(float64(first.total)*(0.5+1.5*f.x)))
	o.cfg.Rate = max(1, int(float64(first.rate)*(0.5+1.5*f.y)))
	o.announce(f, "T is now %d, R %d", o.cfg.Total, o.cfg.Rate)
}

// edited publishes an edit, which may be one of the limits.
func (o *operator) edited() {
	o.oracle.raise()
	o.publish()
}

// publish sends the room set to every node, with separate delays.
func (o *operator) publish() {
	o.edition++
	delay := func() time.Duration { return time.Duration(o.chaos.ExpFloat64() * float64(300*time.Millisecond)) }
	for _, p := range o.processes() {
		o.in(delay(), func() { p.read(false) })
	}
}

// processes returns the processes that have not ended for good: coordinators, aggregators and edges.
func (fl *fleet) processes() (out []*proc) {
	for _, n := range fl.globals.all {
		out = append(out, &n.proc)
	}
	for _, n := range fl.centres.aggs {
		out = append(out, &n.proc)
	}
	for _, n := range fl.edges.all {
		out = append(out, &n.proc)
	}
	return slices.DeleteFunc(out, func(p *proc) bool { return p.gone })
}

// read makes a node read a newer room set; look makes it look at the clock, and read the present one again if a new
// phase has begun by it.
func (gs *coordinators) read(i int32, look bool) {
	n := gs.all[i]
	gs.deliver(&n.proc, func() {
		if rooms := gs.rooms(n); n.take(gs.doc.edition, rooms, look) {
			n.core.SetRooms(n.clock.read(gs.now), rooms)
			gs.wake(i)
		}
	})
}

func (cs *centres) read(i int32, look bool) {
	n := cs.aggs[i]
	cs.deliver(&n.proc, func() {
		if rooms := cs.rooms(n); n.take(cs.doc.edition, rooms, look) {
			n.core.SetRooms(n.clock.read(cs.now), rooms)
			cs.wake(i)
		}
	})
}

// release answers the long-polled visitors that an edge admits.
func (es *edges) release(i int32) {
	n := es.all[i]
	es.answer(i, n.core.Release(n.clock.read(es.now), nil))
}

func (es *edges) read(i int32, look bool) {
	n := es.all[i]
	es.deliver(&n.proc, func() {
		if n.down || look != (n.edition == es.doc.edition) {
			return
		}
		if rooms := es.rooms(n); look && (len(rooms) == 0 || reflect.DeepEqual(rooms[0], n.told)) {
			return
		}
		n.edition = es.doc.edition
		es.tell(n, n.clock.read(es.now))
		es.release(i)
		es.wake(i)
	})
}
