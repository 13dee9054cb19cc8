package regional

import (
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/node"
)

// metrics are the counters of a regional; state is read from the aggregator at scrape time.
type metrics struct {
	s       *Server
	dropped prometheus.Counter

	regressions  prometheus.Counter
	stored       prometheus.Counter
	unknownEdges prometheus.Counter
	invalid      *prometheus.CounterVec
	sent         *prometheus.CounterVec
	sync         prometheus.Histogram
	heard        atomic.Int64 // clock reading at the newest grant
	series       node.RoomSeries

	node.Descs // the following

	leaseTrouble, leading, term, unsaved, syncAge, lag, edges, twins              *prometheus.Desc
	held, rateHeld, free, rateFree, active, reserved, credit, waiting, heldPeople *prometheus.Desc
	keep, copied, overcommit, movers                                              *prometheus.Desc
}

func newMetrics(reg prometheus.Registerer, s *Server) *metrics {
	meter := node.Meter{Registerer: reg}
	var descs node.Descs
	d := descs.Of
	m := &metrics{
		s: s,
		dropped: meter.Counter("vestibule_regional_inbox_dropped_total",
			"Messages dropped because the inbox was full; later ones replace them."),
		regressions: meter.Counter("vestibule_regional_store_regressions_total",
			"Times that this regional came to lead from a store that did not know of a term that was seen."),
		stored: meter.Counter("vestibule_regional_promises_stored_total", "Writes of promises to the store."),
		unknownEdges: meter.Counter("vestibule_regional_unknown_edges_total",
			"Edges that reported sessions or permits unknown to the store."),
		invalid: meter.Counters("vestibule_regional_messages_refused_total", "Messages that could not be understood.",
			"message", "report", "grant"),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vestibule_regional_messages_total", Help: "Grants to edges and reports to global, by result.",
		}, []string{"message", "result"}),
		sync: meter.Histogram("vestibule_regional_sync_duration_seconds",
			"Round trip of a report to global and the grant that answers it.",
			.001, .0025, .005, .01, .025, .05, .1, .2, .4, .8, 2),
		leaseTrouble: d("vestibule_regional_lease_trouble_seconds",
			"Time for which the reachable store has refused all leases; 0 while it accepts them."),
		leading: d("vestibule_regional_leading", "1 while this regional leads its data centre.", "dc"),
		term:    d("vestibule_regional_term", "Fencing number of the current leadership; 0 while not leading."),
		unsaved: d("vestibule_regional_promises_unsaved_seconds",
			"For how long promises could not be stored; 0 while they can."),
		syncAge: d("vestibule_regional_sync_age_seconds", "Time since the last message of global."),
		lag: d("vestibule_regional_watermark_lag_seconds",
			"How far the watermark is behind fleet time: what all live edges have reported."),
		edges: d("vestibule_regional_edges", "Known edge processes, by state.", "state"),
		twins: d("vestibule_regional_twin_edges", "Edges that live beside another one of their name."),
		held:  d("vestibule_regional_permits", "Permits of total_active_users that this data centre holds.", "room"),
		rateHeld: d("vestibule_regional_rate_permits", "Permits of new_users_per_minute that this data centre holds.",
			"room"),
		free: d("vestibule_regional_free",
			"Permits of total_active_users held here that neither a session nor an edge has; negative is a debt.", "room"),
		rateFree:   d("vestibule_regional_rate_free", "Permits of new_users_per_minute held here that no edge has.", "room"),
		active:     d("vestibule_regional_active", "Sessions counted and reserved.", "room"),
		reserved:   d("vestibule_regional_reserved", "Sessions reserved because an edge fell silent.", "room"),
		credit:     d("vestibule_regional_unspent_permits", "Permits lent to edges and not known to be spent.", "room"),
		waiting:    d("vestibule_regional_waiting", "People waiting in this data centre.", "room"),
		heldPeople: d("vestibule_regional_held_requests", "Visitors held at the edges for their turn.", "room"),
		keep: d("vestibule_regional_idle_target", "Idle permits of total_active_users that global wants kept here.",
			"room"),
		overcommit: d("vestibule_regional_overcommit_sessions",
			"Sessions that silent edges may have beyond the counted ones.", "room"),
		movers: d("vestibule_regional_movers",
			"Visitors inside whose session another data centre holds, waiting for a permit here.", "room"),
		copied: d("vestibule_regional_copied_tickets_total", "Tickets seen living in two places; they are counted twice.",
			"room"),
	}
	m.Descs = descs
	reg.MustRegister(m.sent, m)
	for _, what := range []string{"report", "grant"} {
		for _, result := range node.Results {
			m.sent.WithLabelValues(what, result)
		}
	}
	return m
}

// count counts a message by result.
func (m *metrics) count(what string, err error, log *slog.Logger) {
	result := node.Result(err)
	m.sent.WithLabelValues(what, result).Inc()
	if result == node.Failed {
		log.Warn("message not sent", slog.String("message", what), slog.Any("error", err))
	}
}

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	st := m.s.Status()
	leading := 0.0
	if st.Leading {
		leading = 1
	}
	trouble, _ := m.s.Lease.Trouble()
	gauge(m.leaseTrouble, trouble.Seconds())
	gauge(m.leading, leading, m.s.Config.DataCenter)
	gauge(m.term, float64(st.Region.Term.N))
	unsaved, _ := m.s.unsaved.now()
	gauge(m.unsaved, unsaved.Seconds())
	gauge(m.syncAge, m.s.Clock.Now().Sub(fleettime.Mono(m.heard.Load())).Seconds())
	if !st.Leading {
		return
	}
	gauge(m.lag, st.Region.Time.Sub(st.Region.Watermark).Seconds())
	states, twins := map[string]int{}, 0
	for _, e := range st.Region.Edges {
		states[e.State]++
		if e.Twin {
			twins++
		}
	}
	gauge(m.twins, float64(twins))
	for state, n := range states {
		gauge(m.edges, float64(n), state)
	}
	m.series.Keep(m.s.fleet.Set())
	rooms := node.NewRoomMetrics(ch)
	defer rooms.Close()
	for name, l := range st.Rooms {
		busy := l.Active != 0 || l.Waiting != 0 || l.HeldPeople > 0 || l.Movers > 0 || l.Overcommit != 0 || l.Free < 0 ||
			l.RateFree < 0 || l.Copied > 0
		name = m.series.Label(name, busy)
		rooms.Gauge(m.held, float64(l.Granted)-float64(l.Returned), name)
		rooms.Gauge(m.rateHeld, float64(l.RateGranted)-float64(l.RateReturned), name)
		rooms.Gauge(m.free, float64(l.Free), name)
		rooms.Gauge(m.rateFree, float64(l.RateFree), name)
		rooms.Gauge(m.active, float64(l.Active), name)
		rooms.Gauge(m.reserved, float64(l.Reserved), name)
		rooms.Gauge(m.credit, float64(l.Credit), name)
		rooms.Gauge(m.waiting, l.Waiting, name)
		rooms.Gauge(m.heldPeople, float64(l.HeldPeople), name)
		rooms.Gauge(m.keep, float64(l.Keep), name)
		rooms.Gauge(m.overcommit, float64(l.Overcommit), name)
		rooms.Gauge(m.movers, float64(l.Movers), name)
		rooms.Counter(m.copied, float64(l.Copied), name)
	}
}
