package slots

import (
	"cmp"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/room"
	"vestibule/internal/wire"
)

// AllocatorConfig is what an allocator is made of.
type AllocatorConfig struct {
	Term    wire.Term // fencing number; every predecessor had a lower one
	Centres []string  // names of all data centres that may hold rights, until SetMembers
	Params  wire.Params

	// Bootstrap asserts that nothing was ever lent and no ticket of any room
	// exists: a data centre that has not been heard holds nothing. It is believed
	// until one that is heard tells otherwise.
	Bootstrap bool
}

// Allocator is the root of the tree: it lends the rights of every room to the
// data centres. It starts with no memory. Until it knows the books of every
// data centre it lends only what it has seen come back (conservation), so that
// it need not trust anything that a predecessor stored.
//
// Invariant, per room: what data centres hold in its books and what is free
// sum to no more than the limit, as soon as a lowered limit has drained.
type Allocator struct {
	cfg     AllocatorConfig
	clock   fleet.Clock
	until   fleet.Mono
	fenced  uint64 // term of a successor that exists: nothing is sent any more
	started fleet.Mono
	guessed bool // fleet time is the machine's: nobody knew better

	members uint64    // version of the list of data centres
	counted bool      // the books were complete in this term, and lent by
	centres []*centre // by name: the list, and whoever was heard beside it
	rooms   map[room.ID]*pool
	order   []*pool // by ID
	due     fleet.Mono
}

// centre is one data centre in the allocator's books.
type centre struct {
	name       string
	inc        uint64 // term of its aggregator: a lower one is a zombie
	adopted    bool   // its books are known in this term
	blank      bool   // its aggregator knows none
	recovering bool   // its aggregator can do nothing with more rights yet
	promise    bool   // it has yet to promise to follow us
	leaving    bool   // its aggregator was told to end

	listed   bool   // it is in the list of members
	draining bool   // it is to leave the list
	forced   bool   // it was taken off the list by force, and may hold rights
	since    uint64 // version of the list that added it, or told its site
	site     uint64 // as it told, or as the list holds it; 0 for unknown
	recorded uint64 // as the list holds it
	stored   uint64 // newest version of the list that is stored for it, as it told
	void     bool   // its books begin in this term: what it held before was lent to others

	parts     wire.Parts
	recv      fleet.Mono // of its newest report; the start of the term before the first
	heard     bool
	echo      fleet.Mono
	acked     uint64
	grantSeq  uint64
	due       bool    // an answer is owed
	push      bool    // there is news that cannot wait for the next report
	probes    []probe // grants sent while the allocator could learn the time
	trips     trips   // of their answers
	other     bool    // it has a fleet time that is not ours
	timed     bool    // it knows a fleet time
	timeBound time.Duration

	loans map[room.ID]*loan
}

// probe is the moment at which a grant was sent.
type probe struct {
	seq uint64
	at  fleet.Mono
}

// maxProbes bounds what is remembered of grants whose answers tell the time: seconds
// of them, where each is answered at once and the way is long.
const maxProbes = 256

// remember appends p; the oldest makes room.
func remember(probes []probe, p probe) []probe {
	if len(probes) == maxProbes {
		probes = probes[:copy(probes, probes[1:])]
	}
	return append(probes, p)
}

// NewAllocator returns the allocator of a new term. Until SetLease it sends
// nothing.
func NewAllocator(now fleet.Mono, cfg AllocatorConfig) *Allocator {
	a := &Allocator{cfg: cfg, started: now, rooms: map[room.ID]*pool{}, due: now}
	var m Members
	for _, name := range cfg.Centres {
		m.List = append(m.List, Member{Name: name})
	}
	a.SetMembers(now, m)
	return a
}

// SetRooms replaces the room set. A room that went stays in the books until
// everything that was lent of it has come back.
func (a *Allocator) SetRooms(now fleet.Mono, rooms []RoomConfig) {
	for _, p := range a.order {
		p.gone = true
	}
	for _, r := range rooms {
		p := a.pool(r.ID)
		if old := p.Session; r.Session < old {
			// A data centre that has not heard of it goes on stamping for so long.
			life := time.Duration(wire.Life(old)) * time.Second
			sum := time.Minute + a.cfg.Params.RegionalLease + a.cfg.Params.EdgeLease + life
			p.notBefore = max(p.notBefore, now.Add(fleet.Stretch(fleet.Stretch(sum))))
		}
		r.Unbound = r.Unbound || (p.Unbound && mutant.On(mutant.PassthroughStays))
		p.RoomConfig, p.gone, p.stale = r, false, true
		a.begin(p)
	}
	a.due = now
}

// SetLease tells until when this allocator leads, by its own clock. From then
// on it sends nothing.
func (a *Allocator) SetLease(until fleet.Mono) { a.until = until }

// Fenced reports whether a successor has been seen, and a term that it cannot
// be below: the shell is to stop.
func (a *Allocator) Fenced() (by uint64, fenced bool) { return a.fenced, a.fenced != 0 }

func (a *Allocator) leads(now fleet.Mono) bool { return a.fenced == 0 && now < a.until }

// Observe takes one report of a data centre.
func (a *Allocator) Observe(now fleet.Mono, m wire.Report) {
	if a.fenced != 0 {
		return
	}
	if m.Seen.Fences(a.cfg.Term) && !mutant.On(mutant.NoFencing) {
		a.fenced = m.Seen.N
		return
	}
	d := a.of(m.From, m.Site)
	if d == nil {
		d = a.stranger(now, m.From, m.Site)
	}
	if d == nil || (m.Inc < d.inc && !mutant.On(mutant.ZombieHeard)) {
		return // one too many that nobody listed, or a zombie
	}
	if m.Inc != d.inc { // a new aggregator
		d.inc = m.Inc
		d.parts, d.acked = wire.Parts{}, 0
		for _, l := range d.loans {
			l.admitted, l.joined, l.entered, l.outcomes = 0, 0, 0, nil
			l.passes.forget()
			l.dirty, l.viewDirty = true, true
		}
	}
	fresh, complete := d.parts.Take(m.Seq, m.Part, m.Parts)
	if !fresh {
		return
	}
	d.recv, d.echo, d.heard, d.due, d.leaving = now, m.Sent, true, true, m.Leaving
	if d.site == 0 && m.Site != 0 {
		d.site = m.Site
		a.restale()
	}
	a.learnTime(now, d, &m)
	if d.stored != m.Members {
		d.stored = m.Members
		a.restale()
	}
	a.due = now
	d.promise = m.Seen != a.cfg.Term && !mutant.On(mutant.AdoptWithoutPromise)
	if d.promise {
		return
	}
	d.acked = max(d.acked, m.Acked)
	d.blank = m.Blank
	if d.recovering != m.Recovering {
		d.recovering = m.Recovering
		a.restale()
	}
	if !d.adopted {
		a.adopt(d, &m, complete)
		return
	}
	for i := range m.Rooms {
		r := &m.Rooms[i]
		a.pool(r.Room).stale = true
		l := a.loan(d, r.Room)
		a.take(d, l, r, m.AsOf)
	}
}

// adopt takes the books of a data centre that has promised to follow us.
func (a *Allocator) adopt(d *centre, m *wire.Report, complete bool) {
	if (m.Blank && !mutant.On(mutant.BlankBelieved)) || !m.Join {
		return
	}
	if a.cfg.Bootstrap && a.hasBegun(m) && !mutant.On(mutant.BootstrapInsists) {
		a.cfg.Bootstrap = false
		a.restale()
	}
	for i := range m.Rooms {
		r := &m.Rooms[i]
		a.pool(r.Room).stale = true
		l := a.loan(d, r.Room)
		if !l.reclaimed {
			l.gen = r.Gen
		} else if d.void && r.Gen < l.gen { // it is alive, and was given up
			l.unreturned = max(l.unreturned, int64(r.Granted)-int64(r.Returned))
		}
		a.take(d, l, r, m.AsOf)
	}
	if complete {
		d.adopted = true
		a.restale()
	}
}

// hasBegun reports whether a data centre tells, as it joins, that it was lent rights
// before, or that there is a list of data centres that this coordinator does not know.
func (a *Allocator) hasBegun(m *wire.Report) bool {
	return (m.Members > 0 && a.members == 0) ||
		slices.ContainsFunc(m.Rooms, func(r wire.RoomReport) bool { return r.Granted > 0 || r.Active > 0 })
}

// search returns where the data centres of a name begin.
func (a *Allocator) search(name string) (i int, ok bool) {
	return slices.BinarySearchFunc(a.centres, name, func(d *centre, name string) int { return cmp.Compare(d.name, name) })
}

// complete reports whether the books of every data centre are known for the
// room: then what is free can be reckoned from the limit.
func (a *Allocator) complete(p *pool) bool {
	if a.outdated() {
		return false
	}
	return !slices.ContainsFunc(a.centres, func(d *centre) bool { return a.awaits(p, d) })
}

// awaits reports whether it is not known what a data centre holds of a room.
func (a *Allocator) awaits(p *pool, d *centre) bool {
	if a.unproven(d) {
		return true
	}
	// Nothing was lent to a copy.
	l := d.loans[p.ID]
	return !d.adopted && a.copyOf(d) == nil && !d.void && (l == nil || !l.reclaimed) && (!a.cfg.Bootstrap || d.heard) && !mutant.On(mutant.FreeIsLimit)
}

// confirms reports whether the limits are kept with the books as they are. Books
// that were only reconstructed hold no less than is out there, so then nothing is
// lent twice. Those of a copy never are: whoever leads next does not wait for it.
func (a *Allocator) confirms(p *pool, d *centre, l *loan) bool {
	if !l.reconstructed {
		return true
	}
	if a.copyOf(d) != nil && !mutant.On(mutant.CopyConfirmed) {
		return false
	}
	free, rate := a.free(p)
	return a.complete(p) && free >= 0 && rate >= 0
}

// free returns the rights of T and of R that nobody holds. Negative: the limit
// was lowered and has yet to drain.
func (a *Allocator) free(p *pool) (free, rate int64) {
	if !a.complete(p) {
		if a.outdated() {
			return p.debt, p.rateDebt
		}
		return p.spare, p.rateSpare
	}
	free, rate = int64(p.Total), int64(p.Rate)
	if p.gone {
		free, rate = 0, 0
	}
	for _, d := range a.centres {
		if l := d.loans[p.ID]; l != nil {
			free -= l.held()
			rate -= l.rateHeld()
		}
	}
	return free, rate
}

// reclaim takes back what silent data centres hold: under partition_policy cap
// when they must have stopped, under serve when they have been lost for
// lost_after while others were heard.
func (a *Allocator) reclaim(now fleet.Mono) {
	for _, d := range a.centres {
		silent := now.Sub(d.recv)
		if silent <= a.cfg.Params.RegionalLease {
			continue
		}
		for _, p := range a.order {
			wait := p.LostWait
			if p.Cap || d.forced { // of that one an operator says that it goes on renewing nothing
				wait = a.reclaimAfter(p)
			} else if wait == 0 || (!a.othersHeard(now, d) && !mutant.On(mutant.IsolationIsDeath)) {
				continue
			}
			l := a.loan(d, p.ID)
			if silent <= wait || l.reclaimed && l.granted == 0 && l.rateGranted == 0 || (p.Cap && p.notBefore != 0 && now < p.notBefore) {
				continue
			}
			a.void(p, l, !p.Cap)
		}
	}
}

// reclaimAfter returns how long after its last word a data centre cannot hold
// a valid session of the room (docs/RIGHTS.md): its leader's lease, its own,
// its edges', and the life of a ticket, all on clocks that drift.
func (a *Allocator) reclaimAfter(p *pool) time.Duration {
	if mutant.On(mutant.ReclaimEarly) {
		return a.cfg.Params.RegionalLease
	}
	life := max(time.Duration(wire.Life(p.Session))*time.Second, wire.RateWindow)
	sum := ownerLease + a.cfg.Params.RegionalLease + a.cfg.Params.EdgeLease + life
	return fleet.Stretch(fleet.Stretch(sum)) + 4*time.Second + 4*fleet.Guard + 4*fleet.MaxError
}

// Leaving reports whether an aggregator was told to end that was heard lately.
func (a *Allocator) Leaving(now fleet.Mono) bool {
	return slices.ContainsFunc(a.centres, func(d *centre) bool { return d.leaving && now.Sub(d.recv) < quiet })
}

// alone reports whether a data centre has been silent for as long as a new leader waits for
// who knows the time, while others were heard. Silence of all may be our own.
func (a *Allocator) alone(now fleet.Mono, d *centre) bool {
	return now.Sub(d.recv) >= timeWait && slices.ContainsFunc(a.centres, func(o *centre) bool { return now.Sub(o.recv) < timeWait })
}

// othersHeard reports whether any other data centre was heard lately: silence
// of all is our own isolation.
func (a *Allocator) othersHeard(now fleet.Mono, d *centre) bool {
	return slices.ContainsFunc(a.centres, func(o *centre) bool {
		return o != d && o.heard && now.Sub(o.recv) < a.cfg.Params.RegionalLease
	})
}

func (a *Allocator) restale() {
	for _, p := range a.order {
		p.stale = true
	}
}
