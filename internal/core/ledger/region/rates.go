package region

import (
	"cmp"
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// rateBusy is the longest time for which a permit of R counts after its use, by any clock.
var rateBusy = fleettime.Stretch(fleettime.Stretch(wire.RateWindow))

// rateUse are rights of R that an edge used, as its reports tell them: n at most, no earlier
// than from and no later than till.
type rateUse struct {
	n          int64
	from, till fleettime.Mono
}

// rateUses are the uses of rights of R that an edge has told, oldest first, about one entry
// a second. Every right in use by its newest report is in one of them.
type rateUses struct {
	list  []rateUse
	wrote fleettime.Mono // the newest one was written no earlier
}

// maxRateUses bounds the entries: where nobody knows the time it is not known which are over.
const maxRateUses = 128

// init takes the first report of an edge: busy permits are in use, and used[s] of them were used s
// seconds before it was written. The uses of the others are not known.
func (u *rateUses) init(now, wrote fleettime.Mono, used []uint32, busy int64) {
	for s, n := range slices.Backward(used) {
		if n == 0 {
			continue
		}
		age := time.Duration(s) * time.Second
		u.list = append(u.list, rateUse{n: int64(n), from: wrote.Add(-fleettime.Stretch(age + 2*time.Second)), till: now.Add(-fleettime.Shrink(age))})
		busy -= int64(n)
	}
	u.wrote = math.MinInt64 / 2 // of the time before the report
	u.record(now, wrote, busy)
}

// record notes that a report told of n more uses than the one before.
func (u *rateUses) record(now, wrote fleettime.Mono, n int64) {
	from := u.wrote
	u.wrote = wrote
	if n <= 0 {
		return
	}
	// Those that were over when it was written are not in use by it.
	u.list = slices.DeleteFunc(u.list, func(x rateUse) bool { return wrote.Sub(x.till) > rateBusy+time.Second })
	till := now - now%fleettime.Mono(time.Second) + fleettime.Mono(time.Second)
	if k := len(u.list) - 1; k >= 0 && (u.list[k].till == till || k >= maxRateUses) {
		u.list[k].n += n
		u.list[k].till = till
		return
	}
	u.list = append(u.list, rateUse{n: n, from: from, till: till})
}

// reservedRate is rights of R that an edge may have used under a lease epoch that is
// over, until the end of its lease.
type reservedRate struct {
	edge  edgeNum
	n     int64
	until fleettime.Mono
	end   int64 // Unix second after which they are over as well, as a predecessor knew; 0 for unknown
}

// reservedRates are the rights of R of a room that edges may have used under lease epochs that
// are over.
//
// Invariant: each counts for no shorter a time than its use may.
type reservedRates []reservedRate

// add takes n rights of R of an edge for used until now. end is the second after which they are over
// as well, 0 for unknown.
func (ps *reservedRates) add(e edgeNum, n int64, now fleettime.Mono, end int64) {
	if n > 0 {
		*ps = append(*ps, reservedRate{edge: e, n: n, until: now.Add(rateBusy), end: end})
	}
}

// sum returns how many there are.
func (ps reservedRates) sum() int64 {
	n := int64(0)
	for _, p := range ps {
		n += p.n
	}
	return n
}

// of returns how many are of an edge.
func (ps reservedRates) of(e edgeNum) int64 {
	n := int64(0)
	for _, p := range ps {
		if p.edge == e {
			n += p.n
		}
	}
	return n
}

// pass makes those of one edge another one's.
func (ps reservedRates) pass(from, to edgeNum) {
	for i := range ps {
		if ps[i].edge == from {
			ps[i].edge = to
		}
	}
}

// expire drops permits that cannot count any more, and reports whether there were any. Where fleet
// time ft is not sure, it drops those that have ended without it.
func (ps *reservedRates) expire(now fleettime.Mono, ft fleettime.Time, unsure bool) bool {
	n := len(*ps)
	*ps = slices.DeleteFunc(*ps, func(p reservedRate) bool {
		return now >= p.until || (p.end != 0 && !unsure && ft.Second() > p.end)
	})
	return len(*ps) != n
}

// ratesGrain is the grid, in seconds, of the ends of permits of R on the roster.
const ratesGrain = 5

// stored returns the Unix seconds until which permits of R count that are counted as used by an edge,
// and the second after which none does, where latest is the latest time that fleet time can be; none
// and 0 where that is not known.
func (ps reservedRates) stored(e edgeNum, now fleettime.Mono, latest fleettime.Time) (rates []wire.RosterRate, until int64) {
	if latest == 0 {
		return nil, 0
	}
	for _, p := range ps {
		if p.edge != e {
			continue
		}
		end := latest.Add(fleettime.Stretch(max(0, p.until.Sub(now)))).Second() + 1
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
