package region

import (
	"cmp"
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// This file moves sessions between data centres. A session moves with its permit: no free one is needed.
//
//	edge there --ask--> its regional --> global --> the home
//	home:  marks the session at its edges: they do not renew its tickets
//	home:  once all have acknowledged, in one report: returns a permit, and lists the session as a transfer
//	global: lends that permit to the data centre of the visitor, in one grant with the transfer
//	there: counts the session from then on, stores that, and tells its edges, which renew its tickets as their own
//
// Between the two last steps the session counts at global. The list of the home is the record: a new leader derives
// from it, and from the transfers that were taken, what is on its way.
//
// Invariant: a session counts somewhere until an expiry second that is not before that of any of its tickets. A home
// sends it with a second above all that it may have marked, so a mark never covers a ticket of a later stay.

// movesName is the roster name of the pseudo-edge, which has the sessions that came with their permits, or stay, until an
// edge renews them. No edge can have this name.
const movesName = "(moves)"

const (
	// moveGap is how long a session stays before it moves on, or half of the life of its tickets.
	moveGap = 10 * time.Second

	// stepTime is how long a home keeps a session that is asked for beyond the expiry of its ticket, in seconds.
	stepTime = 2

	maxDepartures = wire.MaxLeft // of a room: sessions that are marked
	maxMarking    = wire.MaxAsks
	maxStays      = 4 * maxDepartures // not acknowledged by an edge
)

// moves are the sessions of a room that change data centres.
type moves struct {
	n       uint64 // number of the newest stay told to the edges
	asked   []wire.Ask
	askers  int // edges that ask for sessions of this data centre
	leaving map[uint64]*departure
	came    map[uint64]fleettime.Mono // when sessions arrived, for moveGap

	tag   uint64            // of the streams of this data centre; 0 before the first transfer
	known uint64            // highest tag of its streams that global told
	last  map[uint32]uint64 // newest number of each stream
	sent  []sent            // not known to be taken
	taken []wire.Taken      // streams to this data centre
	new   []arrival         // since the newest stored state

	// What is known of the sessions whose moves only a predecessor heard of: it told every edge before it sent one on.
	partial bool // an edge knows more than it could tell
	lost    bool // nobody knows which of them it sent

	unwritten bool         // the pseudo-edge changed since it was stored
	unmarked  []*departure // with marks since then
	waits     int64        // sessions that wait until a lower floor is stored
}

// departure is a session that is leaving, or has left.
type departure struct {
	id     uint64
	n      uint64 // number of its newest stay
	marked uint32 // tickets until this second are not renewed
	to     uint32 // where it went; 0 before
	until  uint32 // it counts there
	said   bool   // the edges know that
	doubt  bool   // a predecessor may have sent it

	// version is that of the Durable with the mark; 0 before. The session leaves once it is stored: a successor whose edges
	// have forgotten the mark tells it to them before they may renew.
	version uint64
}

// ready reports whether the session can be sent: every edge knows the mark, and it is stored.
func (d *departure) ready(known, saved uint64) bool {
	return d.to == 0 && d.n <= known && d.version != 0 && d.version <= saved
}

// sent is a transfer, and how it counts here meanwhile.
type sent struct {
	wire.Transfer
	at    uint32 // second in which it was subtracted; 0 for a transfer of a predecessor
	seq   uint64 // first report with it
	taken bool   // it is listed until the edges know too: otherwise a successor would send it again
}

// arrival are sessions that came with their permits, or stay, until they are stored. The edges hear of them then: they
// give tickets for them.
type arrival struct {
	version uint64       // of the Durable; 0 before
	permits uint64       // that came with them
	taken   []wire.Taken // before them
	stays   []wire.Stay
}

// unstored returns the number of sessions that came and are not stored.
func (ms *moves) unstored() (n uint64) {
	for _, x := range ms.new {
		n += x.permits
	}
	return n
}

// voidMoves notes that the permits of the data centre are void, also those that came with sessions. Those that sessions
// took along are void as well: what is not known to have arrived counts here again.
func (b *roomLedger) voidMoves() {
	ms := &b.moves
	for i := range ms.new {
		ms.new[i].permits = 0
	}
	ms.sent = slices.DeleteFunc(ms.sent, func(s sent) bool {
		if s.taken {
			return false
		}
		if int64(s.at) >= b.counts.freed && s.at != 0 {
			b.counts.add(int64(s.at), 1)
			if ent := b.ids.find(s.ID); ent != nil {
				ent.until = s.at
			} else {
				b.ids.insert(idEntry{id: s.ID, until: s.at}, b.counts.freed, 1<<30)
			}
		}
		if d := ms.leaving[s.ID]; d != nil && d.to == s.To && d.until == s.Until {
			d.to, d.until = 0, 0
		}
		return true
	})
}

// storedTaken returns the streams that are stored as taken.
func (ms *moves) storedTaken() []wire.Taken {
	if len(ms.new) > 0 {
		return ms.new[0].taken
	}
	return ms.taken
}

// empty reports whether nothing of a removed room moves.
func (ms *moves) empty() bool { return len(ms.sent)+len(ms.leaving)+len(ms.new) == 0 }

// tellStay tells all edges of the room where a session is. It returns the number of the message. If an edge has no space it
// will not know: then it is a number that no edge acknowledges.
func (b *roomLedger) tellStay(s wire.Stay) (n uint64) {
	b.moves.n++
	n = b.moves.n
	for _, acc := range b.accounts {
		if acc.edge.state == left {
			continue
		}
		acc.stays.Most = maxStays
		if !acc.stays.Add(s, b.moves.n) {
			n = math.MaxUint64
		}
		acc.markChanged()
		acc.edge.urgent = true
	}
	return n
}

// canTell reports whether every edge has space for a new mark.
func (b *roomLedger) canTell() bool {
	return !slices.ContainsFunc(b.accounts, func(acc *account) bool { return acc.stays.Len() >= maxStays/2 })
}

// sendStaysTo queues all marks for an edge.
func (b *roomLedger) sendStaysTo(acc *account) {
	acc.stays = wire.Outbox[wire.Stay]{Most: maxStays}
	all := make([]*departure, 0, len(b.moves.leaving))
	for _, d := range b.moves.leaving {
		all = append(all, d)
	}
	slices.SortFunc(all, func(x, y *departure) int { return cmp.Or(cmp.Compare(x.n, y.n), cmp.Compare(x.id, y.id)) })
	for _, d := range all {
		acc.stays.Add(d.stay(b.home), d.n)
		acc.markChanged()
	}
	acc.marked = b.moves.n
}

func (d *departure) stay(here uint32) wire.Stay {
	s := wire.Stay{ID: d.id, Home: here, Marked: d.marked}
	if d.said {
		s.Home, s.Until = d.to, d.until
	}
	return s
}

// acknowledgedStays returns the number up to which every edge that may act knows the marks; 0 if an edge is silent, or
// of a release without marks.
func (es edges) acknowledgedStays(b *roomLedger) uint64 {
	known := b.moves.n
	for _, e := range es {
		acc := e.account(b.ID)
		switch {
		case e.state == left:
		case e.state != alive || acc == nil || acc.report == nil || !e.reads.Names(wire.Moves):
			return 0
		default:
			acc.stays.Acked(e.ackedReported)
			if n, ok := acc.stays.First(); ok {
				known = min(known, n-1)
			}
		}
	}
	return known
}

// learnStays takes the marks that a joining edge knows: a predecessor sent them.
func (b *roomLedger) learnStays(r *wire.RoomReport) {
	b.moves.partial = b.moves.partial || len(r.Stays) >= wire.MaxAsks
	for _, s := range r.Stays {
		d := b.moves.leaving[s.ID]
		switch {
		case int64(s.Marked) < b.counts.freed:
			continue
		case d == nil && len(b.moves.leaving) < maxDepartures:
			d = &departure{id: s.ID, doubt: b.moves.lost}
			b.moves.keep(d)
		case d == nil || d.to != 0 && d.until >= s.Until, d.marked >= s.Marked && s.Until == 0:
			continue
		}
		d.marked = max(d.marked, s.Marked)
		if s.Until > d.until && s.Home != b.home {
			d.to, d.until, d.said = s.Home, s.Until, true
		}
		d.n = b.tellStay(d.stay(b.home))
		b.storeMark(d)
	}
}

// forgotten notes that global does not know which marked sessions the predecessor sent. Those of which the edges know
// where they are have arrived there.
func (ms *moves) forgotten() {
	ms.lost = true
	for _, d := range ms.leaving {
		d.doubt = d.to == 0
	}
}

// send lists a session that left, with the next number of its stream. tag is fleet time, for the first one: a room that was
// dropped and added again, and a new aggregator, begin new streams. Their tags are above all that others may have taken.
func (b *roomLedger) send(tag uint64, s sent) {
	ms := &b.moves
	if ms.last == nil {
		ms.tag, ms.last = max(tag, ms.known+1), map[uint32]uint64{}
	}
	ms.last[s.To]++
	s.From, s.Tag, s.N = b.home, ms.tag, ms.last[s.To]
	ms.sent = append(ms.sent, s)
}

func (ms *moves) keep(d *departure) {
	if ms.leaving == nil {
		ms.leaving = map[uint64]*departure{}
	}
	ms.leaving[d.id] = d
}

// storeMark stores a new mark, before the session may leave.
func (b *roomLedger) storeMark(d *departure) {
	b.account(b.moverEdge())
	d.version = 0
	b.moves.unmarked, b.moves.unwritten = append(b.moves.unmarked, d), true
}

// left returns the marks to store, by ID.
func (ms *moves) left(here uint32) (out []wire.Stay) {
	for _, d := range ms.leaving {
		out = append(out, d.stay(here))
	}
	slices.SortFunc(out, func(x, y wire.Stay) int { return cmp.Compare(x.ID, y.ID) })
	return out
}

// restoreLeft takes the marks that a predecessor stored.
func (b *roomLedger) restoreLeft(list []wire.Stay) {
	for _, s := range list {
		d := &departure{id: s.ID, marked: s.Marked, version: 1}
		if s.Home != b.home && s.Until != 0 {
			d.to, d.until, d.said = s.Home, s.Until, true
		}
		b.moves.keep(d)
		d.n = b.tellStay(d.stay(b.home))
	}
}

// here returns the expiry second in which a session counts in this data centre; 0 if it is not here. shown is that of
// a ticket.
func (b *roomLedger) here(id uint64, shown uint32) uint32 {
	if ent := b.ids.find(id); ent != nil {
		if ent.pinned() || int64(ent.until) < b.counts.freed {
			return 0
		}
		return ent.until
	}
	if free, _ := b.unallocated(); free < 0 || !b.countsUnheard(id, shown) || b.terminations.ended(id, b.home) {
		return 0
	}
	return shown
}

// countsUnheard reports whether a session that is not in the table counts here: only a predecessor heard of its moves, and
// did not send it on. It counts in a second that is not before the one in which the shown ticket expires. The entry of a
// session that left may be gone from the table.
func (b *roomLedger) countsUnheard(id uint64, shown uint32) bool {
	d := b.moves.leaving[id]
	return !b.moves.partial && (d == nil || !d.doubt && (d.to == 0 || shown > d.marked)) &&
		int64(shown) >= b.counts.freed
}

// ended reports whether a session of the home was revoked or left.
func (ts *terminations) ended(id uint64, home uint32) bool {
	return ts.byKey[terminationKey{id, home}] != nil
}

// mark begins to move the sessions that are asked for. latest is the second until which tickets stamped by now are
// valid; 0 if it is unknown.
func (b *roomLedger) mark(now fleettime.Mono, ft fleettime.Time, latest uint32) {
	if latest == 0 {
		return
	}
	marking := 0
	for _, d := range b.moves.leaving {
		if d.to == 0 && int64(d.marked) >= ft.Second()+int64(b.life.secs)/2 {
			marking++
		}
	}
	b.eachAsk(func(k wire.Ask) {
		d := b.moves.leaving[k.ID]
		s := b.here(k.ID, k.Shown)
		switch {
		case s == 0 || k.For == b.home && d == nil, !b.moves.mayMove(now, k.ID, b.life.secs), b.moves.unstoredStay(k.ID):
			return // a mark must not overtake what the edges hear once it is stored
		case d != nil && d.to == 0 && d.marked >= s:
			return // its edges are being told
		case !b.canTell(), d == nil && (len(b.moves.leaving) >= maxDepartures || marking >= maxMarking):
			return
		case d == nil:
			d = &departure{id: k.ID}
			b.moves.keep(d)
			marking++
		}
		if ent := b.ids.find(k.ID); ent != nil && int64(ent.until) < ft.Second()+stepTime+1 {
			// The visitor was served with a ticket that ends soon. The pseudo-edge is stored with the mark.
			acc := b.account(b.moverEdge())
			acc.add(wire.Expiry{Until: ent.until, Consumed: 1})
			ent.until += stepTime
			acc.add(wire.Expiry{Until: ent.until, Stamped: 1})
			s = ent.until
		}
		d.to, d.until, d.said = 0, 0, false
		d.marked = max(latest, s)
		b.storeMark(d)
		d.n = b.tellStay(d.stay(b.home))
	})
}

// mayMove reports whether a session has been here for long enough to move on.
func (ms *moves) mayMove(now fleettime.Mono, id uint64, life uint32) bool {
	at, ok := ms.came[id]
	return !ok || now.Sub(at) >= min(moveGap, time.Duration(life)*time.Second/2)
}

// eachAsk calls f for every session that is asked for here: by other data centres, then by the own edges for a session
// that was marked and stays after all.
func (b *roomLedger) eachAsk(f func(wire.Ask)) {
	for _, k := range b.moves.asked {
		f(k)
	}
	for _, acc := range b.accounts {
		if acc.report == nil {
			continue
		}
		for _, k := range acc.report.Asks {
			if k.Home == b.home {
				f(k)
			}
		}
	}
}

// canDepart reports whether a session that is asked for is marked at every edge, and in the store.
func (b *roomLedger) canDepart(known, saved uint64) (can bool) {
	b.eachAsk(func(k wire.Ask) {
		d := b.moves.leaving[k.ID]
		can = can || d != nil && d.ready(known, saved) && b.here(k.ID, k.Shown) != 0
	})
	return can
}

// depart releases the sessions that are asked for and marked at every edge and in the store: known is the number of the
// newest stay that all edges know, saved the stored version. At most limit permits are returned. It returns how many sessions left or stay, and how many wait.
func (b *roomLedger) depart(known, saved uint64, limit int64, tag uint64) (moved, waits int64) {
	done := map[uint64]bool{}
	b.eachAsk(func(k wire.Ask) {
		d := b.moves.leaving[k.ID]
		if d == nil || !d.ready(known, saved) || done[k.ID] {
			return
		}
		s := b.here(k.ID, k.Shown)
		if s == 0 || s > d.marked {
			return // over, or renewed by an edge before it knew the mark: it is marked again
		}
		to := k.For
		until := max(k.Until, d.marked+1)
		switch {
		case to == b.home:
		case len(b.moves.sent) >= wire.MaxAsks:
			return
		case moved >= limit:
			waits++
			return
		}
		done[k.ID] = true
		if ent := b.ids.find(k.ID); ent != nil {
			*ent = idEntry{id: k.ID}
		} else {
			b.ids.insert(idEntry{id: k.ID}, b.counts.freed, 1<<30)
		}
		b.counts.add(int64(s), -1)
		b.dirty, b.stale = true, true
		if to == b.home { // it stays: renewed beyond the mark
			b.restamp(k.ID, until)
			return
		}
		moved++
		b.loan.permits.Sessions.Returned++
		b.send(tag, sent{at: s, Transfer: wire.Transfer{ID: k.ID, To: to, Until: until}})
		d.to, d.until = to, until
	})
	return moved, waits
}

// restamp counts a session here until a second, and tells the edges. The caller stores the pseudo-edge.
func (b *roomLedger) restamp(id uint64, until uint32) {
	acc := b.account(b.moverEdge())
	acc.add(wire.Expiry{Until: until, Stamped: 1})
	b.ids.record(&b.counts, wire.Move{ID: id, Until: until}, acc.edge.num, 1<<30)
	delete(b.moves.leaving, id)
	ms := &b.moves
	ms.unwritten = true
	if n := len(ms.new); n == 0 || ms.new[n-1].version != 0 {
		ms.new = append(ms.new, arrival{taken: slices.Clone(ms.taken)})
	}
	x := &ms.new[len(ms.new)-1]
	x.stays = append(x.stays, wire.Stay{ID: id, Home: b.home, Until: until})
}

// unstoredStay reports whether the edges must not hear yet that a session is here.
func (ms *moves) unstoredStay(id uint64) bool {
	return slices.ContainsFunc(ms.new, func(x arrival) bool {
		return slices.ContainsFunc(x.stays, func(s wire.Stay) bool { return s.ID == id })
	})
}

// add counts tickets of an edge that does not report.
func (a *account) add(x wire.Expiry) {
	if a.ledger.counts.freed == 0 { // no edge has reported yet: counting begins early enough for every ticket from now on
		a.ledger.counts.start(fleettime.Time((int64(x.Until) - int64(wire.Life(room.MaxSession))) * 1000))
	}
	next := addSessions(a.sessions.expiries, []wire.Expiry{x}, a.ledger.counts.freed)
	a.sessions.applyReport(&a.ledger.counts, next)
}

// takeTransfers counts the sessions of a grant that arrive. It reports whether there are any.
func (b *roomLedger) takeTransfers(now fleettime.Mono, list []wire.Transfer) (any bool) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(x, y wire.Transfer) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.Tag, y.Tag), cmp.Compare(x.N, y.N))
	})
	ms := &b.moves
	for _, t := range list {
		was := slices.Clone(ms.taken)
		if t.To != b.home || !ms.take(t) {
			continue
		}
		if n := len(ms.new); n == 0 || ms.new[n-1].version != 0 {
			ms.new = append(ms.new, arrival{taken: was})
		}
		any = true
		// A session that came leaves with a later second: with the same one, two homes counted it and sent it to each other.
		if d := ms.leaving[t.ID]; d != nil && d.to != 0 && d.until > t.Until {
			continue // it came before, and left: the permit is free
		}
		ms.new[len(ms.new)-1].permits++
		if ms.came == nil {
			ms.came = map[uint64]fleettime.Mono{}
		}
		ms.came[t.ID] = now
		b.recordEnd(wire.End{ID: t.ID, Home: t.From, Until: t.Until, Kind: wire.Moved}, false)
		b.restamp(t.ID, t.Until)
	}
	if any {
		b.dirty, b.stale = true, true
	}
	return any
}

// take reports whether a transfer is new.
func (ms *moves) take(t wire.Transfer) bool {
	for i := range ms.taken {
		if x := &ms.taken[i]; x.From == t.From {
			if t.Tag < x.Tag || t.Tag == x.Tag && t.N <= x.N {
				return false
			}
			x.Tag, x.N = t.Tag, t.N
			return true
		}
	}
	if len(ms.taken) < wire.MaxTaken {
		ms.taken = append(ms.taken, wire.Taken{From: t.From, To: t.To, Tag: t.Tag, N: t.N})
		return true
	}
	return false
}

// arrived notes the transfers that other data centres have taken, and stores that their sessions are not here, with their
// marks.
func (b *roomLedger) arrived(list []wire.Taken) {
	ms := &b.moves
	for _, t := range list {
		if t.From == b.home && t.Tag != ms.tag {
			ms.known = max(ms.known, t.Tag)
		}
	}
	for i := range ms.sent {
		s := &ms.sent[i]
		if s.taken || !slices.ContainsFunc(list, func(t wire.Taken) bool {
			return t.From == b.home && t.To == s.To && (t.Tag > s.Tag || t.Tag == s.Tag && t.N >= s.N)
		}) {
			continue
		}
		s.taken = true
		b.saySent(s)
		if int64(s.at) >= b.counts.freed && s.at != 0 {
			b.counts.add(int64(s.at), 1)
			b.account(b.moverEdge()).add(wire.Expiry{Until: s.at, Consumed: 1})
			ms.unwritten = true
		}
	}
}

// isSaid reports whether the edges know where a session went; known is the number of the newest stay that all know.
func (ms *moves) isSaid(s *sent, known uint64) bool {
	d := ms.leaving[s.ID]
	return d == nil || d.to != s.To || d.until != s.Until || d.said && d.n <= known
}

// restoreMoves takes what global knows of the transfers of a predecessor.
func (b *roomLedger) restoreMoves(g *wire.RoomGrant) {
	ms := &b.moves
	for _, t := range g.Taken {
		if t.From == b.home {
			ms.known = max(ms.known, t.Tag)
		} else if t.To == b.home && len(ms.taken) < wire.MaxTaken {
			ms.taken = append(ms.taken, t)
		}
	}
	// Its own transfers get a tag of their own: the predecessor may have sent some that this coordinator has not heard of.
	for _, t := range g.Transfers {
		if t.From == b.home {
			ms.known = max(ms.known, t.Tag)
			ms.sent = append(ms.sent, sent{Transfer: t})
			if d := ms.leaving[t.ID]; d == nil && len(ms.leaving) < maxDepartures || d != nil && d.until < t.Until {
				d = &departure{id: t.ID, marked: t.Until - 1, to: t.To, until: t.Until}
				ms.keep(d)
				d.n = b.tellStay(d.stay(b.home))
				b.storeMark(d)
			}
		}
	}
}

// expireMoves drops what is over. known is the number of the newest stay that all edges know.
func (b *roomLedger) expireMoves(now fleettime.Mono, watermark fleettime.Time, known uint64) {
	ms := &b.moves
	over := func(until uint32) bool { return fleettime.Time(int64(until)*1000).Add(wire.EndMargin) <= watermark }
	ms.sent = slices.DeleteFunc(ms.sent, func(s sent) bool {
		gone := over(s.Until) || s.taken && ms.isSaid(&s, known)
		b.dirty = b.dirty || gone
		return gone
	})
	for id, d := range ms.leaving {
		if over(max(d.marked, d.until)) {
			delete(ms.leaving, id)
		}
	}
	for id, at := range ms.came {
		if now.Sub(at) > moveGap {
			delete(ms.came, id)
		}
	}
}

// saySent tells the edges where a session is, once it is counted there: they give tickets of that home, which its edges
// renew.
func (b *roomLedger) saySent(s *sent) {
	if d := b.moves.leaving[s.ID]; d != nil && d.to == s.To && d.until == s.Until && !d.said {
		d.said, b.moves.unwritten = true, true
		d.n = b.tellStay(d.stay(b.home))
	}
}

// answerAsks tells an edge of the sessions that it asks for and that are here.
func (b *roomLedger) answerAsks(acc *account, asks []wire.Ask) {
	if len(asks) == 0 {
		acc.told = nil
		return
	}
	told := map[uint64]uint32{}
	for _, k := range asks {
		if d := b.moves.leaving[k.ID]; d != nil {
			continue
		}
		ent := b.ids.find(k.ID)
		if ent == nil || ent.pinned() || int64(ent.until) < b.counts.freed || b.moves.unstoredStay(k.ID) {
			continue
		}
		if told[k.ID] = ent.until; acc.told[k.ID] == ent.until {
			continue
		}
		b.moves.n++
		acc.stays.Most = maxStays
		acc.stays.Add(wire.Stay{ID: k.ID, Home: b.home, Until: ent.until}, b.moves.n)
		acc.markChanged()
		acc.edge.urgent = true
	}
	acc.told = told
}

// passOn asks the data centre where a session went, which may not have heard of it: it may be on its way there, or a
// predecessor heard of it. Once it has arrived it counts there from its second on.
func (d *departure) passOn(k *wire.Ask) {
	if k.Home, k.Shown = d.to, 0; d.said {
		k.Shown = d.until
	}
}

// asksUp returns what the data centre asks of others: for its edges, and of the next home for a session that went on.
func (b *roomLedger) asksUp() []wire.Ask {
	best := map[uint64]wire.Ask{}
	var out []wire.Ask
	for _, acc := range b.accounts {
		if acc.report == nil || acc.edge.state == left {
			continue
		}
		for _, k := range acc.report.Asks {
			k.For = b.home
			if d := b.moves.leaving[k.ID]; d != nil && d.to != 0 && (k.Home == b.home || k.Shown <= d.marked) {
				d.passOn(&k)
			}
			if ent := b.ids.find(k.ID); k.Home == b.home || ent != nil && int64(ent.until) >= b.counts.freed || int64(k.Until) < b.counts.freed {
				continue
			}
			if o, ok := best[k.ID]; ok {
				k.Until = max(k.Until, o.Until)
				if o.Shown > k.Shown {
					k.Shown, k.Home = o.Shown, o.Home
				}
			}
			best[k.ID] = k
		}
	}
	for _, k := range best {
		out = append(out, k)
	}
	for _, k := range b.moves.asked {
		if d := b.moves.leaving[k.ID]; d != nil && d.to != 0 && d.to != k.For && k.Shown <= d.marked {
			d.passOn(&k)
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(x, y wire.Ask) int {
		return cmp.Or(cmp.Compare(x.Shown, y.Shown), cmp.Compare(x.ID, y.ID), cmp.Compare(x.For, y.For),
			cmp.Compare(x.Home, y.Home), cmp.Compare(x.Until, y.Until))
	})
	return out[:min(len(out), wire.MaxAsks)]
}

// any reports whether sessions move, or are asked for.
func (ms *moves) any() bool {
	return len(ms.asked)+len(ms.leaving)+len(ms.sent)+len(ms.came)+ms.askers > 0
}

// setAsks records whether an edge asks for a session of this data centre.
func (a *account) setAsks(list []wire.Ask) {
	asks := slices.ContainsFunc(list, func(k wire.Ask) bool { return k.Home == a.ledger.home })
	switch {
	case asks && !a.asks:
		a.ledger.moves.askers++
	case a.asks && !asks:
		a.ledger.moves.askers--
	}
	a.asks = asks
}

// reported records that report seq has all transfers.
func (ms *moves) reported(seq uint64) {
	for i := range ms.sent {
		if ms.sent[i].seq == 0 {
			ms.sent[i].seq = seq
		}
	}
}

// depart releases the sessions that can move, in the report that follows.
func (a *Aggregator) depart(now fleettime.Mono, at *snapshot) {
	u := &a.up
	if at.unknown() || !a.clock.synced(now) || !u.joined || !at.leased || at.unanswered || !u.parent.Names(wire.Moves) {
		return
	}
	for _, b := range a.rooms.list {
		if b.moves.waits = 0; !b.moves.any() || b.loan.reconstructed {
			continue
		}
		limit, _ := b.loan.aboveFloor(1<<40, 0)
		_, b.moves.waits = b.depart(a.roster.acknowledgedStays(b), a.stored.saved, limit, uint64(a.clock.Now(now)))
		if b.moves.waits > 0 {
			u.reportSoon(now, 1) // once a lower floor is stored
		}
	}
	a.storeMoves()
}

// storeMoves stores the sessions that came or stay, and the marks of those that leave. Until then global hears nothing of
// those that came.
func (a *Aggregator) storeMoves() {
	any := false
	for _, b := range a.rooms.list {
		any = any || b.moves.unwritten
		b.moves.unwritten = false
	}
	if !any {
		return
	}
	e := a.rooms.moverEdge()
	a.lifecycle.storeEnded(e)
	for _, b := range a.rooms.list {
		a.stored.raiseMovedIn(int64(b.terminations.movedIn))
		for i := range b.moves.new {
			if x := &b.moves.new[i]; x.version == 0 {
				x.version = max(e.storeVersion, a.stored.movedNeeds)
			}
		}
		for _, d := range b.moves.unmarked {
			d.version = e.storeVersion
		}
		b.moves.unmarked = nil
	}
}

// savedMoves drops the arrivals that are stored.
func (b *roomLedger) savedMoves(saved uint64) {
	ms := &b.moves
	ms.new = slices.DeleteFunc(ms.new, func(x arrival) bool {
		if x.version == 0 || x.version > saved {
			return false
		}
		for _, s := range x.stays {
			b.tellStay(s)
		}
		b.dirty = true
		return true
	})
}

// Took reports whether a session has come with a transfer, for tests: the data centre counts it, and has stored that.
func (a *Aggregator) Took(id room.ID, t wire.Transfer) bool {
	b := a.rooms.byID[id]
	return b != nil && slices.ContainsFunc(b.moves.storedTaken(), func(x wire.Taken) bool {
		return x.From == t.From && x.Tag == t.Tag && x.N >= t.N
	})
}
