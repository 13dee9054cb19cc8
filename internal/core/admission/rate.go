package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// rateSlot is the resolution of used permits of R: a used permit stays busy up to one slot longer than the window.
const (
	rateSlot  = 100 * time.Millisecond
	rateSlots = 608 // covers the window, its stretch and the current slot
)

// ratePermits are the permits of R that an edge holds. A used permit is busy for a full window on the edge's own
// monotonic clock, lengthened by the drift bound, and then free again, without any message.
type ratePermits struct {
	wire.Allocation
	busy uint64
	head int64 // the current slot
	used []uint32
}

// slotOf returns the number of the slot at now. A monotonic clock may begin at any value, also below zero.
func slotOf(now fleettime.Mono) int64 {
	slot := int64(now) / int64(rateSlot)
	if int64(now)%int64(rateSlot) < 0 {
		slot--
	}
	return slot
}

func (r *ratePermits) advance(now fleettime.Mono) {
	slot := slotOf(now)
	if r.busy == 0 {
		r.head = slot
		return
	}
	if slot-r.head > rateSlots {
		r.head = slot - rateSlots // every slot is skipped below
	}
	for ; r.head < slot; r.head++ {
		// The slot that becomes old enough: its last use was at its end.
		busy := window
		i := (r.head + 1 - busy) % rateSlots
		if i < 0 {
			i += rateSlots
		}
		r.busy -= uint64(r.used[i])
		r.used[i] = 0
	}
}

// window is how many slots a used permit stays busy: until the window has passed on every clock since the end of
// its slot.
var window = int64((fleettime.Stretch(fleettime.Stretch(wire.RateWindow))+rateSlot-1)/rateSlot) + 1

// idle returns how many permits can be used now.
func (r *ratePermits) idle(now fleettime.Mono) uint64 {
	r.advance(now)
	return r.Unused(r.busy)
}

// moveTo moves the permits in use to past, where they stay busy: their lease epoch is over, but the window is not.
func (r *ratePermits) moveTo(past *ratePermits, now fleettime.Mono) {
	r.advance(now)
	past.advance(now)
	if r.busy > 0 {
		if past.used == nil {
			past.used = make([]uint32, rateSlots)
		}
		past.head = r.head
		for i, n := range r.used {
			past.used[i] += n
		}
		past.busy += r.busy
	}
	r.Reset()
	*r = ratePermits{Allocation: r.Allocation}
}

// owed returns how many of the permits moved here are still in use.
func (r *ratePermits) owed(now fleettime.Mono) uint64 {
	r.advance(now)
	return r.busy
}

// ages returns the permits in use by the whole seconds since their use, in the memory of out, which is empty.
func (r *ratePermits) ages(now fleettime.Mono, out []uint32) []uint32 {
	if r.advance(now); r.busy == 0 {
		return out
	}
	i := r.head % rateSlots
	for back, left := int64(0), r.busy; left > 0; back, i = back+1, i-1 {
		if i < 0 {
			i += rateSlots
		}
		if r.used[i] == 0 {
			continue
		}
		left -= uint64(r.used[i])
		end := fleettime.Mono((r.head - back + 1) * int64(rateSlot)) // the latest use in this slot
		for s := int(max(0, now.Sub(end)) / time.Second); len(out) <= s; {
			out = append(out, 0)
		}
		out[len(out)-1] += r.used[i]
	}
	return out
}

// use charges one permit. The caller has checked that idle is not zero.
func (r *ratePermits) use(now fleettime.Mono) {
	if r.used == nil {
		r.used = make([]uint32, rateSlots)
		r.head = slotOf(now)
	}
	i := r.head % rateSlots
	if i < 0 {
		i += rateSlots
	}
	r.used[i]++
	r.busy++
}
