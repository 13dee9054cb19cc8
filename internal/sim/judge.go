package sim

import (
	"fmt"
	"time"

	"vestibule/internal/admission"
)

// judge knows the truth and holds the nodes to their promises.
type judge struct {
	fault string // the first broken promise

	until  map[uint64]uint32 // newest expiry second of every live ticket
	home   map[uint64]int32
	bucket map[int64][]uint64 // tickets by expiry second, possibly moved since
	active int
	byDC   []int
	peak   int

	peakRate   int
	minute     []int64 // moments of admissions in the last 60 s
	minuteHead int

	waiting int // people who wait, truly
	counted map[*visitor]struct{}
}

func (j *judge) begin(w *World) {
	j.until = map[uint64]uint32{}
	j.home = map[uint64]int32{}
	j.bucket = map[int64][]uint64{}
	j.byDC = make([]int, w.cfg.Centres)
	j.counted = map[*visitor]struct{}{}
}

func (j *judge) broken() bool { return j.fault != "" }

func (j *judge) fail(w *World, format string, args ...any) {
	if j.fault == "" {
		j.fault = fmt.Sprintf("%v: ", time.Duration(w.now)) + fmt.Sprintf(format, args...)
	}
}

// waits notes that a visitor begins to wait or stops.
func (j *judge) waits(v *visitor, yes bool) {
	if yes == v.queued {
		return
	}
	v.queued = yes
	if yes {
		j.waiting++
	} else {
		j.waiting--
	}
}

// issued notes that a visitor was let in with the ticket of d.
func (j *judge) issued(w *World, v *visitor, d admission.Decision) {
	j.waits(v, false)
	id, until := d.Ticket.ID, d.Ticket.Until
	old := j.until[id]
	if int64(until)*1000 <= int64(w.fleetTime())-250 {
		j.fail(w, "a ticket that expired at %d was served at %d", until, w.fleetTime()/1000)
	}
	// An edge whose clock is behind may serve for a moment longer: a session
	// that has ended by true time is none any more.
	if until > old && int64(until)*1000 > int64(w.fleetTime()) {
		if old == 0 {
			j.active++
			home := v.edge / int32(w.cfg.Edges)
			j.home[id] = home
			j.byDC[home]++
		}
		j.until[id] = until
		j.bucket[int64(until)] = append(j.bucket[int64(until)], id)
	}
	if d.Verdict == admission.Admit {
		j.admit(w)
	}
	if j.active > j.peak {
		j.peak = j.active
		if j.active > w.cfg.Total {
			j.fail(w, "%d sessions are valid, the limit is %d", j.active, w.cfg.Total)
		}
	}
}

// admit notes an admission and checks the window that ends with it.
func (j *judge) admit(w *World) {
	window := int64(time.Minute)
	for j.minuteHead < len(j.minute) && w.now-j.minute[j.minuteHead] >= window {
		j.minuteHead++
	}
	if j.minuteHead > 4096 && j.minuteHead > len(j.minute)/2 {
		j.minute = j.minute[:copy(j.minute, j.minute[j.minuteHead:])]
		j.minuteHead = 0
	}
	j.minute = append(j.minute, w.now)
	n := len(j.minute) - j.minuteHead
	j.peakRate = max(j.peakRate, n)
	if n > w.cfg.Rate {
		j.fail(w, "%d admissions in 60 s, the limit is %d", n, w.cfg.Rate)
	}
}

// rate returns the admissions of the last 60 s.
func (j *judge) rate(now int64) int {
	for j.minuteHead < len(j.minute) && now-j.minute[j.minuteHead] >= int64(time.Minute) {
		j.minuteHead++
	}
	return len(j.minute) - j.minuteHead
}

// second lets the tickets of this second expire and checks the ledger.
func (j *judge) second(w *World) {
	s := w.fleetTime().Second()
	for _, id := range j.bucket[s] {
		if int64(j.until[id]) == s {
			j.active--
			j.byDC[j.home[id]]--
			delete(j.until, id)
			delete(j.home, id)
		}
	}
	delete(j.bucket, s)
	j.ledger(w)
}

// ledger checks what the head-count alone does not show: in every data centre
// true sessions, live credit and what is free fit into what it holds, and all
// that is held and free fits into the limits.
func (j *judge) ledger(w *World) {
	root := w.global.core.Ledger(w.room)
	sum, rsum := max(0, root.Free), max(0, root.RateFree)
	for i, r := range w.regions {
		l := r.core.Ledger(w.room)
		held := int64(l.Granted) - int64(l.Returned)
		rheld := int64(l.RateGranted) - int64(l.RateReturned)
		sum += held
		rsum += rheld
		credit, rcredit := int64(0), int64(0)
		for _, e := range w.edges[i*w.cfg.Edges : (i+1)*w.cfg.Edges] {
			n := e.core.Ledger(e.clock.read(w.now), w.room)
			credit += int64(n.Credit())
			rcredit += int64(n.RateGranted - n.RateReturned)
		}
		if total := int64(j.byDC[i]) + credit + max(0, l.Free); total > held {
			j.fail(w, "%s: %d sessions + %d credit + %d free > %d held (counted %d, of which presumed %d)", r.name, j.byDC[i], credit, l.Free, held, l.Active, l.Presumed)
		}
		if total := rcredit + max(0, l.RateFree); total > rheld {
			j.fail(w, "%s: %d rate rights at edges + %d free > %d held", r.name, rcredit, l.RateFree, rheld)
		}
	}
	if sum > int64(w.cfg.Total) || rsum > int64(w.cfg.Rate) {
		j.fail(w, "held and free sum to %d of %d and %d of %d", sum, w.cfg.Total, rsum, w.cfg.Rate)
	}
}
