package slots

import (
	"cmp"
	"math"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// rateBusy is for how long a right of R counts at most after its use, by any clock.
var rateBusy = fleet.Stretch(fleet.Stretch(wire.RateWindow))

// rateUse are rights of R that an edge used, as its reports tell them: n at most, no earlier
// than from and no later than till.
type rateUse struct {
	n          int64
	from, till fleet.Mono
}

// rateUses are the uses of rights of R that an edge has told, oldest first, about one entry
// a second. Every right in use by its newest report is in one of them.
type rateUses struct {
	list  []rateUse
	wrote fleet.Mono // the newest one was written no earlier
}

// maxRateUses bounds the entries: where nobody knows the time it is not known which are over.
const maxRateUses = 128

// begin takes the first report, by which busy rights are in use, and used of them so many
// seconds before it was written; since when the others are nobody knows.
func (u *rateUses) begin(now, wrote fleet.Mono, used []uint32, busy int64) {
	for s, n := range slices.Backward(used) {
		if n == 0 {
			continue
		}
		age := time.Duration(s) * time.Second
		if mutant.On(mutant.RateAgesLong) {
			age *= 2
		}
		u.list = append(u.list, rateUse{n: int64(n), from: wrote.Add(-fleet.Stretch(age + 2*time.Second)), till: now.Add(-fleet.Shrink(age))})
		busy -= int64(n)
	}
	u.wrote = math.MinInt64 / 2 // of what was before it
	u.add(now, wrote, busy)
}

// add notes that a report told of n more uses than the one before.
func (u *rateUses) add(now, wrote fleet.Mono, n int64) {
	from := u.wrote
	u.wrote = wrote
	if n <= 0 {
		return
	}
	// Those that were over when it was written are not in use by it.
	u.list = slices.DeleteFunc(u.list, func(x rateUse) bool { return wrote.Sub(x.till) > rateBusy+time.Second })
	till := now - now%fleet.Mono(time.Second) + fleet.Mono(time.Second)
	if k := len(u.list) - 1; k >= 0 && (u.list[k].till == till || k >= maxRateUses) {
		u.list[k].n += n
		u.list[k].till = till
		return
	}
	u.list = append(u.list, rateUse{n: n, from: from, till: till})
}

// presumedRate is rights of R that an edge may have used under a tenure that is
// over, until the end of its lease.
type presumedRate struct {
	edge  edgeNum
	n     int64
	until fleet.Mono
	end   int64 // Unix second after which they are over as well, as a predecessor knew; 0 for unknown
}

// presumedRates are the rights of R of a room that edges may have used under tenures that
// are over.
//
// Invariant: each counts for no shorter a time than its use may.
type presumedRates []presumedRate

// add takes n rights of R of an edge for used until now. end is the second after which they are over
// as well, 0 for unknown.
func (ps *presumedRates) add(e edgeNum, n int64, now fleet.Mono, end int64) {
	if n > 0 && !mutant.On(mutant.NoRatePresumed) {
		*ps = append(*ps, presumedRate{edge: e, n: n, until: now.Add(rateBusy), end: end})
	}
}

// sum returns how many there are.
func (ps presumedRates) sum() int64 {
	n := int64(0)
	for _, p := range ps {
		n += p.n
	}
	return n
}

// of returns how many are of an edge.
func (ps presumedRates) of(e edgeNum) int64 {
	n := int64(0)
	for _, p := range ps {
		if p.edge == e {
			n += p.n
		}
	}
	return n
}

// pass makes those of one edge another one's.
func (ps presumedRates) pass(from, to edgeNum) {
	for i := range ps {
		if ps[i].edge == from {
			ps[i].edge = to
		}
	}
}

// expire drops those that cannot count any more, and reports whether there were any. Where
// fleet time ft is not sure, only those of which that is known without it.
func (ps *presumedRates) expire(now fleet.Mono, ft fleet.Time, unsure bool) bool {
	n := len(*ps)
	*ps = slices.DeleteFunc(*ps, func(p presumedRate) bool {
		return now >= p.until || (p.end != 0 && !unsure && ft.Second() > p.end)
	})
	return len(*ps) != n
}

// ratesGrain is by how many seconds the ends of rights of R are told apart that a successor is
// to know.
const ratesGrain = 5

// stored returns until which Unix second rights of R count that are taken for used by an edge,
// and after which none does, where latest is what fleet time is at most; none and 0 where that is
// not known.
func (ps presumedRates) stored(e edgeNum, now fleet.Mono, latest fleet.Time) (rates []wire.RosterRate, until int64) {
	if latest == 0 {
		return nil, 0
	}
	for _, p := range ps {
		if p.edge != e {
			continue
		}
		end := latest.Add(fleet.Stretch(max(0, p.until.Sub(now)))).Second() + 1
		if p.end != 0 { // as a predecessor knew
			end = min(end, p.end)
		}
		until = max(until, end)
		end = (end + ratesGrain - 1) / ratesGrain * ratesGrain
		k, found := slices.BinarySearchFunc(rates, end, func(r wire.RosterRate, end int64) int { return cmp.Compare(r.Until, end) })
		if !found {
			if len(rates) == wire.MaxRates {
				continue // counts until the last of them ends
			}
			rates = slices.Insert(rates, k, wire.RosterRate{Until: end})
		}
		rates[k].N += p.n
	}
	return rates, until
}

// lapse takes the rights of R of an edge whose lease is over by end for used; nobody
// there asks for anything.
func (a *account) lapse(end fleet.Mono) {
	a.presumeUses(end, false)
	a.noRate()
	a.noAsk()
	a.books.dirty = true
}

// presumeUses takes the rights of R that an edge holds for used, each as late as it may have
// been. Until the end of the lease the edge may have used those that lay idle, and once more
// those that came free, unless it is exact: its last report told all. The others it used when it
// said so.
//
// Invariant: every right that it holds is presumed, and none for a shorter time than it may
// count.
func (a *account) presumeUses(end fleet.Mono, exact bool) {
	rates := &a.books.rates
	held, told := a.rateHeld(), max(0, a.rateIdleNow())
	late := told
	again := func(u rateUse) bool {
		return !exact && u.from.Add(wire.RateWindow) <= end && !mutant.On(mutant.NoRateReuse)
	}
	for _, u := range a.rateUses.list {
		if told += u.n; again(u) {
			late += u.n
		}
	}
	late += max(0, held-told) // of which no report told
	n := min(held, late)
	rates.add(a.edge.num, n, end, 0)
	held -= n
	for _, u := range slices.Backward(a.rateUses.list) {
		if !again(u) {
			n = min(held, u.n)
			rates.add(a.edge.num, n, min(u.till, end), 0)
			held -= n
		}
	}
}

// presume counts what a lapsed edge may have spent and renewed without a word, until breath.
func (a *account) presume(now fleet.Mono, breath int64) {
	b := a.books
	renewals := int64(a.renewCeil) - int64(a.renewed)
	a.drop(&b.counts)
	if a.presumedSpent = max(0, a.credit()) + max(0, renewals); mutant.On(mutant.NothingPresumed) {
		a.presumedSpent = 0
	}
	a.presumedUntil = max(a.presumedUntil, breath+b.life.unknown())
	a.stampLife = max(a.stampLife, b.life.longest(now))
	b.dirty, b.stale = true, true
	a.news()
}

// pinAll takes the sessions that were last seen at a silent edge out of the
// ageing: under partition_policy serve it goes on renewing them. So it does those of
// the processes of its name that were there before it and are silent, whose visitors
// come to it. For that the name is enough: to pin too many is safe, and one that
// lives tells of its sessions itself. gone is where those of a process that went before it
// may be summed, nil where they are not.
func (a *account) pinAll(gone *edge) {
	b, e := a.books, a.edge
	a.silent = true
	here := []edgeNum{e.num}
	untold := a.unfollowed(&b.counts, e.earliest)
	for _, was := range b.accounts {
		old := was.edge
		if old.name != e.name || old.num >= e.num || old.heard() || mutant.On(mutant.PredecessorsAge) {
			continue
		}
		here = append(here, old.num)
		if !was.silent {
			if untold += was.presumed(&b.counts); was.report == nil { // nobody has told us of its sessions one by one
				untold += was.stamped(&b.counts)
			} else {
				untold += was.unfollowed(&b.counts, old.earliest)
			}
		}
	}
	if gone != nil && b.of(gone) != nil && !mutant.On(mutant.PredecessorsAge) {
		untold += b.of(gone).stamped(&b.counts) // which of them are its own nobody knows any more
	}
	a.pinnedUntold = max(a.pinnedUntold, untold)
	for i := range b.ids.slots {
		ent := &b.ids.slots[i]
		if ent.id != 0 && !ent.pinned() && int64(ent.until) >= b.counts.freed && slices.Contains(here, ent.edge()) {
			ent.at(e.num)
			a.pin(&b.counts, ent)
		}
	}
}

// unpin puts a session back into the ageing: edge by told of it.
func (b *books) unpin(ent *idEntry, by *edge) {
	ent.pin(false)
	b.counts.add(int64(ent.until), 1)
	for _, acc := range b.accounts {
		if acc.edge.num == ent.edge() {
			acc.pinned--
			if acc.edge != by {
				b.dirty = b.excess.add(acc.edge.inc, 1) || b.dirty // it may go back there, and nobody would tell
			}
		}
	}
}

// unpinAll ends the pinning: the silent edge is known to have stopped. Its
// sessions end no later than if they had been renewed a moment ago.
func (a *account) unpinAll(now fleet.Mono, end int64) {
	b := a.books
	a.drop(&b.counts)
	a.presumedLost += a.presumedSpent + a.pinned + a.pinnedUntold
	a.presumedSpent, a.pinned, a.pinnedUntold, a.silent = 0, 0, 0, false
	a.presumedUntil = max(a.presumedUntil, end+2+max(b.life.longest(now), a.stampLife)+b.life.unknown())
	a.stampLife = 0
	for ent := range b.ids.pinned(a.edge.num) {
		*ent = idEntry{id: ent.id} // still occupies its slot, means nothing
	}
	b.dirty = true
}

// settle takes the exact numbers of an edge whose tenure is over: nothing is presumed any
// more.
func (a *account) settle(now fleet.Mono) {
	b := a.books
	a.presumeUses(now, true) // no later than the end of the tenure, which is past
	a.noRate()
	if a.silent {
		for ent := range b.ids.pinned(a.edge.num) {
			ent.pin(false)
			b.counts.add(int64(ent.until), 1)
		}
	}
	a.presumedSpent, a.pinned, a.pinnedUntold, a.silent, a.stampLife = 0, 0, 0, false, 0
	// What was granted and never reached the edge belongs to the tenure that is
	// over, and may have been presumed spent, forgotten and lent again since.
	seen := a.spent + a.returned
	if a.report != nil {
		seen = max(seen, a.report.Granted)
	}
	a.granted = min(a.granted, seen)
	b.dirty, b.stale = true, true
	a.news()
}

// entry returns what a successor is to know of an edge that is not heard.
func (a *account) entry(now fleet.Mono, latest fleet.Time) wire.RosterRoom {
	presumed := a.books.rates
	rates, until := presumed.stored(a.edge.num, now, latest)
	return wire.RosterRoom{
		Room: a.books.ID, Sessions: slices.Clone(a.sessions),
		Presumed: a.presumedSpent + a.pinned + a.pinnedUntold + a.presumedLost, PresumedUntil: a.presumedUntil, Silent: a.silent,
		PresumedRate: presumed.of(a.edge.num), RateUntil: until, Rates: rates,
	}
}

// restore takes what a predecessor knew of an edge; tickets lived for life seconds at most.
func (b *books) restore(now fleet.Mono, e *edge, r *wire.RosterRoom, life int64) {
	acc := b.account(e)
	acc.takeSessions(&b.counts, r.Sessions)
	acc.presumedSpent, acc.presumedUntil, acc.silent, acc.stampLife = r.Presumed, r.PresumedUntil, r.Silent, life
	// By the time of this node the window begins anew; where fleet time is known it ends as the
	// predecessor knew.
	rest := r.PresumedRate
	for _, x := range r.Rates {
		b.rates.add(e.num, x.N, now, x.Until)
		rest -= x.N
	}
	b.rates.add(e.num, rest, now, r.RateUntil)
}
