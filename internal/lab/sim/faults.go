package sim

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
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
	CutPair     bool `without:"cut-pair"` // between two processes, which may reach others
	Stop        bool `without:"stop"`     // processes are stopped and continued
	Limits      bool `without:"limits"`   // T and R are lowered and raised
	Session     bool `without:"session"`  // session_duration is edited
	Epoch       bool `without:"epoch"`    // the room's epoch is raised
	Remove      bool `without:"remove"`   // the room is removed and restored
	// with Remove: often, and sometimes for so long that nodes drop the room
	Drop     bool `without:"dropped"`
	Disk     bool `without:"disk"`     // stores are slow, and writes fail, or succeed without an answer
	Fail     bool `without:"fail"`     // stores fail for the length of a fault
	Torn     bool `without:"torn"`     // a store has lost part of its data when a new leader begins
	Blank    bool `without:"blank"`    // a data centre's store loses its data
	Wipe     bool `without:"wipe"`     // a store is lost with its leader, and an earlier leader succeeds
	Rollback bool `without:"rollback"` // the coordinator's lease is restored from a backup: a term is repeated
	Keys     bool `without:"keys"`     // keys are rotated
	Members  bool `without:"members"`  // data centres are added and drained, and lists are rolled back
	Copies   bool `without:"copies"`   // data centres are copied, with their names, onto another NATS
	Forsake  bool `without:"forsake"`  // with Members: data centres are removed by force, and live on
	Readmit  bool `without:"readmit"`  // data centres are cut off, removed by force and added again, in any order with takeovers
	Methods  bool `without:"methods"`  // queueing_method and queue_all are edited
	Pause    bool `without:"pause"`    // the room is paused for a while
	ForNow   bool `without:"for-now"`  // T and R are overridden for a while
	Suspend  bool `without:"suspend"`  // the room is suspended for a while
	Renewal  bool `without:"renewal"`  // disable_session_renewal is edited
	Rename   bool `without:"rename"`   // the room is renamed, and keeps its id
	Events   bool `without:"events"`   // the room has events, with visitors that gather before
	Draws    bool `without:"draws"`    // the room has events with a draw
	Release  bool `without:"release"`  // the room is paused, and some visitors are released
	Rules    bool `without:"rules"`    // the bypass rules of the room are edited
	// edges store snapshots in their data folders, by which a successor settles them
	Pasts      bool `without:"pasts"`
	BadFolders bool `without:"bad-folders,pasts"` // with Pasts: their writes fail, or take long
	OldImages  bool `without:"old-images,pasts"`  // with Pasts: an edge's disk comes back as it was a while before
	Restart    bool `without:"restart"`           // every process ends and restarts on its machine
	Forgetful  bool `without:"forgetful"`         // no process stores fleet time in its data folder
	Busy       bool `without:"busy"`              // leaders answer several messages together
	// wall clocks are off by up to 5 min, monotonic ones drift at their bound
	Clocks bool `without:"clocks"`

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
	{1, "forever", loseCentre},
	{3, "cut-edge", func(w *World, f *fault) { w.edges.cutOff(f, w.edges.of(f)) }},
	{3, "cut-region", func(w *World, f *fault) {
		r := w.centres.of(f)
		w.tracef("#%d %s is cut off for %v (up %v, down %v)", f.number, r.name, f.last, f.up, f.down)
		w.cut(f, &r.cutUp, &r.cutDown)
	}},
	{3, "cut-pair", func(w *World, f *fault) { w.cutPair(f) }},
	{3, "stop", func(w *World, f *fault) { w.stop(f) }},
	{3, "limits", func(w *World, f *fault) { // to between half and twice their initial values
		first := w.oracle.first
		w.cfg.Total = max(1, int(float64(first.total)*(0.5+1.5*f.x)))
		w.cfg.Rate = max(1, int(float64(first.rate)*(0.5+1.5*f.y)))
		w.operator.announce(f, "T is now %d, R %d", w.cfg.Total, w.cfg.Rate)
	}},
	{2, "session", func(w *World, f *fault) {
		first := float64(w.oracle.first.session)
		w.cfg.Session = max(5*time.Second, time.Duration(first*(0.4+1.6*f.x)).Round(time.Second))
		w.tracef("#%d session_duration is now %v", f.number, w.cfg.Session)
		w.operator.publish()
	}},
	{1, "epoch", func(w *World, f *fault) {
		w.doc.epoch++
		w.tracef("#%d the room's epoch is now %d", f.number, w.doc.epoch)
		w.operator.publish()
	}},
	{1, "remove", func(w *World, f *fault) { w.operator.removeRoom(f) }},
	{3, "dropped", func(w *World, f *fault) { w.operator.removeRoom(f) }},
	{1, "blank", func(w *World, f *fault) {
		r := w.centres.of(f)
		w.tracef("#%d the store of %s loses its memory", f.number, r.name)
		r.stored = wire.Durable{} // the lease keeps its owner
	}},
	{3, "rollback", func(w *World, f *fault) { // the lease is restored from a backup, and its holder crashes
		if gs := w.globals; !gs.newest().gone {
			gs.rolled = 1 + uint64(f.x*float64(gs.lease))
			w.tracef("#%d the coordinators' lease comes back from a backup: the next term is %d", f.number, gs.rolled)
			gs.crashLeader(f)
		}
	}},
	{3, "twins", twin},
	{3, "folders", func(w *World, f *fault) { // the next process of an edge has an empty one, or a copy of the former one
		n := w.edges.of(f)
		if n.lost || n.down {
			return
		}
		w.edges.crash(n, f.last, false)
		if n.place = w.edges.newPlace(); f.x < 0.5 {
			n.folder, n.ended = fleettime.Lives{}, nil
		}
		w.tracef("#%d the data folder of %s is another one (copied %v)", f.number, n, f.x >= 0.5)
	}},
	{3, "bad-folders", func(w *World, f *fault) {
		n := w.edges.of(f)
		w.tracef("#%d the data folder of %s can hardly be written for %v", f.number, n, f.last)
		n.pasts.failing = max(n.pasts.failing, w.until(f))
	}},
	{6, "forget", forget},
	{2, "keys", func(w *World, f *fault) { // edges read the ring late, some only after others seal with the new key
		if !w.cfg.Network.Sealed || !w.keys.turn(w.fleetTime()) {
			return
		}
		w.tracef("#%d the keys are rotated", f.number)
		for _, n := range w.edges.all {
			w.in(time.Duration(w.chaos.ExpFloat64()*float64(15*time.Second)), func() { w.keys.tell(n) })
		}
	}},
	{4, "members", func(w *World, f *fault) { w.members.change(f) }},
	{3, "members", func(w *World, f *fault) { w.members.oldLeader(f) }},
	{1, "members", func(w *World, f *fault) { w.members.rollBack(f) }},
	{6, "ephemeral", renewEdge},
	{4, "copies", func(w *World, f *fault) { w.members.copyCentre(f) }},
	{3, "fail", func(w *World, f *fault) {
		r := w.centres.of(f)
		w.tracef("#%d nothing can be stored in %s for %v", f.number, r.name, f.last)
		r.failing = max(r.failing, w.until(f))
	}},
	{3, "restart", func(w *World, f *fault) { w.restartAll(f) }},
	{6, "readmit", func(w *World, f *fault) { w.members.readmit(f) }},
}

// operatorKinds are actions of operators. They are drawn separately, so that the faults stay the same.
var operatorKinds = []faultKind{
	{3, "methods", func(w *World, f *fault) { w.operator.editMethod(f) }},
	{2, "pause", func(w *World, f *fault) { w.operator.pauseRoom(f) }},
	{2, "for-now", func(w *World, f *fault) {
		o, first := w.operator, w.oracle.first
		l := &room.Limits{
			Mark: o.mark(f), TotalActiveUsers: max(1, int(float64(first.total)*2*f.x)),
			NewUsersPerMinute: max(1, int(float64(first.rate)*2*f.y)),
		}
		o.control.Limits = l
		o.announce(f, "T is %d and R %d for %v", l.TotalActiveUsers, l.NewUsersPerMinute, f.last)
		o.reread(f)
	}},
	{1, "suspend", func(w *World, f *fault) {
		w.doc.suspended = true
		w.operator.announce(f, "the room is suspended for %v", f.last)
		w.operator.later(f.last, func() { w.doc.suspended = false })
	}},
	{1, "renewal", func(w *World, f *fault) {
		w.doc.noRenewal = !w.doc.noRenewal
		w.operator.announce(f, "disable_session_renewal: %v", w.doc.noRenewal)
	}},
	{1, "rename", func(w *World, f *fault) {
		if w.doc.name = ""; f.x < 0.8 {
			w.doc.name = "renamed-" + string(rune('a'+int(f.y*25)))
		}
		w.operator.announce(f, "the room is called %q", w.doc.name)
	}},
	{4, "events", func(w *World, f *fault) { w.operator.scheduleEvent(f) }},
	{4, "release", func(w *World, f *fault) { w.operator.releaseSome(f) }},
	{4, "draws", func(w *World, f *fault) { w.operator.scheduleDraw(f) }},
	{4, "rules", func(w *World, f *fault) { // some or all of bypasses, for a while
		before := w.doc.rules
		w.doc.rules = uint8(1 + int(f.x*float64(int(1)<<len(bypasses)-1)))
		w.operator.announce(f, "the room has the rules %04b for %v", w.doc.rules, f.last)
		w.operator.later(f.last, func() { w.doc.rules = before & uint8(int(f.y*16)) })
	}},
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
			number: len(out), at: int64(at), kind: kinds[rng.IntN(len(kinds))], who: rng.IntN(1 << 16), other: rng.IntN(1 << 16),
			last: d,
			up:   dir != 1, down: dir != 2,
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
	var low, high *proc
	var text string
	if f.x < 0.5 {
		n := fl.edges.of(f)
		p := n.centre.procs[max(0, len(n.centre.procs)-1-f.other%2)]
		low, high, text = &n.proc, &p.proc, fmt.Sprintf("%s and aggregator %d", n, p.term)
	} else {
		r, g := fl.centres.of(f), fl.globals.all[max(0, len(fl.globals.all)-1-f.other%2)]
		low, high, text = &r.newest().proc, &g.proc, fmt.Sprintf("%s and coordinator %d", r.name, g.id+1)
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

// renewEdge shuts an edge down; another one with a new name replaces it.
func renewEdge(w *World, f *fault) {
	es := w.edges
	n := es.of(f)
	if n.down || n.asleep > es.now {
		return
	}
	es.leave(n)
	es.renewed++
	n.name, n.folder, n.place = fmt.Sprintf("edge%d-%d", int(n.id)%es.cfg.Edges+1, es.renewed), fleettime.Lives{},
		es.newPlace()
	es.in(f.last, func() { es.revive(n) })
}

// twin starts another process with an edge's name, in an empty folder or in a copy of that edge's, often while that
// edge is cut off. It ends with the fault.
func twin(w *World, f *fault) {
	es := w.edges
	n := es.all[f.who%(es.cfg.Centres*es.cfg.Edges)]
	if n.lost || n.centre.lost || es.twins >= mostTwins {
		return
	}
	es.twins++
	if f.other%3 > 0 {
		es.cutOff(f, n)
	}
	folder := fleettime.Lives{}
	if f.x < 0.5 {
		folder = n.folder
	}
	es.tracef("#%d another process begins as %s, for %v (copied folder %v)", f.number, n, f.last, f.x < 0.5)
	twin := es.add(n.centre, n.name, folder, false)
	es.in(f.last, func() {
		es.twins--
		es.tracef("the other %s ends", n)
		es.crash(twin, 0, true)
	})
}

// forget declares the newest process of an edge dead, as an operator does. The aggregator refuses if that process
// reports to it. The declaration may be wrong: renewals of that process are then not counted.
func forget(w *World, f *fault) {
	n := w.edges.of(f)
	agg := n.centre.newest()
	if agg.gone || agg.asleep > w.now {
		return
	}
	instance := n.core.Status(n.clock.read(w.now)).Instance
	if _, err := agg.core.Forget(agg.clock.read(w.now), n.name, instance, false); err != nil {
		return
	}
	w.tracef("#%d %s is declared ended (it has: %v)", f.number, n, n.down)
	n.forgotten, n.misjudged = !n.down, n.misjudged || !n.down
	w.centres.run(agg)
}

// loseCentre ends a data centre for good, unless it is the last.
func loseCentre(w *World, f *fault) {
	r := w.centres.all[f.who%w.cfg.Centres]
	left := 0
	for _, o := range w.centres.all {
		if !o.lost && !o.copied {
			left++
		}
	}
	if left < 2 || r.lost {
		return
	}
	w.tracef("#%d %s ends and never comes back", f.number, r.name)
	r.lost = true
	for _, n := range r.procs {
		n.gone = true
	}
	for _, n := range r.edges {
		w.edges.crash(n, 0, true)
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

// stop stops a process for a while; it then continues.
func (fl *fleet) stop(f *fault) {
	p, who := &fl.globals.newest().proc, "the coordinator"
	if r := fl.centres.of(f); f.other%4 == 1 {
		p, who = &r.newest().proc, r.name+"'s aggregator"
	} else if n := fl.edges.of(f); f.other%4 > 1 {
		p, who = &n.proc, n.String()
	}
	fl.tracef("#%d %s stands still for %v", f.number, who, f.last)
	p.asleep = max(p.asleep, fl.until(f))
}
