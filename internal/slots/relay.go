package slots

import (
	"slices"

	"vestibule/internal/fleet"
	"vestibule/internal/wire"
)

// relay is one end on its way between data centres.
type relay struct {
	end     wire.End
	left    bool // every other data centre has to answer
	cleared []*centre
}

// relay passes an end on that data centre d told: a move to the home that is to
// forget the session, a leave to everybody else, and their answers to the home
// once all of them have given theirs.
func (a *Allocator) relay(p *pool, d *centre, e wire.End) {
	home := -1
	for i, o := range a.centres {
		if wire.HomeOf(o.name) == e.Home && (home < 0 || o.listed) {
			home = i
		}
	}
	if home < 0 {
		return
	}
	key := e
	if e.Kind == wire.Cleared {
		key.Kind = wire.Left
	}
	r := p.relays[key]
	if r == nil {
		if e.Kind == wire.Cleared || len(p.relays) >= wire.MaxEnds {
			return
		}
		r = &relay{end: e}
		if p.relays == nil {
			p.relays = map[wire.End]*relay{}
		}
		p.relays[key] = r
		if e.Kind == wire.Moved || d != a.centres[home] {
			a.pass(p, a.centres[home], e)
		}
	}
	if e.Kind == wire.Left && d == a.centres[home] && !r.left {
		r.left = true
		for _, o := range a.centres {
			if o != d {
				a.pass(p, o, e)
			}
		}
	}
	if e.Kind == wire.Cleared && !slices.Contains(r.cleared, d) {
		r.cleared = append(r.cleared, d)
	}
	if r.left && len(r.cleared) >= len(a.centres)-1 {
		r.left = false
		end := r.end
		end.Kind = wire.Cleared
		a.pass(p, a.centres[home], end)
	}
}

// pass owes a data centre an end.
func (a *Allocator) pass(p *pool, d *centre, e wire.End) {
	l := a.loan(d, p.ID)
	l.ends.Add(e, 0)
	l.dirty = true
}

// forgetRelays drops what has expired.
func (a *Allocator) forgetRelays(ft fleet.Time) {
	for _, p := range a.order {
		for key, r := range p.relays {
			if ft > fleet.Time(int64(r.end.Until)*1000).Add(wire.EndMargin) {
				delete(p.relays, key)
			}
		}
	}
}
