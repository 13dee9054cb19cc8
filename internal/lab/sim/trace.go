package sim

import (
	"fmt"
	"time"
)

// tracef traces a line, with its time.
func (k *kernel) tracef(format string, args ...any) {
	if k.trace != nil {
		k.trace("%10.3f  %s\n", float64(k.now)/1e9, fmt.Sprintf(format, args...))
	}
}

// broken reports whether a promise is broken: the run is over.
func (k *kernel) broken() bool { return k.fault != "" || k.excused != "" }

// fail records a broken promise, the first one only.
func (k *kernel) fail(format string, args ...any) {
	if k.broken() {
		return
	}
	text := fmt.Sprintf("%v: ", time.Duration(k.now)) + fmt.Sprintf(format, args...)
	k.tracef("%s", text)
	if k.trace != nil {
		k.atFault()
	}
	if k.guess {
		k.excused = text
	} else {
		k.fault = text
	}
}

// books traces the ledgers of all nodes.
func (w *World) books() {
	j := w.oracle
	for i, g := range j.globals.all {
		if g.gone {
			continue
		}
		l := g.core.Ledger(j.room)
		j.tracef("coordinator %d, term %d, list %d: limit %d/%d free %d/%d, complete %v", i+1, g.term, g.members, l.Total,
			l.Rate, l.Free, l.RateFree, l.Complete)
		for _, c := range l.Centres {
			j.tracef("  %s: lent %d/%d idle %d/%d keep %d/%d, generation %d, adopted %v, %s", c.Name, c.Held, c.RateHeld, c.Idle,
				c.RateIdle, c.Keep, c.RateKeep, c.Gen, c.Adopted, c.Standing)
		}
	}
	for i, r := range j.fleet.centres.all {
		c := &j.centres[i]
		j.tracef("%s: %d sessions in truth, %d admitted in 60 s", r.name, c.here, c.minute.count(j.now))
		for _, n := range r.procs {
			if n.gone {
				continue
			}
			now := n.clock.read(j.now)
			l, st := n.core.Ledger(j.room), n.core.Status(now)
			j.tracef("  aggregator %d, list %d, %s, follows %d (leased %v): granted %d/%d returned %d/%d free %d/%d credit %d active %d reserved %d, settled %v, declared %v, generation %d, watermark %v ago",
				n.term, n.members, st.Standing, st.Follows.N, st.Leased, l.Granted, l.RateGranted, l.Returned, l.RateReturned,
				l.Free, l.RateFree, l.Credit, l.Active, l.Reserved,
				l.Settled, l.Reconstructed, l.Gen, j.fleetTime().Sub(st.Watermark))
			for _, e := range st.Edges {
				j.tracef("    %s %016x %s, as of %v ago, heard %v ago", e.Name, e.Instance, e.State, j.fleetTime().Sub(e.AsOf),
					now.Sub(e.Heard))
			}
		}
		for _, e := range r.edges {
			now := e.clock.read(j.now)
			l, st := e.core.Ledger(now, j.room), e.core.Status(now)
			j.tracef("  %s %016x, lease epoch %d, follows %d (leased %v, down %v): granted %d/%d spent %d returned %d/%d idle %d, renewed %d of %d, sessions %d, off by %v",
				e.name, st.Instance, st.LeaseEpoch, st.Follows.N, st.Leased, e.down, l.Granted, l.RateGranted, l.Spent, l.Returned,
				l.RateReturned, l.RateIdle,
				l.Renewed, l.RenewCeil, l.Sessions, st.Time.Sub(j.fleetTime()))
		}
		for id, t := range j.tickets {
			if t.home == i {
				j.tracef("  ticket %016x until %v from now", id,
					time.Duration(int64(t.until[i])*1000-int64(j.fleetTime()))*time.Millisecond)
			}
		}
	}
}
