package admission

import (
	"math"
)

// mayStamp reports whether the room may stamp another ticket. If not, or if only a few more, a snapshot is due.
func (r *roomState) mayStamp(m moment) bool {
	s, c := &r.edge.snapshots, &r.ceiling
	if !s.enforced {
		return true
	}
	may := c.stamped < c.most && r.life.full <= c.life && m.second() <= s.until
	if !may {
		s.wanted = true
	}
	return may
}

// stampable returns how many tickets the room may stamp under the present snapshot; -1 without a bound.
func (r *roomState) stampable() int64 {
	c := &r.ceiling
	switch {
	case !r.edge.snapshots.enforced || c.most == math.MaxUint64:
		return -1
	case r.life.full > c.life:
		return 0
	}
	return int64(c.most - min(c.most, c.stamped))
}

// stamped counts a stamped ticket.
func (r *roomState) stamped() {
	s, c := &r.edge.snapshots, &r.ceiling
	c.stamped++
	c.stale = true
	if s.enforced && c.stamped+(c.most-min(c.most, c.at))/2 >= c.most {
		s.wanted = true
	}
}

// likely returns how many tickets the room may stamp before the next snapshot, beyond those that it stamped since the
// one before: a part of its unspent permits, for a burst, and one for every held visitor.
func (r *roomState) likely() uint64 {
	credit := r.permits.credit()
	return ceilingLeast + credit/4 + min(uint64(len(r.held.visits)), credit)
}

// foresee brings the next snapshot forward if a grant allows the room far more than the ceilings do.
func (r *roomState) foresee() {
	s, c := &r.edge.snapshots, &r.ceiling
	if s.enforced && (r.life.full > c.life || r.likely() > 2*(c.most-min(c.most, c.stamped))) {
		s.wanted = true
	}
}
