package admission

import (
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
)

// asleep are the waiting visitors with a kept place and a page that went away at this edge. They count as the share
// of them that comes when called: they are in front of others, and nobody waits for the rest. The zero value has none.
//
// A visitor that comes back at another edge before its call counts twice until then, and one without space not at all:
// the count is advisory.
type asleep struct {
	seconds map[uint64]int64 // second of the place, by ticket; some may have been called
	base    int64            // second of counts[0]
	counts  []int32          // by second of the place

	minute              int64
	called, came, newly float64 // newly are those called in this minute: they have not come yet
}

const (
	maxAsleep = 1 << 16
	asleepFor = 24 * 3600 // seconds: see keptFor
	showFades = 1000      // the share is of the last so many, or twice that
)

// put adds the visitor of a ticket. It reports whether that is news.
func (a *asleep) put(ft fleettime.Time, id uint64, place fleettime.Time) bool {
	second, now := place.Second(), ft.Second()
	if _, known := a.seconds[id]; known || len(a.seconds) >= maxAsleep || second < now-asleepFor ||
		second > now+asleepFor {
		return false
	}
	if a.seconds == nil {
		a.seconds = map[uint64]int64{}
	}
	if len(a.counts) == 0 {
		a.base = second
	}
	a.seconds[id] = second
	a.counts, a.base = cell(a.counts, a.base, second)
	a.counts[second-a.base]++
	return true
}

// drop removes a visitor that is back, or has left. It reports whether that is news.
func (a *asleep) drop(id uint64) bool {
	second, known := a.seconds[id]
	if !known {
		return false
	}
	delete(a.seconds, id)
	i := second - a.base
	if i < 0 || i >= int64(len(a.counts)) {
		return false // it was called
	}
	a.counts[i]--
	return true
}

// call removes the visitors with places before cutoff. It reports whether there were any.
func (a *asleep) call(ft, cutoff fleettime.Time) bool {
	if minute := ft.Second() / 60; minute != a.minute {
		a.minute = minute
		a.called, a.newly = a.called+a.newly, 0
		if a.called > 2*showFades {
			a.called, a.came = a.called/2, a.came/2
		}
		for id, second := range a.seconds {
			if second < a.base || second < ft.Second()-asleepFor {
				a.drop(id)
			}
		}
	}
	n, past := int32(0), min(int64(len(a.counts)), max(0, cutoff.Second()-a.base))
	for _, c := range a.counts[:past] {
		n += c
	}
	a.counts, a.base = a.counts[past:], a.base+past
	a.newly += float64(n)
	return n > 0
}

// show is the share of the called visitors that came. Before the first ones it is taken to be half.
func (a *asleep) show() float64 { return min(1, (a.came+2)/(a.called+4)) }

// addTo adds them to a line.
func (a *asleep) addTo(line estimate.Histogram) estimate.Histogram {
	var h estimate.Histogram
	for i, c := range a.counts {
		if c > 0 {
			h = append(h, estimate.Slice{
				Start: fleettime.Time((a.base + int64(i)) * 1000), Width: 1000, N: float64(c) * a.show(),
			})
		}
	}
	if len(h) == 0 {
		return line
	}
	return estimate.Sum(line, h)
}
