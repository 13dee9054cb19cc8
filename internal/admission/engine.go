package admission

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/lineage"
	"vestibule/internal/mutant"
	"vestibule/internal/room"
	"vestibule/internal/ticket"
	"vestibule/internal/wire"
)

// Limits bound the memory of an engine. The zero value holds nothing and
// remembers nothing.
type Limits struct {
	Held    int // requests held open per room
	Recent  int // tickets per room whose newest stamp is remembered
	Waiting int // visitors per room whose page went away, remembered for a minute
}

// DefaultLimits returns limits for an edge with some hundred MB to spend.
func DefaultLimits() Limits { return Limits{Held: 4096, Recent: 1 << 16, Waiting: 1 << 16} }

// Config is what an engine is made of.
type Config struct {
	Edge   string // name, unique in the data centre
	DC     string // data centre
	Params wire.Params
	Limits Limits
	Past   []uint64   // incarnations that have ended, see fleet.Lives
	Rand   *rand.Rand // incarnations, ticket ids and jitter: seeded unpredictably in production
}

// Room is what an engine needs to know of a room; everything else about it
// is the shell's business.
type Room struct {
	ID    room.ID
	Epoch uint32
	Cap   bool // partition_policy cap: renew nothing without a lease

	Session        time.Duration // session_duration, for sessions without a right
	OnIsolation    string        // one of room.Isolation…; "" holds
	IsolationLimit int           // newcomers let in per isolation, where OnIsolation is open

	// Probation is for how long an admission is stamped at first, in whole
	// seconds; the second request lengthens it to the full session. 0 stamps in
	// full at once.
	Probation time.Duration

	// Grace is for how long a visitor who waits and is not there keeps the place;
	// 0 means room.DefaultGrace. Who asked within the last minute is there.
	Grace time.Duration
}

// Engine is the core of one edge. See the package comment.
type Engine struct {
	cfg   Config
	home  ticket.DC
	clock fleet.Clock
	guess fleet.Clock // the machine's own clock: good enough to serve by before the first answer

	link  link
	past  []uint64 // incarnations before this one that have ended, the newest last
	rooms map[room.ID]*roomState
	order []*roomState // by ID: iteration must not depend on a map
}

// roomState is an engine's state in one room.
//
// Invariants: returned+spent <= granted; renewed <= renewCeil under a lease;
// every admission is in spent, sessions, rate and moves or in none of them.
type roomState struct {
	Room
	gone   bool   // no longer in the room set: nothing is admitted, rights go back
	paused bool   // nobody is admitted for now, rights go back
	life   uint32 // seconds for which a ticket is stamped, as granted; 0 stamps none

	granted, spent, returned uint64 // rights of T
	renewed, renewCeil       uint64
	renewedSaid              uint64 // by the last report
	keep, rateKeep           uint64
	rate                     rateRights
	past                     rateRights // of R, used under tenures that are over
	sessions                 sessions

	moves     []wire.Move
	firstMove uint64 // number of moves[0]
	sentMoves []moveMark

	ended  ended                 // sessions that ended before their tickets expire
	ends   wire.Outbox[wire.End] // those that ended here, for the regional
	movers movers

	wait     waitBook
	answers  uint8                   // the newest ticket.Answer
	counted  lineage.Recent[showing] // as which version a ticket that waits was counted last
	away     aways
	young    young
	outcomes line.OutcomeCounter
	parked   parked
	tabs     tabs
	recent   lineage.Recent[stamped]
	lines    lineage.Book           // of the versions that were shown here to be renewed
	copied   uint64                 // sessions whose ticket was found to be copied
	found    wire.Outbox[wire.Line] // those, for the regional
	arrivals [wire.MaxMinutes]wire.Minute
	admitted uint64
	joined   uint64
	entered  uint64
	letIn    uint64 // without a right, in all
	letInNow int    // of those, in this isolation
	guests   int    // sessions of other edges that were renewed without a lease, since there was one
	demand   demand
	want     uint64 // what the last report said

	view *wire.View

	dirty     bool   // something is to be reported
	changedAt uint64 // first report that carried the newest change
}

// moveMark says that the report seq carried all moves before number next.
type moveMark struct{ seq, next uint64 }

// New returns an engine that knows no room and has no lease. It reports at
// once.
func New(cfg Config) *Engine {
	e := &Engine{cfg: cfg, home: ticket.DCOf(cfg.DC), rooms: map[room.ID]*roomState{}}
	e.past = fleet.Newest(cfg.Past)
	e.link.born(cfg.Rand)
	return e
}

// Incarnations returns those that whoever succeeds this process may tell of, its own
// last. The shell keeps them: before the first report and whenever they change. Where
// it cannot, that costs use of the limit and no safety.
func (e *Engine) Incarnations() []uint64 {
	return fleet.Newest(append(slices.Clone(e.past), e.link.inc))
}

// Guess gives the machine's own idea of the time, used to judge sessions
// until the regional has told fleet time. Under it nothing is admitted or
// renewed.
func (e *Engine) Guess(now fleet.Mono, t fleet.Time) { e.guess.Set(now, t, time.Hour) }

// SetRooms replaces the room set. Rooms that stay keep their state; those that
// went return their rights as they become free.
func (e *Engine) SetRooms(now fleet.Mono, rooms []Room) {
	for _, r := range e.order {
		r.gone = true
	}
	for _, r := range rooms {
		s := e.rooms[r.ID]
		if s == nil {
			s = &roomState{firstMove: 1, recent: lineage.NewRecent[stamped](e.cfg.Limits.Recent), lines: lineage.NewBook(e.cfg.Limits.Recent, lineage.InFlight), counted: lineage.NewRecent[showing](min(e.cfg.Limits.Waiting, maxShowings)), away: aways{limit: e.cfg.Limits.Waiting}}
			e.rooms[r.ID] = s
			e.order = append(e.order, s)
		}
		if s.Epoch != r.Epoch {
			e.void(now, s, r.Epoch)
		}
		if r.Grace == 0 {
			r.Grace = room.DefaultGrace
		}
		s.Room, s.gone, s.dirty = r, false, true
	}
	slices.SortFunc(e.order, func(a, b *roomState) int { return cmp.Compare(a.ID, b.ID) })
	if len(rooms) > 0 && !e.link.leased(now) {
		e.link.left(now) // from here on there is something to be isolated with
	}
	e.link.hurry(now, e.cfg.Params.ReportGap)
}

// Pause tells whether nobody is to be admitted to a room for now, because what is
// behind it does not answer. Sessions are served as ever, places are kept, and the
// rights go to other edges.
func (e *Engine) Pause(now fleet.Mono, id room.ID, paused bool) {
	r := e.rooms[id]
	if r == nil || r.paused == paused {
		return
	}
	r.paused, r.dirty = paused, true
	e.link.hurry(now, e.cfg.Params.ReportGap)
}

// void gives those who are held new places: the epoch has changed, and with
// their old tickets they would be admitted and turned away at the next request.
func (e *Engine) void(now fleet.Mono, r *roomState, epoch uint32) {
	ft, _ := e.time(now)
	r.tabs = nil
	for _, v := range r.parked {
		v.Ticket = e.newTicket(ft, epoch, v.Ticket.Network)
		r.tabs.add(v.Ticket.ID)
	}
	heap.Init(&r.parked)
}

// time returns fleet time and by how much it may be wrong at most; before the first
// answer of a parent the machine's guess at it, and fleet.Unsynced.
func (e *Engine) time(now fleet.Mono) (t fleet.Time, err time.Duration) {
	t, err = e.clock.Read(now)
	if err == fleet.Unsynced {
		t = max(e.guess.Now(now), t)
	}
	return t, err
}

// Time returns what the engine takes fleet time to be.
func (e *Engine) Time(now fleet.Mono) fleet.Time {
	t, _ := e.time(now)
	return t
}

// Arrive decides about one request that carries t (the zero Ticket for none).
// The decision to admit is charged when Arrive returns.
func (e *Engine) Arrive(now fleet.Mono, id room.ID, t ticket.Ticket) Decision {
	r := e.rooms[id]
	if r == nil || r.gone {
		return Decision{Reason: Unknown, Retry: e.cfg.Params.Refresh, Ticket: t}
	}
	ft, err := e.time(now)
	synced := err != fleet.Unsynced
	fresh := Kept
	end := r.ended.of(&t)
	home := t.Home
	if end == wire.Moved {
		home = ticket.Nobody // its right is elsewhere: nobody waits for us to forget it
	}
	switch {
	case t.ID == 0:
		fresh = Newcomer
	case t.Epoch != r.Epoch && !mutant.On(mutant.EpochIgnored):
		fresh = Void
	case end == wire.Left:
		fresh = Gone
	case t.Valid(e.judges(now, ft, err, home)):
		d := e.serve(now, ft, err, r, t)
		if d.Fresh == Kept {
			return d
		}
		fresh = d.Fresh
	case e.known(now, ft, err, r, t.ID) != 0 && r.kept(ft, &t):
		d := e.repeat(now, ft, err, r, t)
		if d.Fresh == Kept {
			return d
		}
		fresh = d.Fresh
	case t.IsAdmitted() || r.recent.Get(t.ID) != (stamped{}): // also a place that became a session
		fresh = Expired
	case r.lapsed(ft, &t):
		fresh = Lost
	}
	// Before fleet time was ever told there is nothing to stamp a place with,
	// and nothing to count a check-in by.
	d := Decision{Fresh: fresh, Reseal: synced}
	switch {
	case fresh == Elsewhere:
		own, inside := e.derive(now, ft, err, r, &t)
		if inside.Enters() {
			return inside
		}
		t = own
	case fresh != Kept:
		t = e.newTicket(ft, r.Epoch, t.Network)
	case synced:
		d.Counted = e.checkIn(r, ft, &t)
	}
	d.Ticket = t
	e.decide(now, ft, err, r, &d)
	if d.Verdict == Queue && fresh != Kept && synced {
		r.queued(ft, &d, fresh == Newcomer)
	}
	return d
}

// queued notes that somebody joined the line. Only newcomers
// are expected to return: an old ticket can be shown any number of times.
func (r *roomState) queued(ft fleet.Time, d *Decision, newcomer bool) {
	if newcomer {
		r.young.issued(ft, d.Ticket.Joined)
	}
	r.dirty = true
}

// Waits reports whether t is a place in the line of the room as it is: the
// visitor need not be given another and holds no session. Nothing is counted by
// it.
func (e *Engine) Waits(now fleet.Mono, id room.ID, t ticket.Ticket) bool {
	r := e.rooms[id]
	if r == nil || r.gone || t.ID == 0 || t.Epoch != r.Epoch || t.IsAdmitted() {
		return false
	}
	ft, _ := e.time(now)
	return r.ended.of(&t) != wire.Left && r.recent.Get(t.ID) == (stamped{}) && !r.lapsed(ft, &t)
}

// lapsed reports whether the place of t is lost: its visitor was not there for
// longer than the grace. A place is counted for as long as its visitor is there,
// so the grace begins when it is counted no more.
func (r *roomState) lapsed(ft fleet.Time, t *ticket.Ticket) bool {
	return ft.Second()-int64(t.Seen) > windowsKept*windowLen+int64(r.Grace/time.Second)
}

// stamped is what an edge remembers of a session that it stamped: the newest expiry
// second, and when it stamped it first.
type stamped struct {
	until, since uint32
	net          uint32 // as ticket.Ticket has it
}

// over is the expiry second that is remembered of a session that was ended.
const over = 1

// stamp remembers that the session of a ticket was stamped until second until.
func (r *roomState) stamp(ft fleet.Time, t *ticket.Ticket, until uint32) {
	s := r.recent.Get(t.ID)
	if s.until, s.net = until, t.Net; s.since == 0 {
		s.since = uint32(ft.Second())
	}
	r.recent.Put(t.ID, s)
}

// known returns the expiry second of the newest stamp that this edge gave the
// ticket, if the session is still valid; else 0.
func (e *Engine) known(now fleet.Mono, ft fleet.Time, err time.Duration, r *roomState, id uint64) uint32 {
	until := r.recent.Get(id).until
	if int64(until)*1000 <= int64(e.judges(now, ft, err, e.home)) {
		return 0
	}
	return until
}

// kept reports whether t may be what the browser has of a session that this edge knows
// to be valid, because replies were lost. They are not lost for a whole session: who
// still shows the place two sessions after the turn, or a pass a session after its end,
// keeps an old ticket.
func (r *roomState) kept(ft fleet.Time, t *ticket.Ticket) bool {
	if r.life == 0 {
		return true
	}
	if t.IsAdmitted() {
		return ft.Second() < int64(t.Until+r.life)
	}
	return ft.Second() < int64(r.recent.Get(t.ID).since+2*r.life)
}

// repeat answers a ticket without a session whose visitor has one all the
// same: the reply that told so was lost, or this is another request of the
// same page. It is charged once, and may be renewed as any session. The decision is
// empty but for Fresh as that of serve.
func (e *Engine) repeat(now fleet.Mono, ft fleet.Time, err time.Duration, r *roomState, t ticket.Ticket) Decision {
	s := r.recent.Get(t.ID)
	if elsewhere(&t, s.net) {
		return Decision{Fresh: Elsewhere}
	}
	t.Until, t.Home, t.Net = s.until, e.home, s.net
	if t.Admitted == 0 {
		t.Admitted = uint32(ft.Second())
	}
	if e.copyOf(now, ft, r, &t) {
		return Decision{Fresh: Copied}
	}
	d := e.renew(now, ft, err, r, t)
	if d.Reason = Repeated; !d.Reseal {
		d.Reseal = true
		d.Ticket.Seen = uint32(ft.Second()) // of this version
		e.descend(&d.Ticket)
	}
	return d
}

// Judges returns the fleet time by which the end of a session with the given
// home is judged here. At home and under a lease that is our own: the regional
// frees no second that we have not reported past. Otherwise nobody waits for
// us, and the clocks that are waited for may be ahead of ours by what both may
// be wrong: so the session ends earlier.
func (e *Engine) Judges(now fleet.Mono, home ticket.DC) fleet.Time {
	ft, err := e.time(now)
	return e.judges(now, ft, err, home)
}

func (e *Engine) judges(now fleet.Mono, ft fleet.Time, err time.Duration, home ticket.DC) fleet.Time {
	if (e.owns(home) && e.link.leased(now)) || mutant.On(mutant.NoJudgeMargin) {
		return ft
	}
	margin := 2 * fleet.MaxError
	if err > fleet.MaxError && err != fleet.Unsynced {
		margin = fleet.MaxError + err
	}
	return ft.Add(margin)
}

// owns reports whether sessions of a home are counted by this edge's regional. In a copy of a
// data centre they are not: the other one does not wait for this edge, nor hears what
// it renews.
func (e *Engine) owns(home ticket.DC) bool {
	return home == e.home && (!e.link.copied || mutant.On(mutant.CopyOwns))
}

func (e *Engine) newTicket(ft fleet.Time, epoch uint32, in ticket.Network) ticket.Ticket {
	return ticket.Ticket{ID: e.newID(), Joined: ft, Seen: uint32(ft.Second()), Epoch: epoch, Network: in}
}

// elsewhere reports whether a ticket whose session is bound to net is shown in another
// network.
func elsewhere(t *ticket.Ticket, net uint32) bool {
	return ticket.Elsewhere(t.ID, net, t.Network) && !mutant.On(mutant.BindingIgnored)
}

// derive returns a place for who shows t in another network than its session is bound
// to, or lets in who has been let in by it. The place is the same at every edge, however
// often t is shown there, so that many requests are one visitor; once it was used or
// left, it is another one.
func (e *Engine) derive(now fleet.Mono, ft fleet.Time, err time.Duration, r *roomState, t *ticket.Ticket) (own ticket.Ticket, inside Decision) {
	anew := e.newTicket(ft, r.Epoch, t.Network)
	own = anew
	own.ID = ticket.Derive(t.ID, t.Network)
	if e.known(now, ft, err, r, own.ID) != 0 && r.kept(ft, &own) {
		inside = e.repeat(now, ft, err, r, own)
	}
	if r.recent.Get(own.ID) != (stamped{}) || r.ended.of(&own) == wire.Left {
		return anew, inside
	}
	return own, inside
}

func (e *Engine) newID() uint64 {
	for {
		if id := e.cfg.Rand.Uint64(); id != 0 {
			return id
		}
	}
}

// checkIn counts a ticket that waits: among those who wait, in the window of this
// poll, and among the distinct visitors of this minute.
//
// Nobody is counted at the first touch: a new ticket is counted when it comes back,
// and so is one that was away for so long that nobody counts it any more. The first
// question of such a ticket stamps it anew, and the next one counts it. So an old
// version of a ticket, however often and wherever it is shown, adds nothing. Within
// the live windows a version is counted once at each edge. It reports whether somebody
// was counted who was not counted here before; nobody is whose ticket is Uncounted.
func (e *Engine) checkIn(r *roomState, ft fleet.Time, t *ticket.Ticket) (anew bool) {
	seen := uint32(ft.Second())
	if r.wait.advance(ft) {
		r.dirty = true
	}
	if r.wait.over(t.Seen) && !mutant.On(mutant.ReplayCounts) {
		t.Flags &^= ticket.Returned
		t.Seen = seen
		if t.Answer != 0 { // it was counted before: who joined is counted once
			t.Answer = r.nextAnswer()
		}
		return false
	}
	r.newest(t)
	if k := r.counted.Get(t.ID); k.seen == 0 || !r.wait.live(k.seen) {
		if t.Uncounted && !mutant.On(mutant.NetworkCountsAny) {
			return false
		}
		anew = true
	}
	before := *t
	t.Answer = r.nextAnswer()
	defer func() { r.counted.Put(t.ID, showing{seen: t.Seen, answer: t.Answer}) }()
	if before.Flags&ticket.Returned == 0 { // counted nowhere: nothing to take back
		t.Flags |= ticket.Returned
		t.Wait, t.High, t.Ahead = 0, 0, 0 // what was told before the line was known binds nobody
		t.Seen = seen
		if before.Answer == 0 {
			r.joined++
			r.young.returned(ft, t.Joined)
		}
		r.wait.add(t.Joined, seen, 1)
		r.arrive(ft)
		return anew
	}
	// A ticket seen by an edge whose clock is ahead is counted there, in a window
	// that has not begun here.
	if r.recount(&before) {
		r.wait.add(t.Joined, seen, 1)
		r.dirty = true
	} else if windowOf(int64(t.Seen)) < windowOf(int64(seen)) {
		r.wait.add(t.Joined, t.Seen, -1)
		r.wait.add(t.Joined, seen, 1)
		r.dirty = true
	}
	if int64(t.Seen)/60 < int64(seen)/60 {
		r.arrive(ft)
	}
	t.Seen = max(t.Seen, seen)
	return anew
}

func (r *roomState) nextAnswer() uint8 {
	if r.answers++; r.answers == 0 {
		r.answers = 1 // a new ticket has none
	}
	return r.answers
}

// showing is the version of a ticket that was counted last.
type showing struct {
	seen   uint32
	answer uint8
}

// maxShowings is of how many tickets per room that is remembered: of those who asked
// within the last seconds, where many wait. A version that is shown again after so
// many others have asked is counted again; as everybody asks every 20 s at least, each
// such ticket adds less than four in maxShowings to the number of those who wait.
const maxShowings = 1 << 14

// newest makes of a version of a ticket the newest one that was counted here: that
// the visitor has not heard of it (the answer is on its way, or lost), or shows an old
// one, does not make it another visitor.
func (r *roomState) newest(t *ticket.Ticket) {
	if k := r.counted.Get(t.ID); k.seen != 0 && r.wait.live(k.seen) && (t.Flags&ticket.Returned == 0 || k.seen > t.Seen) {
		t.Flags |= ticket.Returned
		t.Seen, t.Answer = k.seen, k.answer
	}
}

// arrive counts a distinct visitor of the minute of ft.
func (r *roomState) arrive(ft fleet.Time) {
	m := ft.Minute()
	slot := &r.arrivals[int64(m)/60_000%wire.MaxMinutes]
	if slot.Start != m {
		*slot = wire.Minute{Start: m}
	}
	slot.N++
	r.dirty = true
}

// serve answers a visitor who holds a valid session, and renews it where it is
// due and allowed. The decision is empty but for Fresh where the ticket is a copy that
// is not to be renewed, or is shown in another network than it is bound to.
func (e *Engine) serve(now fleet.Mono, ft fleet.Time, err time.Duration, r *roomState, t ticket.Ticket) Decision {
	if elsewhere(&t, t.Net) {
		return Decision{Fresh: Elsewhere}
	}
	if t.Home != ticket.Nobody && r.due(ft, err, &t) && e.copyOf(now, ft, r, &t) {
		return Decision{Fresh: Copied}
	}
	return e.renew(now, ft, err, r, t)
}

// due reports whether the ticket of a session is so old that it is to be renewed.
func (r *roomState) due(ft fleet.Time, err time.Duration, t *ticket.Ticket) bool {
	return r.life != 0 && stampTime(ft, err)+1+r.life >= t.Until+wire.RenewAfter(r.life) && err != fleet.Unsynced
}

// renew serves a session, and renews it where it is due and allowed.
func (e *Engine) renew(now fleet.Mono, ft fleet.Time, err time.Duration, r *roomState, t ticket.Ticket) Decision {
	d := Decision{Verdict: Serve, Reason: Session, Ticket: t}
	until := stampTime(ft, err) + 1 + r.life
	after := wire.RenewAfter(r.life)
	if t.Home == ticket.Nobody {
		e.prolong(now, ft, r, &d)
		return d
	}
	if !r.due(ft, err, &t) {
		return d
	}
	if !e.owns(t.Home) && !mutant.On(mutant.RenewForeign) {
		if t.Home != e.home && r.firm(ft, err) {
			e.moveIn(now, ft, err, r, until, &d)
		}
		return d
	}
	if r.ended.of(&t) == wire.Moved {
		return d
	}
	from := t.Until
	known := r.recent.Get(t.ID).until
	if known > from {
		// The same old ticket again: its newest stamp is counted already.
		from = known
	}
	if until >= from+after && e.mayRenew(now, r) {
		if r.sessions.at(int64(from)) == nil || r.sessions.at(int64(until)) == nil {
			return d
		}
		if known < from && !e.link.leased(now) {
			r.guests++
		}
		r.renewed++
		r.sessions.consume(from)
		r.sessions.stamp(until)
		r.move(wire.Move{ID: t.ID, From: from, Until: until, Shown: version(&t)})
		r.stamp(ft, &t, until)
		if int64(t.Seen)/60 != ft.Second()/60 {
			r.arrive(ft)
		}
		r.dirty = true
		from = until
		if r.renewed+max(2, r.renewed-r.renewedSaid) >= r.renewCeil { // half of it is used
			e.link.hurry(now, e.cfg.Params.ReportGap)
		}
	}
	if from == t.Until {
		return d
	}
	d.Ticket.Until = from
	d.Ticket.Seen = uint32(ft.Second())
	d.Reseal = true
	e.descend(&d.Ticket)
	return d
}

// version returns which version of its session's ticket t is.
func version(t *ticket.Ticket) lineage.Version {
	if t.Stamp == 0 {
		return lineage.Version{}
	}
	return lineage.Version{Stamp: t.Stamp, Parent: t.Parent, Root: t.Root, Seen: t.Seen}
}

// copyOf reports whether t, a version of a session that is to be renewed, is a copy
// that somebody else goes on with. Otherwise what follows from it is of the line that
// is followed.
func (e *Engine) copyOf(now fleet.Mono, ft fleet.Time, r *roomState, t *ticket.Ticket) bool {
	v := version(t)
	switch r.lines.Shown(uint32(ft.Second()), t.ID, &v, wire.RenewAfter(r.life), r.life) {
	case lineage.Copy:
		return !mutant.On(mutant.CopyRenews)
	case lineage.Found:
		r.copied++
		r.found.Add(wire.Line{ID: t.ID, Stamp: r.lines.Followed(t.ID)}, 0)
		r.dirty = true
		e.link.hurry(now, e.cfg.Params.ReportGap)
	case lineage.Fine:
	}
	if v.Stamp != 0 {
		t.Root = v.Root
	}
	return false
}

// descend makes of t the next version of its session's ticket.
func (e *Engine) descend(t *ticket.Ticket) {
	t.Parent = t.Stamp
	for t.Stamp = 0; t.Stamp == 0 || t.Stamp == t.Parent; {
		t.Stamp = e.cfg.Rand.Uint32()
	}
	if t.Root == 0 {
		t.Root = t.Stamp
	}
}

// mayRenew reports whether one more renewal keeps the promise to report no
// more than was allowed in advance.
func (e *Engine) mayRenew(now fleet.Mono, r *roomState) bool {
	if e.link.leased(now) {
		return r.renewed < r.renewCeil || mutant.On(mutant.NoRenewalCeiling)
	}
	return !r.Cap || mutant.On(mutant.CapRenews) // isolated: the regional keeps our sessions counted until it hears of us
}

// stampTime returns the second from which tickets are stamped: what fleet time is at
// least. What the edge stamps by a clock that it is not sure of ends no later than
// what others stamp now, so nobody who waits for it to end has to know for how long
// there has been nobody to learn the time from.
func stampTime(ft fleet.Time, err time.Duration) uint32 {
	if mutant.On(mutant.StampsAdrift) {
		return uint32(ft.Second())
	}
	return uint32(fleet.Certain(ft, err).Second())
}

// first returns for how many seconds the first ticket of a session is stamped.
func (r *roomState) first() uint32 {
	if p := uint32((r.Probation + time.Second - 1) / time.Second); p > 0 {
		return min(r.life, p)
	}
	return r.life
}

// firm reports whether a session that began now would last: an edge that is unsure of
// the time stamps tickets that end early, by no more than a quarter where it admits.
func (r *roomState) firm(ft fleet.Time, err time.Duration) bool {
	return err <= fleet.MaxError || (err <= fleet.Rough && uint32(ft.Second())-stampTime(ft, err) <= max(1, r.first()/4))
}

// decide fills in the verdict for a visitor without a session.
func (e *Engine) decide(now fleet.Mono, ft fleet.Time, err time.Duration, r *roomState, d *Decision) {
	t := &d.Ticket
	p := &e.cfg.Params
	soon := false
	switch {
	case r.paused:
		d.Reason = OriginDown
	case !e.link.leased(now) && e.Isolated(now) && e.isolated(ft, r, d):
		if d.Verdict == Admit {
			return
		}
	case !r.firm(ft, err):
		d.Reason = Unsure
	case !e.link.leased(now):
		d.Reason = Isolated
	case e.link.standing != wire.Listed:
		d.Reason = Drains
	case t.Joined > r.horizon():
		d.Reason = Behind
		if near := t.Flags&ticket.Returned != 0 && t.Joined <= r.view.Park; near && t.Ahead|t.High != 0 {
			d.Verdict = Hold
		} else if near { // who was told nothing yet is told first, and held next
			soon = true
		}
	default:
		r.demand.tries++
		if len(r.parked) == 0 || !r.parked.before(t) {
			if e.charge(now, ft, err, r, d) {
				return
			}
		}
		d.Verdict, d.Reason = Hold, Full
	}
	if d.Verdict == Hold && (len(r.parked) >= e.cfg.Limits.Held || r.tabs[t.ID] >= heldPerTicket) {
		d.Verdict, d.Reason = Queue, Crowded
	}
	e.position(ft, r, d)
	if soon {
		d.Retry = p.Nearest / 2
	}
	if d.Verdict == Hold {
		d.Retry = p.Knock
		if t.Flags&ticket.Returned != 0 {
			d.Retry = p.Hold
		}
	}
}

// before reports whether somebody held joined before t.
func (p parked) before(t *ticket.Ticket) bool {
	o := &p[0].Ticket
	return o.Joined < t.Joined || (o.Joined == t.Joined && o.ID < t.ID)
}

func (r *roomState) horizon() fleet.Time {
	if r.view == nil {
		return line.Open
	}
	return r.view.Horizon
}

func (r *roomState) credit() uint64 { return sub(r.granted, r.spent+r.returned) }

// charge admits the visitor of d if a right of T and a right of R are in hand.
// Everything that accounts for the session changes in this one step.
func (e *Engine) charge(now fleet.Mono, ft fleet.Time, err time.Duration, r *roomState, d *Decision) bool {
	if r.gone || (r.credit() <= uint64(len(r.movers)) && !mutant.On(mutant.NoRight)) || (r.rate.idle(now) == 0 && !mutant.On(mutant.NoRateRight)) {
		return false
	}
	t := &d.Ticket
	second := uint32(ft.Second())
	until := stampTime(ft, err) + 1 + r.first()
	if r.life == 0 || !r.sessions.stamp(until) {
		return false
	}
	if !mutant.On(mutant.ChargeLate) {
		r.spent++
	}
	r.rate.use(now)
	r.admitted++
	if t.Waited() {
		r.entered++
	}
	if t.Flags&ticket.Returned != 0 {
		r.uncount(t)
	} else {
		r.arrive(ft)
	}
	t.Admitted, t.Until, t.Home, t.Seen = second, until, e.home, second
	t.BindSession()
	e.descend(t)
	r.move(wire.Move{ID: t.ID, Until: until})
	r.stamp(ft, t, until)
	r.dirty = true
	d.Verdict, d.Reason, d.Reseal = Admit, Slot, true
	if forecast, actual, ok := d.Outcome(); ok {
		r.outcomes.Add(forecast, actual)
	}
	if r.credit() <= r.want/2 {
		e.link.hurry(now, e.cfg.Params.ReportGap) // refill before dry
	}
	return true
}

// move notes a stamping for the report; the oldest give way, which costs use
// of the limit and no safety.
func (r *roomState) move(m wire.Move) {
	if len(r.moves) == wire.MaxMoves {
		const dropped = wire.MaxMoves / 4
		r.moves = r.moves[:copy(r.moves, r.moves[dropped:])]
		r.firstMove += dropped
	}
	r.moves = append(r.moves, m)
}

// position tells where the visitor stands, for how long, and when to ask
// again.
func (e *Engine) position(ft fleet.Time, r *roomState, d *Decision) {
	v, t := r.view, &d.Ticket
	back := t.Flags&ticket.Returned != 0
	p := &e.cfg.Params
	d.Retry, d.Counting = p.Refresh, v == nil
	first := v == nil
	if v != nil {
		place := v.Place(t.Joined, back)
		d.Ahead = uint64(max(0, place) + 0.5)
		d.Waiting = uint64(v.Waiting() + 0.5)
		first = d.Ahead == 0
		if d.Counting = counting(ft, v, t); !d.Counting {
			if d.Wait, d.Known = v.Wait(place); d.Known {
				d.Low, d.High = v.Ranges.Of(d.Wait)
				d.Next = v.Next(t.Joined, place)
			}
			d.keepWord(ft)
			d.forecast(ft)
		}
	}
	if first || (!back && !t.Uncounted) { // who has yet to be counted is to be soon
		d.Retry = p.Nearest
	} else if d.Known {
		d.Retry = min(max(d.Wait/4, p.Nearest), p.Refresh)
	}
	if d.Reason == Closed {
		d.Retry = p.Refresh
	}
	if d.Reason == Isolated || d.Reason == Unsure || d.Reason == OriginDown || d.Reason == Drains {
		d.Retry = p.Nearest * 2
	}
	// A quarter of jitter either way, so that polls do not come in herds.
	d.Retry = d.Retry*3/4 + time.Duration(e.cfg.Rand.Int64N(int64(d.Retry)/2+1))
}

// Hold keeps a request that Arrive decided to Hold. The caller sets v.Room and
// v.Ticket; the engine owns v until Release returns it or GiveUp takes it
// back.
func (e *Engine) Hold(now fleet.Mono, v *Visit) {
	r := e.rooms[v.Room]
	heap.Push(&r.parked, v)
	r.tabs.add(v.Ticket.ID)
	r.dirty = true
	e.link.hurry(now, e.cfg.Params.ReportGap)
}

// Release admits held visits, those who joined first before others, as long as
// rights are in hand and the horizon allows, and returns those it decided. The
// slice is valid until the next call.
func (e *Engine) Release(now fleet.Mono, out []*Visit) []*Visit {
	ft, err := e.time(now)
	if !e.link.leased(now) || e.link.standing != wire.Listed {
		return out
	}
	for _, r := range e.order {
		for len(r.parked) > 0 && !r.paused && r.firm(ft, err) {
			v := r.parked[0]
			if v.Ticket.Joined > r.horizon() {
				break
			}
			d := Decision{Ticket: v.Ticket}
			if e.known(now, ft, err, r, v.Ticket.ID) != 0 {
				// Another request with this ticket went in while this one was held.
				if d = e.repeat(now, ft, err, r, v.Ticket); d.Fresh != Kept {
					d.Reason, d.Reseal, d.Ticket = GaveUp, true, e.newTicket(ft, r.Epoch, v.Ticket.Network)
					e.position(ft, r, &d)
				}
			} else if !e.charge(now, ft, err, r, &d) {
				break
			}
			r.tabs.remove(v.Ticket.ID)
			r.parked.remove(v)
			r.dirty = true
			v.Decision = d
			out = append(out, v)
		}
	}
	return out
}

// letGo ends the holding of v; false where it is not held.
func (r *roomState) letGo(v *Visit) bool {
	if r == nil || v.index < 0 || v.index >= len(r.parked) || r.parked[v.index] != v {
		return false
	}
	r.tabs.remove(v.Ticket.ID)
	r.parked.remove(v)
	r.dirty = true
	return true
}

// GiveUp ends the holding of v, if the engine still holds it, and decides that
// its visitor goes on waiting. It reports false where Release has decided
// already.
func (e *Engine) GiveUp(now fleet.Mono, v *Visit) bool {
	r := e.rooms[v.Room]
	if !r.letGo(v) {
		return false
	}
	ft, _ := e.time(now)
	d := Decision{Verdict: Queue, Reason: GaveUp, Reseal: true, Ticket: v.Ticket}
	back := d.Ticket.Flags&ticket.Returned != 0
	if back {
		e.checkIn(r, ft, &d.Ticket)
	}
	e.position(ft, r, &d)
	if !back {
		r.queued(ft, &d, v.Brought.ID == 0)
	}
	if d.Ticket.Joined <= r.horizon() || r.view.Park >= d.Ticket.Joined {
		d.Retry = e.cfg.Params.Nearest / 2 // the turn is near: back at once
	}
	v.Decision = d
	return true
}
