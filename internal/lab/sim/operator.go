package sim

import (
	"fmt"
	"math"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
)

// operator is the operators of the room: they edit its documents, and every node reads them.
type operator struct {
	*fleet
	*roomDoc
	oracle  *oracle
	crashAt uint64                   // release at which the claiming coordinator ends
	drops   struct{ edges, all int } // when the room was put back: edges without it, and times at which no node had it
}

// roomDoc is the room as the stores have it, beside its limits: the operators' settings, and the controls.
type roomDoc struct {
	k       *kernel
	edition uint64 // as last published
	epoch   uint32
	removed bool

	method    string
	queueAll  bool
	suspended bool
	noRenewal bool
	rules     uint8  // bits of the active bypasses
	name      string // "" for the initial one
	control   room.Control
	edits     int // of the method, so that an older edit does not end a newer one
	event     *room.Event
	draws     draws

	// The room set that nodes read, rebuilt after a change, since the oracle needs it for every event.
	made     settings
	set      *room.Set
	controls *room.Controls
	binding  binding
	// bindingSoon is the same at [fleettime.MaxError] from now.
	bindingSoon binding
}

// settings are the inputs of a room set.
type settings struct {
	total, rate                    int
	method, name                   string
	queueAll, suspended, noRenewal bool
	rules                          uint8
	edition                        uint64
}

func (o *roomDoc) settings() settings {
	return settings{
		o.k.cfg.Total, o.k.cfg.Rate, o.method, o.name, o.queueAll, o.suspended, o.noRenewal, o.rules,
		o.edition,
	}
}

const firstName = "sale"

// inForce returns the room as read at a time known up to bound, by the same code as in nodes.
func (o *roomDoc) inForce(at fleettime.Time, bound time.Duration) *room.Room {
	want := o.settings()
	if o.set == nil || o.made != want {
		s := room.Settings{
			Name: firstName, Host: "sale.example", Origin: "http://10.0.0.1", TotalActiveUsers: o.k.cfg.Total,
			NewUsersPerMinute: o.k.cfg.Rate,
			QueueingMethod:    o.method, QueueAll: o.queueAll, Suspended: o.suspended, NoRenewal: o.noRenewal,
			Rules: rulesOf(o.rules), WebPush: o.k.cfg.WebPush,
		}
		if o.name != "" {
			s.Name, s.Identity = o.name, firstName
		}
		set, err := room.NewSet(room.Document{Rooms: []room.Settings{s}}, o.edition+1)
		if err != nil {
			panic(err) // the simulator's own settings
		}
		o.made, o.set = want, set
		o.controls = &room.Controls{Version: 1, Rooms: map[string]*room.Control{room.PublicID(firstName): &o.control}}
	}
	r := o.set.Rooms()[0]
	if o.control != (room.Control{}) {
		r = o.set.Under(o.controls, int64(at), bound).Rooms()[0]
	}
	if r.ID != o.k.room {
		o.k.fail("a renamed room has another id")
	}
	if o.event == nil {
		return r
	}
	// An event that fits into the world is too short for validation.
	out, base := *r, o.set.Rooms()[0].Settings
	base.Events = []room.Event{*o.event}
	out.Plan, out.Drawn = base.PlanBy(o.draws.board), o.draws.board.Drawn(room.PublicID(firstName))
	out.Settings, out.Phase, out.Closed = base.During(out.Plan, int64(at), bound)
	if out.Phase.Event != nil && o.event.Shuffle {
		out.Draw = o.draws.board.Of(base.DrawOf(o.event))
	}
	out.Settings = out.Surely(&o.control, int64(at), bound)
	return &out
}

// scheduleEvent adds an event to the room's calendar, with visitors that gather soon or not at all.
func (o *operator) scheduleEvent(f *fault) {
	now, first := o.fleetTime(), o.oracle.first
	if o.event != nil && int64(now) < o.event.End {
		return
	}
	start := now.Add(time.Duration(1+10*f.x) * time.Second)
	over := room.Overrides{}
	e := &room.Event{Name: "launch", Start: int64(start), End: int64(start.Add(time.Second + f.last)), Overrides: over}
	if f.y < 0.7 {
		e.Prequeue, e.Start, e.End = e.Start, e.Start+int64(500+f.x*15_000), e.End+int64(500+f.x*15_000)
	}
	if f.y > 0.2 {
		over["total_active_users"], over["new_users_per_minute"] = max(1, int(float64(first.total)*2*f.x)),
			max(1, int(float64(first.rate)*2*f.y))
	}
	if f.x > 0.8 {
		over["disable_session_renewal"] = true
	}
	if f.x < 0.15 {
		over["queueing_method"] = room.MethodPassthrough
	} else if f.x < 0.2 {
		over["queueing_method"] = room.MethodReject
	}
	o.giveEvent(e)
	o.announce(f, "an event: people gather at %v, it begins at %v and ends at %v, overrides %v", sinceEpoch(e.Prequeue),
		sinceEpoch(e.Start), sinceEpoch(e.End), over)
}

// giveEvent adds an event to the room's calendar, which nodes read with the room.
func (o *operator) giveEvent(e *room.Event) {
	o.event = e
	o.watchPhases()
	if e.Shuffle {
		o.tendDraws()
		for at := 500 * time.Millisecond; at < fleettime.Time(e.End).Sub(o.fleetTime()); at += 500 * time.Millisecond {
			o.in(at, o.tendDraws)
		}
	}
}

// watchPhases makes nodes check the clock near the phase changes of the event.
func (o *operator) watchPhases() {
	now := o.fleetTime()
	for _, p := range o.inForce(now, 0).Plan[1:] {
		o.in(fleettime.Time(p.From).Sub(now), func() { o.oracle.ledgers.raise(o.oracle) })
		// Each node checks the clock four times a second.
		for off := -time.Second - o.cfg.Faults.Vague; off < 2*time.Second+o.cfg.Faults.Vague; off += 250 * time.Millisecond {
			if at := fleettime.Time(p.From).Sub(now) + off; at > 0 {
				o.in(at+time.Duration(o.chaos.Int64N(int64(250*time.Millisecond))), o.lookAtClocks)
			}
		}
	}
}

func sinceEpoch(ms int64) time.Duration { return fleettime.Time(ms).Sub(epoch) }

// lookAtClocks makes every node reread the room if a new phase has begun by its own clock.
func (o *operator) lookAtClocks() {
	for _, p := range o.processes() {
		p.read(true)
	}
}

// binding holds the limits in force at a time, until the next change, phase, or end of a control.
type binding struct {
	settings settings
	control  room.Control
	event    *room.Event
	board    *draw.Board
	until    int64

	total, rate int
	unbound     bool
}

// limits returns the limits that are in force by the clock of some node, whose error is at most [fleettime.MaxError]: the
// higher ones near a change by the clock. unbound is true under passthrough.
func (o *roomDoc) limits() (total, rate int, unbound bool) {
	now := o.k.fleetTime()
	b, soon := o.binding.at(o, now), o.bindingSoon.at(o, now.Add(fleettime.MaxError))
	return max(b.total, soon.total), max(b.rate, soon.rate), b.unbound
}

// at returns the limits at a time, which ascends.
func (b *binding) at(o *roomDoc, at fleettime.Time) *binding {
	now := int64(at)
	if b.until <= now || b.settings != o.settings() || b.control != o.control || b.event != o.event ||
		b.board != o.draws.board {
		r := o.inForce(at, 0)
		*b = binding{
			settings: o.made, control: o.control, event: o.event, board: o.draws.board, until: math.MaxInt64,
			total: r.TotalActiveUsers, rate: r.NewUsersPerMinute,
		}
		if isUnbound(r) {
			b.total, b.rate, b.unbound = math.MaxInt32, math.MaxInt32, true
		}
		for _, next := range []int64{o.controls.Next(now), r.Plan.Next(now)} {
			if next != 0 {
				b.until = min(b.until, next)
			}
		}
	}
	return b
}

// isUnbound reports whether no limit of a room binds.
func isUnbound(r *room.Room) bool {
	return r.QueueingMethod == room.MethodPassthrough && !r.QueueAll
}

// unboundSoon reports whether no limit may bind by the clock of a node. Until its start an event binds the edges alone.
func (o *roomDoc) unboundSoon() bool {
	return isUnbound(o.inForce(o.k.fleetTime().Add(fleettime.MaxError), 0))
}

// announce publishes a control, and publishes again when it ends.
func (o *operator) announce(f *fault, format string, args ...any) {
	o.tracef("#%d "+format, append([]any{f.number}, args...)...)
	o.edited()
}

// later edits the room after d, unless the world is calm by then.
func (o *operator) later(d time.Duration, do func()) {
	o.in(d, func() {
		if !o.calm {
			do()
			o.edited()
		}
	})
}

// method returns the queueing method without an operator's override.
func (c *Config) method() string {
	if c.Random {
		return room.MethodRandom
	}
	return room.MethodFIFO
}

func (o *operator) editMethod(f *fault) {
	o.method, o.queueAll = room.MethodPassthrough, false
	switch {
	case f.y < 0.25:
		o.method = room.MethodRandom
	case f.x < 0.3:
		o.method = room.MethodReject
	case f.x < 0.5:
		o.method, o.queueAll = "", true
	}
	o.edits++
	edit := o.edits
	o.announce(f, "queueing_method %q, queue_all %v, for %v", o.method, o.queueAll, f.last)
	o.later(f.last, func() {
		if o.edits == edit {
			o.method, o.queueAll = o.cfg.method(), false
			o.tracef("#%d queueing_method is %s", f.number, o.method)
		}
	})
}

// mark returns a mark that ends with the fault.
func (o *operator) mark(f *fault) room.Mark {
	now := int64(o.fleetTime())
	return room.Mark{Since: now, Until: now + max(1, f.last.Milliseconds())}
}

// reread makes every node reread the room when a temporary control has ended.
func (o *operator) reread(f *fault) { o.later(f.last+2*time.Millisecond, func() {}) }

func (o *operator) pauseRoom(f *fault) {
	o.control.Pause = &room.Pause{Mark: o.mark(f)}
	o.announce(f, "the room is paused for %v", f.last)
	o.reread(f)
}

// passBy passes a visitor through a suspended room: no decision, no count.
func (vs *visitors) passBy(i int32) {
	v := &vs.all[i]
	if v.pages = max(0, v.pages-1); v.pages == 0 {
		vs.oracle.setWaiting(v, false)
		vs.end(i)
		return
	}
	vs.next(i, vs.now+1+int64(vs.rng.ExpFloat64()*float64(vs.cfg.People.Think)))
}

// rejected makes a visitor without a place return later, or not at all.
func (vs *visitors) rejected(i int32, d *admission.Decision) {
	v := &vs.all[i]
	if d.Reseal {
		vs.fail("a rejecting room gave a place to a newcomer")
	}
	vs.oracle.setWaiting(v, false)
	if v.robot || vs.rng.IntN(2) == 0 {
		vs.end(i)
		return
	}
	vs.next(i, vs.now+int64(2*time.Second)+vs.rng.Int64N(int64(10*time.Second)))
}

func (o *roomDoc) ledgerRooms(at fleettime.Time, bound time.Duration) []ledger.RoomConfig {
	if o.removed {
		return nil
	}
	r := ledger.ConfigOf(o.inForce(at, bound))
	r.Session, r.Cap, r.LostWait = o.k.cfg.Session, o.k.cfg.Cap, 15*time.Minute
	return []ledger.RoomConfig{r}
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
		if edges++; n.core.Rooms.Len() == 0 {
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

// edited publishes an edit, which may be one of the limits.
func (o *operator) edited() {
	o.oracle.ledgers.raise(o.oracle)
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
