package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/admission"
)

// meters measure the quality of a run; the oracle checks its correctness.
type meters struct {
	*kernel
	doc    *roomDoc
	oracle *oracle

	counts
	past            int // requests that bypassed the room by a rule
	useT, useR, use float64
	saturated       int     // samples while visitors waited
	joined          []int64 // join times in the order of admission, while visitors waited
	waits           []float64
	back            []float64 // waits of subscribers since they came back
	robots          int       // of the admitted visitors
	early           int       // waiting pages within session_duration of the visitor's last page
	told            float64   // sum of displayed estimates
	people, real    float64   // displayed and true numbers of waiting visitors, summed
	tellings        int
	words           *Words // may be nil
	hears           bool   // newcomers are measured by words
}

// counts are of visitors.
type counts struct {
	Arrived, GaveUp int
	Inside          int // admitted
	Queued          int
	QueuedFree      int // queued while permits were free
}

func (m *meters) begin() {
	*m = meters{kernel: m.kernel, doc: m.doc, oracle: m.oracle}
}

// putOut records that an active visitor has to wait.
func (m *meters) putOut(v *visitor) {
	if v.heard != nil {
		v.heard = &Hearing{}
	}
	if m.now-v.served < int64(m.cfg.Session) {
		m.early++
	}
}

// entered records an admission.
func (m *meters) entered(v *visitor, d admission.Decision) {
	m.Inside++
	if v.robot {
		m.robots++
		return
	}
	wait := float64(m.now-v.came) / 1e9
	if v.kept { // came is when it came back
		m.back = append(m.back, wait)
		return
	}
	if v.queued || len(m.waits) > 0 {
		m.waits = append(m.waits, wait)
	}
	if v.heard != nil {
		m.words.Entered(v.heard, d.Ticket.Place(), time.Duration(v.came), time.Duration(m.now))
	}
	if m.oracle.waiting > 0 {
		m.joined = append(m.joined, int64(d.Ticket.Place()))
	}
}

// orders returns, per admission while visitors waited, the distance in seconds of the join time from that at the same
// position in strict order of arrival.
func (m *meters) orders() []float64 {
	fair := slices.Clone(m.joined)
	slices.Sort(fair)
	out := make([]float64, len(fair))
	for i, t := range fair {
		out[i] = math.Abs(float64(m.joined[i]-t)) / 1e3
	}
	return out
}

// waitingPage records a waiting page.
func (m *meters) waitingPage(v *visitor, d admission.Decision) {
	if d.Known && !v.robot {
		m.told += d.Wait.Seconds()
		m.people += float64(d.Waiting)
		m.real += float64(m.oracle.waiting)
		m.tellings++
	}
	if v.heard != nil {
		v.heard.Hear(Telling{
			At: time.Duration(m.now), Answer: true, Known: d.Known, Wait: d.Wait, Low: d.Low, High: d.High,
			Ahead: d.Ahead, Counting: d.Counting || m.doc.undrawn(m.oracle.fleetTime(), &d.Ticket), Next: d.Next,
			Longer: d.Longer, Quartiles: d.Quartiles,
		})
	}
	if v.queued {
		return
	}
	m.Queued++
	free := min(m.cfg.Total-len(m.oracle.tickets), m.cfg.Rate-m.oracle.rate(m.now))
	if free > m.oracle.waiting {
		m.QueuedFree++
	}
}

// sampleGap is the interval of samples of the use of the limits. Sessions end at whole seconds of fleet time, so
// samples must not be in step with them.
const sampleGap = 1100 * time.Millisecond

// sample samples the use of the limits.
func (m *meters) sample() {
	m.in(sampleGap, m.sample)
	if m.oracle.waiting < min(100, m.cfg.Total) {
		return
	}
	m.oracle.tick()
	m.saturated++
	total, rate := m.oracle.use()
	m.useT, m.useR, m.use = m.useT+total, m.useR+rate, m.use+max(total, rate)
}

// Result is the result of a run.
type Result struct {
	Config  Config
	Fault   string // the first broken promise, "" for none
	Excused string // the same, in a world with a wrong clock: see the guarantees
	Events  uint64
	Elapsed time.Duration // simulated time

	counts
	Peak, PeakRate     int
	UseT, UseR         float64 // mean use while visitors waited; 0 if none did
	Use                float64 // of the effective limit
	OrderP50, OrderP99 float64 // seconds
	WaitP50, WaitP99   float64
	Recovery           time.Duration // from the last fault until every edge had a lease; 0 without faults
}

func (w *World) result() *Result {
	m := w.meters
	r := &Result{
		Config: w.cfg, Fault: w.fault, Excused: w.excused, Events: w.events, Elapsed: time.Duration(w.now),
		counts: m.counts, Peak: w.oracle.peak, PeakRate: w.oracle.peakRate,
	}
	if w.recovery.recovered > 0 {
		r.Recovery = time.Duration(w.recovery.recovered - w.recovery.began)
	}
	if m.saturated > 0 {
		n := float64(m.saturated)
		r.UseT, r.UseR, r.Use = m.useT/n, m.useR/n, m.use/n
	}
	orders := m.orders()
	r.OrderP50, r.OrderP99 = quantile(orders, 0.5), quantile(orders, 0.99)
	r.WaitP50, r.WaitP99 = quantile(m.waits, 0.5), quantile(m.waits, 0.99)
	return r
}

func quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Clone(xs)
	slices.Sort(xs)
	return xs[min(len(xs)-1, int(q*float64(len(xs))))]
}

// Line returns the result as one line, for runs over many seeds.
func (r *Result) Line() string {
	verdict := "held"
	if r.Fault != "" {
		verdict = "BROKEN " + r.Fault
	} else if r.Excused != "" {
		verdict = "by a wrong clock: " + r.Excused
	}
	return fmt.Sprintf("seed %-6d peak %d/%d rate %d/%d use %.4f queued-while-free %.4f%% order %.2f/%.2f s %s",
		r.Config.Seed, r.Peak, r.Config.Total, r.PeakRate, r.Config.Rate, r.Use,
		100*float64(r.QueuedFree)/float64(max(r.Arrived, 1)), r.OrderP50, r.OrderP99, verdict)
}

// Table returns the result as a table; equal runs give equal tables.
func (r *Result) Table() string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-34s %s\n", name, fmt.Sprintf(format, args...))
	}
	c := r.Config
	row("experiment", "seed %d, %d data centres x %d edges, %v, T %d, R %d/min, session %v", c.Seed, c.Centres, c.Edges,
		c.Length, c.Total, c.Rate, c.Session)
	row("visitors", "%d came, %d entered, %d queued, %d gave up", r.Arrived, r.Inside, r.Queued, r.GaveUp)
	row("peak sessions / T", "%d / %d = %.4f", r.Peak, c.Total, float64(r.Peak)/float64(c.Total))
	row("peak admissions in 60 s / R", "%d / %d = %.4f", r.PeakRate, c.Rate, float64(r.PeakRate)/float64(c.Rate))
	row("use of T while people waited", "%.4f", r.UseT)
	row("use of R while people waited", "%.4f", r.UseR)
	row("use of the limit that bound", "%.4f", r.Use)
	row("queued while slots were free", "%d of %d = %.4f %%", r.QueuedFree, r.Arrived,
		100*float64(r.QueuedFree)/float64(max(r.Arrived, 1)))
	row("order error p50 / p99", "%.2f s / %.2f s", r.OrderP50, r.OrderP99)
	row("wait p50 / p99", "%.1f s / %.1f s", r.WaitP50, r.WaitP99)
	row("simulated", "%v, %d events", r.Elapsed.Round(time.Second), r.Events)
	verdict := "all held"
	if r.Fault != "" {
		verdict = "BROKEN " + r.Fault
	}
	if r.Excused != "" {
		verdict = "not given: nobody knew the time any more, and a coordinator's clock was wrong; " + r.Excused
	}
	row("promises", "%s", verdict)
	return b.String()
}
