package root

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/share"
)

// lendPasses lends the passes of the open release to data centres with held visitors. Without an open release it
// calls all passes back.
func (p *pool) lendPasses(s *lendingRound) {
	if p.passes.Release == 0 {
		return
	}
	var to []*share.PassLoan
	var of []int
	for i, l := range s.loans {
		if s.how[i] == lendAll {
			to, of = append(to, &l.passes), append(of, i)
		} else if l.passes.Keep > 0 {
			l.passes.Keep, l.dirty = 0, true
		}
	}
	most := uint64(0)
	if p.lendsRelease() {
		most = p.passes.N
	}
	news, push := p.passes.Lend(to, most)
	for k, i := range of {
		s.loans[i].dirty = s.loans[i].dirty || news[k]
		s.homes[i].push = s.homes[i].push || push[k]
	}
}

// callable returns how many people may be called to enter by a pass, where permits of T and of R are as
// many, and the join times of the first of them.
func (p *pool) callable(s *lendingRound) (n int64, joined []fleettime.Time) {
	if !p.lendsRelease() {
		return 0, nil
	}
	all := p.passes.Free()
	var lists [][]fleettime.Time
	for i, l := range s.loans {
		if l.passes.Reset(p.passes.Release); s.how[i] == lendAll {
			all += l.passes.Unused()
			lists = append(lists, l.passes.Joined)
		}
	}
	return min(int64(all), s.supply, s.rate), share.MergeTimes(lists, int(min(all, 1<<20)))
}

// lendsRelease reports whether this coordinator lends the release now: it is marked for its term, and the room is
// paused.
func (p *holdings) lendsRelease() bool {
	r := &p.Release
	return !p.gone && p.Shut && r.ID != 0 && r.ID == p.passes.Release
}

// callStep is how far apart the times are up to which everybody is called.
const callStep = 10_000 // ms

// calledUpTo returns up to which join time visitors may enter by a pass, where n are called.
func calledUpTo(n int64, joined []fleettime.Time, ft fleettime.Time) fleettime.Time {
	switch {
	case n <= 0:
		return 0
	case n <= int64(len(joined)):
		return joined[n-1]
	}
	return ft - ft%callStep + 2*callStep // there are more than are held, or than are named
}
