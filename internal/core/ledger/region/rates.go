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

// rateUse is uses of permits of R that an edge reported: at most n, no earlier than from and no later than till.
type rateUse struct {
	n          int64
	from, till fleettime.Mono
}

// rateUses are the reported uses of permits of R, oldest first, about one entry a second. Every permit in use at the
// newest report is in one of them.
type rateUses struct {
	list  []rateUse
	wrote fleettime.Mono // lower bound of the time of the newest report
}

// maxRateUses bounds the entries: if fleet time is unknown, it is unknown which of them have ended.
const maxRateUses = 128

// init applies the first report of an edge, written between wrote and by: busy permits are in use, and used[s] of them
// were used s seconds before. The uses of the others are unknown.
func (u *rateUses) init(now, wrote, by fleettime.Mono, used []uint32, busy int64) {
	for s, n := range slices.Backward(used) {
		if n == 0 {
			continue
		}
		age := time.Duration(s) * time.Second
		u.list = append(u.list, rateUse{
			n: int64(n), from: wrote.Add(-fleettime.Stretch(age + 2*time.Second)), till: by.Add(-fleettime.Shrink(age)),
		})
		busy -= int64(n)
	}
	u.wrote = math.MinInt64 / 2 // the earlier uses are unknown
	u.record(now, wrote, busy)
}

// record records n new uses since the previous report.
func (u *rateUses) record(now, wrote fleettime.Mono, n int64) {
	from := u.wrote
	u.wrote = wrote
	if n <= 0 {
		return
	}
	// Uses that ended before the report was written are not in use.
	u.list = slices.DeleteFunc(u.list, func(x rateUse) bool { return wrote.Sub(x.till) > rateBusy+time.Second })
	till := now - now%fleettime.Mono(time.Second) + fleettime.Mono(time.Second)
	if k := len(u.list) - 1; k >= 0 && (u.list[k].till == till || k >= maxRateUses) {
		u.list[k].n += n
		u.list[k].till = till
		return
	}
	u.list = append(u.list, rateUse{n: n, from: from, till: till})
}

// addAges adds the uses of known time to out, by their age as in [wire.RoomReport.RateUsed].
func (u *rateUses) addAges(now fleettime.Mono, out []uint32) []uint32 {
	for _, x := range u.list {
		if now.Sub(x.from) > 2*rateBusy { // unknown: before the first report
			continue
		}
		age := int((max(0, now.Sub(x.till)) + time.Second/2) / time.Second) // till is half a second late on average
		if age >= wire.MaxRateUsed {
			continue
		}
		for len(out) <= age {
			out = append(out, 0)
		}
		out[age] += uint32(x.n)
	}
	return out
}

// reservedRate is permits of R that an edge may have used under an ended lease epoch, until the end of its lease.
type reservedRate struct {
	edge  edgeNum
	n     int64
	until fleettime.Mono
	end   int64 // Unix second after which they have ended too, from a predecessor; 0 for unknown
}

// reservedRates are the permits of R of a room that edges may have used under ended lease epochs.
//
// Invariant: none counts for a shorter time than its use may.
type reservedRates []reservedRate

// add adds n permits of R that an edge may have used until now. end is the second after which they have ended too; 0
// for unknown.
func (ps *reservedRates) add(e edgeNum, n int64, now fleettime.Mono, end int64) {
	if n > 0 {
		*ps = append(*ps, reservedRate{edge: e, n: n, until: now.Add(rateBusy), end: end})
	}
}

// sum returns the number of permits.
func (ps reservedRates) sum() int64 {
	n := int64(0)
	for _, p := range ps {
		n += p.n
	}
	return n
}

// of returns the number of permits of an edge.
func (ps reservedRates) of(e edgeNum) int64 {
	n := int64(0)
	for _, p := range ps {
		if p.edge == e {
			n += p.n
		}
	}
	return n
}

// remove removes the permits of an edge.
func (ps *reservedRates) remove(e edgeNum) {
	*ps = slices.DeleteFunc(*ps, func(p reservedRate) bool { return p.edge == e })
}

// pass moves the permits of one edge to another.
func (ps reservedRates) pass(from, to edgeNum) {
	for i := range ps {
		if ps[i].edge == from {
			ps[i].edge = to
		}
	}
}

// expire drops ended permits and reports whether there were any. If fleet time ft is uncertain (unsure), it uses only
// the monotonic clock.
func (ps *reservedRates) expire(now fleettime.Mono, ft fleettime.Time, unsure bool) bool {
	n := len(*ps)
	*ps = slices.DeleteFunc(*ps, func(p reservedRate) bool {
		return now >= p.until || (p.end != 0 && !unsure && ft.Second() > p.end)
	})
	return len(*ps) != n
}

// ratesGrain is the grid, in seconds, of the ends of permits of R on the roster.
const ratesGrain = 5

// stored returns the roster form of the permits reserved for an edge: the Unix seconds until which they count, and
// the second after which none does. latest is the upper bound of fleet time; if it is unknown, stored returns none
// and 0.
func (ps reservedRates) stored(
	e edgeNum, now fleettime.Mono, latest fleettime.Time,
) (rates []wire.RosterRate, until int64) {
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
		k, found := slices.BinarySearchFunc(rates, end,
			func(r wire.RosterRate, end int64) int { return cmp.Compare(r.Until, end) })
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
