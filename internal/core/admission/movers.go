package admission

import (
	"cmp"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// movers are the visitors here whose session is counted in another data centre, or was promised to one, by ticket ID.
// The edge asks for the session in every report, until it arrives or the visitor's last request is a session's length
// ago. One that waits for long, because the home cannot be asked, takes a free permit, ahead of the queue. The map is
// bounded: without space the visitor keeps the old ticket.
type movers struct {
	byID map[uint64]mover
	long int // that have waited for askWait, were seen within moverWait, and have a valid ticket
}

// mover is a session to move here: the last request of its visitor, and the newest ticket shown.
type mover struct {
	first fleettime.Mono // first request
	seen  fleettime.Mono
	home  ticket.DC
	shown uint32 // expiry second of that ticket
	until uint32 // the session is to last until this second
}

const (
	maxMovers = 1 << 16
	// moverWait is how long a permit is reserved for an absent visitor.
	moverWait = 30 * time.Second
	// askWait is how long a mover waits for the home of the session before it may take a free permit, and the session
	// counts twice for a while. It is shorter where tickets are.
	askWait = 5 * time.Second
)

// askWait returns how long movers wait for the home of their session.
func (a *account) askWait() time.Duration {
	if !a.edge.up.parent.Names(wire.Moves) {
		return 0
	}
	return min(askWait, time.Duration(a.life.full)*time.Second/4)
}

// add records a request. It reports whether the visitor is a new mover; ok is false without space.
func (ms *movers) add(id uint64, v mover, wait time.Duration) (fresh, ok bool) {
	old, known := ms.byID[id]
	if !known && len(ms.byID) >= maxMovers {
		return false, false
	}
	if ms.byID == nil {
		ms.byID = map[uint64]mover{}
	}
	if v.first = v.seen; known {
		v.first = old.first
	} else if wait == 0 {
		ms.long++
	}
	if old.shown > v.shown {
		v.home, v.shown = old.home, old.shown
	}
	ms.byID[id] = v
	return !known, true
}

// mayTake reports whether a session may take a free permit here, because its home does not answer.
func (ms *movers) mayTake(now fleettime.Mono, id uint64, wait time.Duration) bool {
	v, ok := ms.byID[id]
	return wait == 0 || ok && now.Sub(v.first) >= wait
}

// remove forgets a mover. The number of those that wait for long may be too high until the next prune.
func (ms *movers) remove(id uint64) {
	if delete(ms.byID, id); ms.long > len(ms.byID) {
		ms.long = len(ms.byID)
	}
}

// prune removes sessions that have expired, and counts those that wait for long. It reports whether anything changed.
func (ms *movers) prune(now fleettime.Mono, ft fleettime.Time, wait time.Duration) bool {
	n, was := len(ms.byID), ms.long
	ms.long = 0
	for id, v := range ms.byID {
		if int64(v.until) < ft.Second() {
			delete(ms.byID, id)
		} else if now.Sub(v.first) >= wait && now.Sub(v.seen) <= moverWait && int64(v.shown) >= ft.Second() {
			ms.long++
		}
	}
	return len(ms.byID) != n || ms.long != was
}

// asks returns what the edge asks for: first the sessions whose tickets expire first.
func (ms *movers) asks(here ticket.DC) []wire.Ask {
	if len(ms.byID) == 0 {
		return nil
	}
	out := make([]wire.Ask, 0, len(ms.byID))
	for id, v := range ms.byID {
		out = append(out, wire.Ask{ID: id, Home: uint32(v.home), For: uint32(here), Shown: v.shown, Until: v.until})
	}
	slices.SortFunc(out, func(a, b wire.Ask) int {
		return cmp.Or(cmp.Compare(a.Shown, b.Shown), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), wire.MaxAsks)]
}
