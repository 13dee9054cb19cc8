package gate

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/node"
)

// metrics are the counters of a gate. The collector reads the engine's state at scrape time.
type metrics struct {
	ratio       *prometheus.HistogramVec
	held        [holdEnds]prometheus.Counter
	holds       prometheus.Histogram
	requests    *prometheus.CounterVec // by result
	quits       prometheus.Counter
	clockJumps  prometheus.Counter
	unread      prometheus.Counter // X-Forwarded-For of trusted proxies
	ticketCount [ticketKinds]prometheus.Counter
	waiting     [numKinds]prometheus.Counter // waiting answers

	traffics traffics

	series node.RoomSeries
	other  counts // of rooms without their own series
	mu     sync.Mutex
	rooms  map[string]*roomCounters

	ruleSeries int           // rules with their own series
	otherRules atomic.Uint64 // of all other rules
}

// Results for the ticket of a request.
const (
	ticketNone = iota
	ticketOK
	ticketMalformed
	ticketKey
	ticketOldKey
	ticketSeal
	ticketKinds
)

var ticketKindNames = [ticketKinds]string{"none", "ok", "malformed", "unknown_key", "dropped_key", "broken_seal"}

// Ends of a held request.
const (
	holdAdmitted = iota
	holdQueued
	holdLeft
	holdEnds
)

var holdEndNames = [holdEnds]string{"admitted", "queued", "left"}

func newMetrics(reg prometheus.Registerer) *metrics {
	meter := node.Meter{Registerer: reg}
	m := &metrics{
		rooms: map[string]*roomCounters{}, traffics: traffics{rooms: map[room.ID]*traffic{}},
		ratio: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "vestibule_estimate_ratio", Help: "Actual wait divided by its forecast at joining; both plus five seconds.",
			Buckets: []float64{.25, .5, .75, .8, .9, .95, 1, 1.05, 1.1, 1.2, 1.25, 1.5, 2, 4},
		}, []string{"room"}),
		holds: meter.Histogram("vestibule_edge_hold_seconds", "How long requests were held open for a permit.",
			.005, .01, .025, .05, .1, .2, .5, 1, 2.5, 5, 10, 25, 60),
		requests:   meter.Counters("vestibule_edge_requests_total", "Requests outside of the rooms' decisions, by result.", "result", results...),
		quits:      meter.Counter("vestibule_edge_left_total", "Sessions and places in the line that ended because their visitors said so, or the origin."),
		clockJumps: meter.Counter("vestibule_edge_clock_jumps_total", "Times that the machine was asleep or its wall clock was set forward; the lease was given up."),
		unread:     meter.Counter("vestibule_edge_forwarded_unread_total", "Requests of trusted proxies whose X-Forwarded-For does not tell the visitor's address."),
	}
	tickets := meter.Counters("vestibule_edge_tickets_total", "Tickets of requests for a room, by result.", "result")
	held := meter.Counters("vestibule_edge_held_requests_total", "Requests that were held for a permit, by how it ended.", "outcome")
	waiting := meter.Counters("vestibule_edge_waiting_answers_total", "Answers of waiting rooms in place of the site's, by the kind of the request.", "kind")
	reg.MustRegister(m.ratio)
	m.other.label = node.OtherRooms
	for i, name := range ticketKindNames {
		m.ticketCount[i] = tickets.WithLabelValues(name)
	}
	for i, name := range kindNames {
		m.waiting[i] = waiting.WithLabelValues(name)
	}
	for i, name := range holdEndNames {
		m.held[i] = held.WithLabelValues(name)
	}
	return m
}

// count counts a request that no room decides. why is one of results.
func (m *metrics) count(why string) { m.requests.WithLabelValues(why).Inc() }

// results are the labels for requests that no room decides.
var results = []string{
	"passed", "to_tls", "unknown_host", "uncovered_host", "loop", "refused_path", "refused_method", "refused_upgrade", "refused_expect", "refused_origin", "refused_front", "unknown_room", "left", "away", "away_stale",
	"refused_away", "not_ready", "ticket_unread", "time_unknown", "stream", "stream_capped", "stream_nobody", "proof_keys", "draw", "no_draw", "language", "verified", "unverified", "no_proofs",
	"preflight", "preflight_site", "preflight_refused", "preflight_limited",
	"bypassed", "client", "push", "push_confirmed", "push_ended", "push_crowded_out", "push_refused",
}

// roomCounters are the counters of one room. Before its first decided request they have no series and use no
// memory.
type roomCounters struct {
	m    *metrics
	name string
	own  atomic.Pointer[counts]

	subscribers subscribers // to notifications

	rules map[string]*atomic.Uint64 // requests bypassed by each rule, by ID; under m.mu
}

// counts are the values under one label.
type counts struct {
	label     string
	decisions [admission.NumVerdicts][admission.NumReasons]atomic.Uint64
	letIn     atomic.Uint64
	refused   atomic.Uint64 // renewals
	copied    atomic.Uint64
	elsewhere atomic.Uint64
}

// room returns the counters of a room, the same while the room exists.
func (m *metrics) room(name string) *roomCounters {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.rooms[name]
	if c == nil {
		c = &roomCounters{m: m, name: name}
		m.rooms[name] = c
	}
	return c
}

func (c *roomCounters) count(d *admission.Decision) {
	own := c.own.Load()
	if own == nil {
		own = c.open()
	}
	own.decisions[d.Verdict][d.Reason].Add(1)
	if d.Reason == admission.Uncounted {
		own.letIn.Add(1)
	}
	if d.Unrenewed {
		own.refused.Add(1)
	}
	switch d.Fresh {
	case admission.Copied:
		own.copied.Add(1)
	case admission.Elsewhere:
		own.elsewhere.Add(1)
	case admission.Kept, admission.Newcomer, admission.Expired, admission.Lost, admission.Void, admission.Gone,
		admission.Underway:
	}
	if forecast, actual, ok := d.Outcome(); ok {
		c.observe(own, estimate.Ratio(forecast, actual))
	}
}

// open begins the series of a room. The counts of a removed room are discarded.
func (c *roomCounters) open() *counts {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if own := c.own.Load(); own != nil {
		return own
	}
	own := &counts{label: c.name}
	if c.m.rooms[c.name] == c && c.m.series.Label(c.name, true) == node.OtherRooms {
		own = &c.m.other
	}
	c.own.Store(own)
	return own
}

func (c *roomCounters) observe(own *counts, ratio float64) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.m.rooms[c.name] == c {
		c.m.ratio.WithLabelValues(own.label).Observe(ratio)
	}
}

// keep drops the counters of rooms that are not in set.
func (m *metrics) keep(set *room.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.rooms {
		if set.ByName(name) == nil {
			m.ruleSeries -= len(m.rooms[name].rules)
			delete(m.rooms, name)
			m.ratio.DeleteLabelValues(name)
		}
	}
	m.series.Keep(set)
}

// counted returns all counts, one entry per label.
func (m *metrics) counted() []*counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []*counts{&m.other}
	for _, c := range m.rooms {
		if own := c.own.Load(); own != nil && own != &m.other {
			out = append(out, own)
		}
	}
	return out
}

// collector reads the state of the engine at scrape time.
type collector struct {
	node.Descs
	g *Gate

	decisions, letIn, refused, copied, elsewhere                                 *prometheus.Desc
	ruleMatches, deadRules                                                       *prometheus.Desc
	leased, timeError, syncAge                                                   *prometheus.Desc
	credit, rateIdle, held, keep, sessions, estimate, cutoff, mu, paused, guests *prometheus.Desc
	stopped                                                                      *prometheus.Desc
}

func newCollector(g *Gate) *collector {
	var descs node.Descs
	d := descs.Of
	c := &collector{
		g:           g,
		decisions:   d("vestibule_edge_decisions_total", "Requests decided, by room, verdict and reason.", "room", "verdict", "reason"),
		letIn:       d("vestibule_edge_uncounted_admissions_total", "Newcomers admitted without a permit by an isolated edge (on_isolation: open).", "room"),
		refused:     d("vestibule_edge_renewals_refused_total", "Requests of sessions whose renewal was due and not allowed: the ticket stays as it is.", "room"),
		copied:      d("vestibule_edge_copied_tickets_total", "Requests with a copied session ticket that were treated as newcomers.", "room"),
		elsewhere:   d("vestibule_edge_elsewhere_tickets_total", "Requests with a session's ticket from another network than it is bound to (ticket_binding); each was a newcomer's.", "room"),
		ruleMatches: d("vestibule_edge_rule_matches_total", "Requests that a rule let past a room, by the id of the rule; beyond the first 1,000 rules together.", "room", "rule"),
		deadRules:   d("vestibule_edge_rules_unusable", "Enabled rules that match nothing at this edge because a file is missing."),
		leased:      d("vestibule_edge_lease_remaining_seconds", "For how long this edge may still admit without hearing from its regional; 0 without a lease."),
		timeError:   d("vestibule_edge_time_error_seconds", "Uncertainty of fleet time at this edge; +Inf while unknown."),
		syncAge:     d("vestibule_edge_sync_age_seconds", "Time since the newest grant was applied."),
		credit:      d("vestibule_edge_permits", "Permits of total_active_users in hand and not spent.", "room"),
		rateIdle:    d("vestibule_edge_rate_permits", "Permits of new_users_per_minute in hand and not used in the last 60 s.", "room"),
		keep:        d("vestibule_edge_idle_target", "Idle permits of total_active_users that the regional wants kept here.", "room"),
		held:        d("vestibule_edge_held_requests", "Requests held open for their turn.", "room"),
		sessions:    d("vestibule_edge_sessions", "Tickets stamped here minus tickets renewed away here, of sessions that may be valid. Below zero where they went on elsewhere. Summed over edges the head-count, without what ended processes stamped.", "room"),
		estimate:    d("vestibule_edge_estimate_seconds", "Estimated wait of a newcomer; absent without an estimate.", "room"),
		cutoff:      d("vestibule_edge_cutoff_age_seconds", "Age of the newest join time that may enter; 0 without a queue.", "room"),
		guests:      d("vestibule_edge_guest_sessions", "Sessions of other edges renewed here without a lease: not counted until this edge reports.", "room"),
		paused:      d("vestibule_edge_admissions_paused", "1 while admissions are stopped because the origin does not respond, 0 otherwise.", "room"),
		stopped:     d("vestibule_edge_admissions_stopped", "1 while nobody enters here, by room (empty for all rooms) and reason; absent while visitors enter.", "room", "reason"),
		mu:          d("vestibule_edge_admission_rate", "Admissions per second in the whole room, of late.", "room"),
	}
	c.Descs = descs
	return c
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	st := c.g.Status()
	gauge(c.leased, max(0, st.LeaseRemaining.Seconds()))
	gauge(c.timeError, timeError(st.TimeError))
	gauge(c.syncAge, st.SyncAge.Seconds())
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		if n > 0 {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
		}
	}
	for _, own := range c.g.Engine.metrics.counted() {
		for _, v := range admission.Verdicts() {
			for _, r := range admission.Reasons() {
				counter(c.decisions, own.decisions[v][r].Load(), own.label, v.String(), r.String())
			}
		}
		counter(c.letIn, own.letIn.Load(), own.label)
		counter(c.refused, own.refused.Load(), own.label)
		counter(c.copied, own.copied.Load(), own.label)
		counter(c.elsewhere, own.elsewhere.Load(), own.label)
	}
	gauge(c.deadRules, float64(c.g.rooms.Load().deadRules))
	for _, r := range c.g.Engine.metrics.ruleCounts() {
		counter(c.ruleMatches, r.n, c.g.Engine.metrics.series.Label(r.room, true), r.rule)
	}
	rooms := node.NewRoomMetrics(ch)
	defer rooms.Close()
	for _, s := range c.g.Stops() {
		if s.Room == "" {
			gauge(c.stopped, 1, "", s.Reason.String())
			continue
		}
		rooms.Gauge(c.stopped, 1, c.g.Engine.metrics.series.Label(s.Room, true), s.Reason.String())
	}
	for name, r := range st.Rooms {
		v := r.View
		busy := r.Sessions != 0 || r.Held > 0 || r.Waiting != 0 || r.Guests > 0 || r.Paused || (v != nil && v.Queues())
		name = c.g.Engine.metrics.series.Label(name, busy)
		rooms.Gauge(c.credit, float64(r.Credit()), name)
		rooms.Gauge(c.rateIdle, float64(r.RateIdle), name)
		rooms.Gauge(c.keep, float64(r.Keep), name)
		rooms.Gauge(c.held, float64(r.Held), name)
		rooms.Gauge(c.sessions, float64(r.Sessions), name)
		paused := 0.0
		if r.Paused {
			paused = 1
		}
		rooms.Gauge(c.paused, paused, name)
		rooms.Gauge(c.guests, float64(r.Guests), name)
		if v != nil {
			if wait, ok := v.Newcomer(); ok {
				rooms.Own(c.estimate, wait.Seconds(), name)
			}
			rooms.Own(c.cutoff, v.CutoffAge(st.Time).Seconds(), name)
			rooms.Gauge(c.mu, v.Mu, name)
		}
	}
}

// timeError converts the clock uncertainty to seconds; it is infinite if unsynced.
func timeError(d time.Duration) float64 {
	if d == fleettime.Unsynced {
		return math.Inf(1)
	}
	return d.Seconds()
}
