package slots

import (
	"math"
	"slices"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// bearings are how a data centre stands at one moment, as far as that decides about its
// rights in every room. Nothing in them changes while the rooms are gone through.
//
// Invariant: nothing is free while it is not known what the data centre holds, or what
// edges of a predecessor counted.
type bearings struct {
	blank      bool // what the data centre holds is not known
	recovering bool // sessions may exist that nobody has told us of yet
	gathering  bool // edges that fell silent together are on their way back
	isolated   bool // global was not heard for long
	deaf       bool // global owes an answer: what is given back may be of no use to anybody

	leased bool   // global reckons with the data centre going on
	closed bool   // the data centre is to let nobody in
	life   uint32 // longest life of a ticket that is stored

	term wire.Term // of the aggregator
}

// bearings returns how the data centre stands at now.
func (a *Aggregator) bearings(now fleet.Mono) *bearings {
	u := &a.up
	return &bearings{
		blank: u.blank, recovering: a.roster.recovering(), gathering: a.lives.gathering, isolated: u.isolated(now), deaf: u.unanswered(now, deaf),
		leased: u.leased(now), closed: a.member.standing(u) != wire.Listed, life: a.stored.life, term: a.cfg.Term,
	}
}

// unknown reports whether it is not known what is held or what counts.
func (at *bearings) unknown() bool { return at.blank || at.recovering }

// free returns the rights of T and of R that neither a session nor an edge holds. Below 0
// more is reckoned with than is held: a debt, which drains.
func (at *bearings) free(b *books) (t, rate int64) {
	if at.unknown() {
		return 0, 0
	}
	if t, rate = b.reckoned(); at.gathering {
		t = 0
	}
	return t, rate
}

// keep returns how many idle rights the data centre is to have: all of a room
// that went are to go back, and none while global cannot hear of it.
func (at *bearings) keep(b *books) (keep, rate int64) {
	switch {
	case b.gone:
		return 0, 0
	case at.isolated, at.deaf:
		return math.MaxInt64, math.MaxInt64
	}
	return int64(b.loan.keep), int64(b.loan.rateKeep)
}

// surplus returns how many free rights of T and of R are to go back; none where
// that is not positive.
func (at *bearings) surplus(b *books) (n, rate int64) {
	if at.unknown() {
		return 0, 0
	}
	keep, rateKeep := at.keep(b)
	if b.loan.reconstructed && !mutant.On(mutant.ReconstructedUsed) {
		keep, rateKeep = 0, 0
	}
	free, rfree := at.free(b)
	idle, ridle := b.idle()
	return min(free, free+idle-keep), min(rfree, rfree+ridle-rateKeep)
}

// divide decides what every edge may hold in a room. It raises granted and renewCeil, and
// states through keep what is to come back; it never takes. It reports whether global is to
// hear of the room soon. ft is fleet time.
func (at *bearings) divide(now fleet.Mono, ft fleet.Time, b *books, edges []*edge) (hurry bool) {
	to := make([]*account, 0, len(edges))
	for _, e := range edges {
		if e.state == alive {
			to = append(to, b.account(e))
		}
	}
	if len(to) == 0 {
		return false
	}
	life := min(b.life.secs, at.life)
	if b.stop(at.leased, !at.blank); b.stopped || b.gone {
		if b.stopped {
			life = 0
		}
		for _, acc := range to {
			acc.set(0, 0, life)
		}
		return false
	}
	if at.unknown() {
		// Renewals add no session. But an edge that is new may not know yet which
		// sessions ended: those that were there before tell.
		if awaited := slices.ContainsFunc(edges, func(e *edge) bool { return e.state == awaiting }); awaited {
			to = slices.DeleteFunc(to, func(acc *account) bool { return !acc.edge.recovered })
		}
		b.allowRenewals(to, life)
		return false
	}
	d := division{reconstructed: b.loan.reconstructed, closed: at.closed}
	d.free, d.rateFree = at.free(b)
	d.keep, d.rateKeep = at.keep(b)
	v := at.view(now, ft, b, d.free, d.rateFree)
	if d.horizon = v.Horizon; b.Shut {
		d.horizon = v.Called
	}
	d.claims = make([]claim, 0, len(to))
	for _, acc := range to {
		d.claims = append(d.claims, claim{
			idle: acc.idle(), rateIdle: acc.rateIdleNow(),
			want: acc.want, heldJoined: acc.heldJoined, heldPeople: acc.heldPeople, movers: acc.movers,
		})
	}
	push := d.divide()
	b.starved, b.unrated = d.starved, d.unrated
	for i, acc := range to {
		t, r := d.claims[i].gifts[ofT], d.claims[i].gifts[ofR]
		acc.raise(&acc.granted, uint64(t.give))
		acc.raise(&acc.rateGranted, uint64(r.give))
		acc.set(uint64(t.keep), uint64(r.keep), acc.life)
		acc.edge.push = acc.edge.push || push[i]
	}
	back := b.lendPasses(to, !at.closed)
	b.allowRenewals(to, life)
	b.dirty = b.dirty || d.knock // knock at global, or bring what it waits for
	return d.knock || back
}

var openView = wire.View{Horizon: line.Open, Park: line.Open}

// view returns the view that rights are divided by: global's, or the data centre's own
// where global has not been heard for long.
func (at *bearings) view(now fleet.Mono, ft fleet.Time, b *books, free, rateFree int64) *wire.View {
	if b.view == nil {
		return &openView
	}
	if at.isolated {
		b.ownView(now, ft, at.term, free, rateFree)
	}
	return b.view
}

// looked is when it was last looked in every room what to give back.
type looked struct {
	at    bearings
	edges []edgeBearing
}

type edgeBearing struct {
	edge  *edge
	state edgeState
}

// turned reports whether the bearings changed since the last call: then every room
// is looked at, else those whose books changed.
func (l *looked) turned(is *bearings, edges []*edge) bool {
	was := &l.at
	if is.blank == was.blank && is.recovering == was.recovering && is.gathering == was.gathering && is.isolated == was.isolated && is.deaf == was.deaf &&
		slices.EqualFunc(l.edges, edges, func(b edgeBearing, e *edge) bool { return b.edge == e && b.state == e.state }) {
		return false
	}
	l.at, l.edges = *is, l.edges[:0]
	for _, e := range edges {
		l.edges = append(l.edges, edgeBearing{e, e.state})
	}
	return true
}
