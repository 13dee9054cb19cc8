package region

import (
	"cmp"
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire"
)

// rooms are the ledgers of all rooms of a data centre.
type rooms struct {
	byID map[room.ID]*roomLedger
	list []*roomLedger // by ID
	home uint32        // the data centre's number in tickets

	watermark fleettime.Time // every edge has reported everything before it
	moverEdge func() *edge   // see roomLedger
	lostStore bool           // sessions that came with their permits may be counted nowhere: see moves.partial
	passed    int64          // another aggregator may have freed seconds before this one; see counts.total
	pastLife  uint32         // longest life of a ticket of a predecessor
	pastTill  fleettime.Mono // until then
}

// openReported returns the ledger of a reported room. Counting has begun in it.
func (r *rooms) openReported(id room.ID, m *report) *roomLedger {
	b := r.open(id)
	b.counts.start(max(m.earliest, r.watermark))
	return b
}

// set replaces the room set.
func (r *rooms) set(now fleettime.Mono, all []ledger.RoomConfig) {
	for _, b := range r.list {
		b.gone, b.dirty = true, true
	}
	for _, c := range all {
		b := r.open(c.ID)
		b.RoomConfig, b.gone, b.dirty = c, false, true
		b.life.set(now, wire.Life(c.Session))
	}
}

// open returns the ledger of a room and makes it if needed: a report may name a room that is not, or not yet, in the
// room set.
func (r *rooms) open(id room.ID) *roomLedger {
	b := r.byID[id]
	if b == nil {
		b = &roomLedger{
			RoomConfig: ledger.RoomConfig{ID: id}, home: r.home, gone: true, dirty: true, moverEdge: r.moverEdge,
			life: ticketLife{most: r.pastLife, till: r.pastTill}, copies: copies{lines: reuse.NewBook(maxLines, 0)},
		}
		b.moves.partial = r.lostStore
		b.counts.setPassed(r.passed)
		r.byID[id] = b
		r.list = append(r.list, b)
		slices.SortFunc(r.list, func(x, y *roomLedger) int { return cmp.Compare(x.ID, y.ID) })
	}
	return b
}

// maxExpiry returns the last expiry second of a ticket that an edge may have stamped if its last report was of asOf:
// one lease later, with the allowed clock error.
func (r *rooms) maxExpiry(now fleettime.Mono, asOf fleettime.Time, lease time.Duration) int64 {
	life := int64(r.longestLife(now) / time.Second)
	if now < r.pastTill {
		life = max(life, int64(r.pastLife)) // the room set may be unknown
	}
	return asOf.Add(fleettime.Stretch(lease)+2*fleettime.MaxError).Second() + 2 + life
}

// longestLife returns the longest time for which any ticket of the data centre may be valid.
func (r *rooms) longestLife(now fleettime.Mono) time.Duration {
	life := int64(0)
	for _, b := range r.list {
		life = max(life, b.life.longest(now))
		for _, acc := range b.accounts {
			if acc.reserved.silent && !acc.edge.reporting() { // nothing is reserved for a reporting edge
				life = max(life, acc.reserved.stampLife)
			}
		}
	}
	return time.Duration(life) * time.Second
}

// longestLostWait returns the longest lost_after of any room under serve; 0 for none.
func (r *rooms) longestLostWait() time.Duration {
	wait := time.Duration(0)
	for _, b := range r.list {
		if !b.Cap {
			wait = max(wait, b.lostWait())
		}
	}
	return wait
}

// markAllStale makes the next Grants visit every room.
func (r *rooms) markAllStale() {
	for _, b := range r.list {
		b.stale = true
	}
}

// removeOvercommit removes the overcommit of instances that report again, or have ended.
func (r *rooms) removeOvercommit(instances []uint64) {
	for _, b := range r.list {
		for _, instance := range instances {
			b.overcommit.remove(instance)
		}
	}
}

// endOvercommit lets the overcommit of the edges of a name end with the tickets that they stamped by latest: an operator
// declared them ended. No instance means all, no name every edge. It returns the instances; one that reports stays.
func (r *rooms) endOvercommit(now fleettime.Mono, of *roster, name string, instance uint64, latest fleettime.Time) (
	ended []uint64,
) {
	life := int64(r.longestLife(now) / time.Second)
	for _, b := range r.list {
		for i := range b.overcommit {
			s := &b.overcommit[i]
			if (name != "" && s.edge != name) || (instance != 0 && s.instance != instance) {
				continue
			}
			if e := of.find(s.edge, s.instance); e != nil && e.reporting() {
				continue
			}
			if s.until == 0 {
				s.until = latest.Second() + 2 + life + b.life.unknown()
			}
			ended = append(ended, s.instance)
		}
	}
	return ended
}

// free moves the watermark to wm and frees the seconds before it, unless hold.
func (r *rooms) free(wm fleettime.Time, hold bool) {
	frees := !hold && wm > r.watermark && wm != math.MaxInt64
	if frees {
		r.watermark = wm
	}
	for _, b := range r.list {
		before := b.counts.total()
		b.counts.setPassed(r.passed)
		if frees {
			b.counts.free(wm)
		}
		if b.counts.total() != before {
			b.dirty, b.stale = true, true
		}
		b.dirty = b.overcommit.expire(b.counts.freed) || b.dirty
	}
}

// setPassed sets, for all rooms, the second before which another aggregator may have freed seconds.
func (r *rooms) setPassed(second int64) {
	r.passed = second
	for _, b := range r.list {
		b.counts.setPassed(second)
	}
}

// openAll opens the accounts of an edge in the rooms of the set.
func (r *rooms) openAll(e *edge) {
	for _, b := range r.list {
		if !b.gone {
			b.account(e)
		}
	}
}

// reconstruct replaces the loan of every room by the permits and sessions of the edges.
func (r *rooms) reconstruct() {
	for _, b := range r.list {
		b.reconstruct()
	}
}

// recall restores what the predecessor stored of the rooms.
func (r *rooms) recall(old *wire.Durable) {
	for _, s := range old.Rooms {
		b := r.open(s.Room)
		b.bound, b.storedBound = s.Bound, s.Bound
		b.loan.floor, b.loan.guard = s.Floor, s.Floor
	}
}
