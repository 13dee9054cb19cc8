package root

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// relays are the ends of sessions of one room in transit between data centres: a move to the home that removes the
// session, a leave to all other data centres, and a notice to the home once all of them have acknowledged it.
type relays map[wire.End]*relay

// relay is one end in transit.
type relay struct {
	end     wire.End
	left    bool // every other data centre has to acknowledge it
	cleared []*centre
}

// apply handles an end that data centre d reported, and passes it on to all others that need it.
func (rs *relays) apply(d *centre, e wire.End, all []*centre, pass func(*centre, wire.End)) {
	var home *centre
	for _, o := range all {
		if wire.HomeOf(o.name) == e.Home && (home == nil || o.listed) {
			home = o
		}
	}
	if home == nil {
		return
	}
	key := e
	key.Shown = 0
	if e.Kind == wire.Cleared {
		key.Kind = wire.Left
	}
	r := (*rs)[key]
	if r == nil {
		if e.Kind == wire.Cleared || len(*rs) >= wire.MaxEnds {
			return
		}
		r = &relay{end: e}
		if *rs == nil {
			*rs = relays{}
		}
		(*rs)[key] = r
		if e.Kind == wire.Moved || d != home {
			pass(home, e)
		}
	}
	if e.Kind == wire.Left && d == home && !r.left {
		r.left = true
		for _, o := range all {
			if o != d {
				pass(o, e)
			}
		}
	}
	if e.Kind == wire.Cleared && !slices.Contains(r.cleared, d) {
		r.cleared = append(r.cleared, d)
	}
	if r.left && len(r.cleared) >= len(all)-1 {
		r.left = false
		end := r.end
		end.Kind = wire.Cleared
		pass(home, end)
	}
}

// sendAllTo passes the leaves in transit to a new data centre.
func (rs relays) sendAllTo(d *centre, pass func(*centre, wire.End)) {
	for _, r := range rs {
		if r.end.Kind == wire.Left {
			pass(d, r.end)
		}
	}
}

// expire drops ends whose tickets have expired.
func (rs relays) expire(ft fleettime.Time) {
	for key, r := range rs {
		if ft > fleettime.Time(int64(r.end.Until)*1000).Add(wire.EndMargin) {
			delete(rs, key)
		}
	}
}
