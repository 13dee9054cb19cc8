package sim

import (
	"fmt"
	"math"
	"time"

	"vestibule/internal/admission"
	"vestibule/internal/fleet"
	"vestibule/internal/slots"
	"vestibule/internal/ticket"
)

// judge knows the truth and holds the nodes to their promises.
type judge struct {
	fault string // the first broken promise

	until  map[uint64]uint32 // newest expiry second of every live ticket
	home   map[uint64]int32
	bucket map[place][]uint64 // tickets by home and expiry second, possibly moved since
	ended  []int64            // per data centre: last second whose tickets have expired
	active int
	byDC   []int
	peak   int

	first        struct{ total, rate int } // limits at the beginning
	total, limit int                       // limits that bind now
	rateSince    int64                     // true time since which nothing is lent beyond a lowered R

	peakRate int
	minute   window   // admissions of the last 60 s
	minutes  []window // the same in every data centre

	waiting int // people who wait, truly
	counted map[*visitor]struct{}
}

// place is one expiry second in one data centre.
type place struct {
	dc     int32
	second int64
}

func (j *judge) begin(w *World) {
	j.until = map[uint64]uint32{}
	j.home = map[uint64]int32{}
	j.bucket = map[place][]uint64{}
	j.ended = make([]int64, w.cfg.Centres)
	j.minutes = make([]window, w.cfg.Centres)
	j.byDC = make([]int, w.cfg.Centres)
	j.first.total, j.first.rate = w.cfg.Total, w.cfg.Rate
	j.total, j.limit = w.cfg.Total, w.cfg.Rate
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
	// Under faults an edge may be wrong by more, as long as it is waited for.
	if w.cfg.Faults.Every == 0 && int64(until)*1000 <= int64(w.fleetTime())-250 {
		j.fail(w, "a ticket that expired at %d was served at %d", until, w.fleetTime()/1000)
	}
	home := w.edges[v.edge].region
	if until > old && int64(until) > j.ended[home] {
		if old == 0 {
			j.active++
			j.home[id] = home
			j.byDC[home]++
		}
		j.until[id] = until
		k := place{home, int64(until)}
		j.bucket[k] = append(j.bucket[k], id)
	}
	if d.Verdict == admission.Admit {
		j.admit(w, w.edges[v.edge].region)
	}
	if j.active > j.peak {
		j.peak = j.active
	}
	if j.active > j.total && until > old {
		j.fail(w, "%d sessions are valid, the limit is %d", j.active, j.total)
	}
}

// window holds the moments of the last 60 s at which something happened.
type window struct {
	at   []int64
	head int
}

func (m *window) add(now int64) {
	if m.head > 4096 && m.head > len(m.at)/2 {
		m.at = m.at[:copy(m.at, m.at[m.head:])]
		m.head = 0
	}
	m.at = append(m.at, now)
}

// count returns how often it happened in the 60 s before now.
func (m *window) count(now int64) int {
	for m.head < len(m.at) && now-m.at[m.head] >= int64(time.Minute) {
		m.head++
	}
	return len(m.at) - m.head
}

// admit notes an admission and checks the window that ends with it.
func (j *judge) admit(w *World, dc int32) {
	j.minute.add(w.now)
	j.minutes[dc].add(w.now)
	n := j.minute.count(w.now)
	j.peakRate = max(j.peakRate, n)
	if n > j.limit {
		j.fail(w, "%d admissions in 60 s, the limit is %d", n, j.limit)
	}
}

// rate returns the admissions of the last 60 s.
func (j *judge) rate(now int64) int { return j.minute.count(now) }

// judgeTick is how often the judge looks at the clocks: well within the guard
// that lies between the end of a session and the freeing of its slot.
const judgeTick = int64(20 * time.Millisecond)

// tick lets tickets expire. A session is over once no edge that visitors are
// sent to would accept its ticket any more.
func (j *judge) tick(w *World) {
	for dc, r := range w.regions {
		t, any := fleet.Time(math.MaxInt64), false
		for _, e := range w.edges {
			if !e.down && e.synced {
				t, any = min(t, e.core.Judges(e.clock.read(w.now), ticket.DCOf(r.name))), true
			}
		}
		if !any {
			t = w.fleetTime()
		}
		j.expire(int32(dc), t.Second())
	}
}

// expire ends the sessions of a data centre whose tickets are valid until
// second s, or before.
func (j *judge) expire(dc int32, s int64) {
	if j.ended[dc] == 0 {
		j.ended[dc] = s
	}
	for ; j.ended[dc] < s; j.ended[dc]++ {
		k := place{dc, j.ended[dc] + 1}
		for _, id := range j.bucket[k] {
			if int64(j.until[id]) == k.second && j.home[id] == dc {
				j.active--
				j.byDC[dc]--
				delete(j.until, id)
				delete(j.home, id)
			}
		}
		delete(j.bucket, k)
	}
}

// settle finds out which limits bind: a lowered one does once what was lent
// beyond it has come back, a raised one at once.
func (j *judge) settle(w *World, root *slots.RootLedger) {
	if !root.Complete || root.Total != uint64(w.cfg.Total) {
		return
	}
	if root.Free >= 0 {
		j.total = w.cfg.Total
	}
	if root.RateFree >= 0 {
		if j.rateSince == 0 {
			j.rateSince = w.now
		}
		if w.now-j.rateSince > int64(time.Minute) {
			j.limit = w.cfg.Rate
		}
	} else {
		j.rateSince = 0
	}
}

// ledger checks what the head-count alone does not show (rights.md 3.9): in
// every data centre true sessions, live credit and what is free fit into what
// it holds (I3), and all that is held and free fits into the limits (I4). Books
// that are being rebuilt after a takeover are judged when they are complete.
func (j *judge) ledger(w *World) {
	g := w.newest()
	root := g.core.Ledger(w.room)
	if !g.gone {
		j.settle(w, &root)
	}
	sum, rsum := max(0, root.Free), max(0, root.RateFree)
	known := !g.gone
	for i, r := range w.regions {
		n := r.newest()
		l := n.core.Ledger(w.room)
		if n.gone || !l.Settled {
			known = false
			continue
		}
		known = known && !l.Declared
		if w.cfg.Cap && !n.core.Status(n.clock.read(w.now)).Leased {
			known = false // global may have given its rights to others
		}
		held := int64(l.Granted) - int64(l.Returned)
		rheld := int64(l.RateGranted) - int64(l.RateReturned)
		sum += held
		rsum += rheld
		credit, rcredit := int64(0), int64(0)
		for _, e := range w.edges[i*w.cfg.Edges : (i+1)*w.cfg.Edges] {
			now := e.clock.read(w.now)
			if e.down || !e.core.Status(now).Leased {
				continue // it cannot spend
			}
			n := e.core.Ledger(now, w.room)
			credit += int64(n.Credit())
			rcredit += int64(n.RateIdle)
		}
		if total := int64(j.byDC[i]) + credit + max(0, l.Free); total > held {
			j.fail(w, "%s: %d sessions + %d credit + %d free > %d held (counted %d, of which presumed %d)", r.name, j.byDC[i], credit, l.Free, held, l.Active, l.Presumed)
		}
		used := int64(j.minutes[i].count(w.now))
		if total := used + rcredit + max(0, l.RateFree); total > rheld {
			j.fail(w, "%s: %d rights of R used in 60 s + %d idle at edges + %d free > %d held", r.name, used, rcredit, l.RateFree, rheld)
		}
	}
	if known && (sum > int64(j.total) || rsum > int64(j.limit)) {
		j.fail(w, "held and free sum to %d of %d and %d of %d", sum, j.total, rsum, j.limit)
	}
}
