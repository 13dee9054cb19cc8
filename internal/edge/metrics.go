package edge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/admission"
	"vestibule/internal/fleet"
	"vestibule/internal/line"
)

// metrics are what an edge counts. State is read from the engine when it is
// asked for, see collector.
type metrics struct {
	decisions   *prometheus.CounterVec
	letIn       *prometheus.CounterVec
	ratio       *prometheus.HistogramVec
	tickets     *prometheus.CounterVec
	knocks      *prometheus.CounterVec
	holds       prometheus.Histogram
	reports     *prometheus.CounterVec
	grants      *prometheus.CounterVec
	sync        prometheus.Histogram
	requests    *prometheus.CounterVec
	origins     prometheus.Counter
	panics      prometheus.Counter
	quits       prometheus.Counter
	clockJumps  prometheus.Counter
	streams     prometheus.Gauge
	streamEnds  *prometheus.CounterVec
	events      *prometheus.CounterVec
	broadcasts  prometheus.Histogram
	ticketCount [ticketKinds]prometheus.Counter
}

// What a request brought for a ticket.
const (
	ticketNone = iota
	ticketOK
	ticketMalformed
	ticketKey
	ticketSeal
	ticketKinds
)

var ticketKindNames = [ticketKinds]string{"none", "ok", "malformed", "unknown_key", "broken_seal"}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		letIn: vec("vestibule_edge_uncounted_admissions_total", "Newcomers let in without a right because the edge was isolated and the room says on_isolation: open.", "room"),
		ratio: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "vestibule_estimate_ratio", Help: "Waits that are over, as a part of what was told at joining; both lengthened by five seconds.",
			Buckets: []float64{.25, .5, .75, .8, .9, .95, 1, 1.05, 1.1, 1.2, 1.25, 1.5, 2, 4},
		}, []string{"room"}),
		decisions: vec("vestibule_edge_decisions_total", "Requests decided, by room, verdict and reason.", "room", "verdict", "reason"),
		tickets:   vec("vestibule_edge_tickets_total", "Tickets that requests for a room brought, by what became of them.", "result"),
		knocks:    vec("vestibule_edge_knocks_total", "Requests that were held for a right, by how it ended.", "outcome"),
		holds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "vestibule_edge_hold_seconds", Help: "How long requests were held open for a right.",
			Buckets: []float64{.005, .01, .025, .05, .1, .2, .5, 1, 2.5, 5, 10, 25, 60},
		}),
		reports: vec("vestibule_edge_reports_total", "Reports to the regional, by result.", "result"),
		grants:  vec("vestibule_edge_grants_total", "Grants from the regional, by result.", "result"),
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "vestibule_edge_sync_duration_seconds", Help: "Round trip of a report and the grant that answers it.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
		requests:   vec("vestibule_edge_requests_total", "Requests that no room decided, by what became of them.", "result"),
		origins:    counter("vestibule_edge_origin_errors_total", "Requests that an origin did not answer."),
		quits:      counter("vestibule_edge_left_total", "Sessions and places in the line that ended because their visitors said so, or the origin."),
		panics:     counter("vestibule_edge_panics_total", "Requests that ended in a panic; none of them was forwarded after it."),
		clockJumps: counter("vestibule_edge_clock_jumps_total", "Times that the machine was asleep or its wall clock was set forward; the lease was given up."),
	}
	m.streams = prometheus.NewGauge(prometheus.GaugeOpts{Name: "vestibule_edge_event_streams", Help: "Event streams of waiting pages that are open."})
	m.streamEnds = vec("vestibule_edge_event_streams_ended_total", "Event streams that ended, by why.", "reason")
	m.events = vec("vestibule_edge_events_total", "Messages for event streams, by what became of them.", "result")
	m.broadcasts = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "vestibule_edge_event_broadcast_seconds", Help: "How long it took to write one message to every event stream of a room.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	})
	reg.MustRegister(m.streams, m.streamEnds, m.events, m.broadcasts)
	for _, r := range []string{endGone, endSlow, endReplaced, endOver, endStopped} {
		m.streamEnds.WithLabelValues(r)
	}
	for _, r := range []string{"sent", "skipped"} {
		m.events.WithLabelValues(r)
	}
	reg.MustRegister(m.decisions, m.letIn, m.ratio, m.tickets, m.knocks, m.holds, m.reports, m.grants, m.sync, m.requests, m.origins, m.quits, m.panics, m.clockJumps)
	for i, name := range ticketKindNames {
		m.ticketCount[i] = m.tickets.WithLabelValues(name)
	}
	for _, o := range []string{"admitted", "queued", "left"} {
		m.knocks.WithLabelValues(o)
	}
	for _, r := range []string{"sent", "down", "failed"} {
		m.reports.WithLabelValues(r)
	}
	for _, r := range []string{"applied", "invalid"} {
		m.grants.WithLabelValues(r)
	}
	for _, r := range []string{"passed", "unknown_host", "refused_path", "refused_method", "refused_upgrade", "refused_origin", "unknown_room", "left", "away", "away_stale", "refused_away", "not_ready", "stream", "stream_capped", "stream_nobody"} {
		m.requests.WithLabelValues(r)
	}
	return m
}

// roomCounters are the counters of one room, looked up once.
type roomCounters struct {
	decisions [][]prometheus.Counter // by verdict and reason
	letIn     prometheus.Counter
	ratio     prometheus.Observer
}

func (m *metrics) room(name string) roomCounters {
	c := roomCounters{letIn: m.letIn.WithLabelValues(name), ratio: m.ratio.WithLabelValues(name)}
	for _, v := range admission.Verdicts() {
		row := make([]prometheus.Counter, len(admission.Reasons()))
		for _, r := range admission.Reasons() {
			row[r] = m.decisions.WithLabelValues(name, v.String(), r.String())
		}
		c.decisions = append(c.decisions, row)
	}
	return c
}

func (c *roomCounters) count(d *admission.Decision) {
	c.decisions[d.Verdict][d.Reason].Inc()
	if d.Reason == admission.Uncounted {
		c.letIn.Inc()
	}
	if forecast, actual, ok := d.Outcome(); ok {
		c.ratio.Observe(line.Ratio(forecast, actual))
	}
}

// forget drops the counters of a room that is gone.
func (m *metrics) forget(name string) {
	m.decisions.DeletePartialMatch(prometheus.Labels{"room": name})
	m.letIn.DeleteLabelValues(name)
	m.ratio.DeleteLabelValues(name)
}

// collector reads the state of the engine when metrics are asked for.
type collector struct {
	s *Server

	leased, timeError, syncAge                                                    *prometheus.Desc
	credit, rateIdle, held, keep, sessions, estimate, horizon, mu, paused, guests *prometheus.Desc
}

func newCollector(s *Server) *collector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		s:         s,
		leased:    d("vestibule_edge_lease_remaining_seconds", "For how long this edge may still admit without hearing from its regional; 0 without a lease."),
		timeError: d("vestibule_edge_time_error_seconds", "Bound on the error of fleet time as this edge knows it; +Inf before it was ever told."),
		syncAge:   d("vestibule_edge_sync_age_seconds", "Time since the newest grant was applied."),
		credit:    d("vestibule_edge_budget", "Rights of total_active_users in hand and not spent.", "room"),
		rateIdle:  d("vestibule_edge_rate_rights", "Rights of new_users_per_minute in hand and not used in the last 60 s.", "room"),
		keep:      d("vestibule_edge_budget_target", "Idle rights of total_active_users that the regional wants kept here.", "room"),
		held:      d("vestibule_edge_held_requests", "Requests held open for their turn.", "room"),
		sessions:  d("vestibule_edge_sessions", "Tickets stamped here minus tickets renewed away here; its sum over edges is the head-count.", "room"),
		estimate:  d("vestibule_edge_estimate_seconds", "Estimated wait that a newcomer is told; absent without an estimate.", "room"),
		horizon:   d("vestibule_edge_horizon_age_seconds", "How long ago those joined who may enter now; 0 while nobody queues.", "room"),
		guests:    d("vestibule_edge_guest_sessions", "Sessions of other edges that this one renewed since it lost its lease: nobody counts them until it is heard.", "room"),
		paused:    d("vestibule_edge_admissions_paused", "1 while nobody is let in because the origin does not answer, 0 otherwise.", "room"),
		mu:        d("vestibule_edge_admission_rate", "Admissions per second in the whole room, of late.", "room"),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.leased, c.timeError, c.syncAge, c.credit, c.rateIdle, c.keep, c.held, c.sessions, c.estimate, c.horizon, c.mu, c.paused, c.guests,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := c.s
	st := s.Status()
	gauge(c.leased, max(0, st.LeaseRemaining.Seconds()))
	gauge(c.timeError, timeError(st.TimeError))
	gauge(c.syncAge, st.SyncAge.Seconds())
	for name, r := range st.Rooms {
		gauge(c.credit, float64(r.Credit()), name)
		gauge(c.rateIdle, float64(r.RateIdle), name)
		gauge(c.keep, float64(r.Keep), name)
		gauge(c.held, float64(r.Held), name)
		gauge(c.sessions, float64(r.Sessions), name)
		paused := 0.0
		if r.Paused {
			paused = 1
		}
		gauge(c.paused, paused, name)
		gauge(c.guests, float64(r.Guests), name)
		if v := r.View; v != nil {
			if wait, ok := v.Newcomer(); ok {
				gauge(c.estimate, wait.Seconds(), name)
			}
			gauge(c.horizon, v.HorizonAge(st.Time).Seconds(), name)
			gauge(c.mu, v.Mu, name)
		}
	}
}

// timeError turns a bound into seconds; none is infinite.
func timeError(d time.Duration) float64 {
	if d == fleet.Unsynced {
		return inf
	}
	return d.Seconds()
}
