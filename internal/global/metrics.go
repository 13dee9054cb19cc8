package global

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control"
	"vestibule/internal/global/notices"
	"vestibule/internal/node"
)

// metrics are the counters of global. State is read from the allocator on scrape.
type metrics struct {
	s            *Server
	dropped      prometheus.Counter
	regressions  prometheus.Counter
	invalid      prometheus.Counter
	sent         *prometheus.CounterVec
	control      *prometheus.CounterVec
	notices      *prometheus.CounterVec
	roomsValid   prometheus.Gauge
	roomsRefused prometheus.Counter
	series       node.RoomSeries
	trouble      trouble
	descs        []*prometheus.Desc // of the state

	unlisted, outdated, unpublished                                       *prometheus.Desc
	leaseTrouble, leading, term, skew                                     *prometheus.Desc
	limit, rateLimit, active, slots, waiting, minute, mu, theta, estimate *prometheus.Desc
	cutoff, complete, free, rateFree, held, rateHeld, idle, overcommit    *prometheus.Desc
	beyond, draws, notifyLate, stopped, tokenExpiry                       *prometheus.Desc
}

func newMetrics(reg prometheus.Registerer, s *Server) *metrics {
	var descs []*prometheus.Desc
	d := func(name, help string, labels ...string) *prometheus.Desc {
		desc := prometheus.NewDesc(name, help, labels, nil)
		descs = append(descs, desc)
		return desc
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		s: s,
		dropped: counter("vestibule_global_inbox_dropped_total",
			"Reports dropped because the inbox was full; later ones replace them."),
		regressions: counter("vestibule_global_store_regressions_total",
			"Times that this candidate came to lead from a store that did not know of a term that was seen."),
		invalid: counter("vestibule_global_reports_refused_total", "Reports that could not be understood."),
		sent:    counters("vestibule_global_grants_total", "Grants to data centres, by result.", "result"),
		control: counters("vestibule_control_requests_total",
			"Requests to the API, by operation of its document and class of the status.", "operation", "status"),
		notices: counters("vestibule_global_notices_total",
			"Attempts to deliver a notice to operators, by what followed, and dropped notices.", "result"),
		roomsValid: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "vestibule_global_rooms_file_valid",
			Help: "1 while the current rooms file is in use, 0 while it is refused.",
		}),
		roomsRefused: counter("vestibule_global_rooms_refused_total", "Changes of the rooms file that were refused."),
		unpublished: d("vestibule_global_unpublished_seconds",
			"For how long the document could not be published, 0 where it is or this candidate does not lead.", "document"),
		unlisted: d("vestibule_global_unlisted_data_centers",
			"Data centres that report and are not listed: they admit no visitor."),
		outdated: d("vestibule_global_members_outdated",
			"1 while a data centre knows a newer list of data centres than this leader: nothing is lent."),
		tokenExpiry: d("vestibule_control_token_expiry_timestamp_seconds",
			"Unix time at which the next API token ends that was made for longer than 30 days; absent for none."),
		draws: d("vestibule_draws_late",
			"Events that should have begun and have not, as the record of their draw is not public for long enough."),
		notifyLate: d("vestibule_notifications_late",
			"1 while no notifier works, or the oldest notification has waited for minutes. Of the leader."),
		leaseTrouble: d("vestibule_global_lease_trouble_seconds",
			"Time for which the reachable store has refused all leases; 0 while it accepts them."),
		leading:   d("vestibule_global_leading", "1 while this candidate leads."),
		term:      d("vestibule_global_term", "Fencing number of the current leadership; 0 while not leading."),
		skew:      d("vestibule_global_clock_skew_seconds", "This machine's clock minus fleet time."),
		limit:     d("vestibule_room_limit", "total_active_users.", "room"),
		rateLimit: d("vestibule_room_rate_limit", "new_users_per_minute.", "room"),
		active:    d("vestibule_room_active", "Sessions counted and reserved in all data centres.", "room"),
		slots:     d("vestibule_room_admissions_possible", "Admissions possible now, by the limit that binds.", "room"),
		waiting:   d("vestibule_room_waiting", "People waiting, by how long ago they joined.", "room", "age"),
		minute:    d("vestibule_room_admitted_minute", "Visitors admitted in the last 60 s.", "room"),
		mu:        d("vestibule_room_admission_rate", "Admissions per second, of late.", "room"),
		theta:     d("vestibule_room_abandonment_rate", "Fraction of the waiting visitors that abandon per second.", "room"),
		estimate: d("vestibule_room_estimate_seconds",
			"Estimated wait of a visitor that joins now; absent without an estimate.", "room"),
		cutoff: d("vestibule_room_cutoff_age_seconds", "Age of the newest join time that may enter; 0 without a queue.",
			"room"),
		complete: d("vestibule_room_books_complete",
			"1 while the ledgers of all data centres are known; otherwise at most returned permits are lent.", "room"),
		free:     d("vestibule_room_free", "Permits of total_active_users that no data centre holds.", "room"),
		rateFree: d("vestibule_room_rate_free", "Permits of new_users_per_minute that no data centre holds.", "room"),
		held:     d("vestibule_room_permits", "Permits of total_active_users that a data centre holds.", "room", "dc"),
		rateHeld: d("vestibule_room_rate_permits", "Permits of new_users_per_minute that a data centre holds.",
			"room", "dc"),
		overcommit: d("vestibule_overcommit_sessions",
			"Sessions that may be valid beyond total_active_users: at silent nodes under partition_policy serve, or at nodes declared lost. 0 under cap, always.", "room"),
		beyond: d("vestibule_room_beyond_limit",
			"Sessions beyond total_active_users: of a room whose queueing_method is or was passthrough, or whose limit was lowered.", "room"),
		stopped: d("vestibule_admissions_stopped",
			"1 while nobody enters, by room (empty for all rooms), data center (empty for all) and reason; absent while visitors enter. Of the leader.", "room", "dc", "reason"),
		idle: d("vestibule_room_idle", "Permits of total_active_users that lie idle in a data centre.", "room", "dc"),
	}
	m.descs = descs
	reg.MustRegister(m.dropped, m.regressions, m.invalid, m.sent, m.control, m.notices, m.roomsValid, m.roomsRefused, m)
	for _, result := range node.Results {
		m.sent.WithLabelValues(result)
	}
	for _, result := range notices.Results {
		m.notices.WithLabelValues(result)
	}
	for _, status := range []int{http.StatusOK, http.StatusNotFound, http.StatusServiceUnavailable} {
		m.control.WithLabelValues(control.NoOperation, statusClass(status))
	}
	return m
}

// statusClass returns the class of an API response status, such as 2xx.
func statusClass(status int) string { return strconv.Itoa(status/100) + "xx" }

// answered counts a request to the API.
func (m *metrics) answered(operation string, status int) {
	m.control.WithLabelValues(operation, statusClass(status)).Inc()
}

// trouble records why documents cannot be published. It is safe for concurrent use.
type trouble struct {
	mu    sync.Mutex
	texts map[string]string // by document
	from  map[string]time.Time
	file  error // the fault of the current rooms file

	own atomic.Pointer[string] // alarm about sites that are listeners of the fleet; nil for none
}

// note records the result of an attempt to publish. news reports whether it failed for a new reason.
func (t *trouble) note(doc string, err error) (text string, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.texts, doc)
		delete(t.from, doc)
		return "", false
	}
	if t.texts == nil {
		t.texts, t.from = map[string]string{}, map[string]time.Time{}
	}
	text = err.Error()
	news = text != t.texts[doc]
	if t.texts[doc] = text; t.from[doc].IsZero() {
		t.from[doc] = time.Now()
	}
	return text, news
}

// refuse records the fault of the rooms file, nil for none.
func (t *trouble) refuse(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.file = err
}

// end forgets everything: another candidate leads.
func (t *trouble) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.texts, t.from, t.file = nil, nil, nil
	t.own.Store(nil)
}

// since returns how long a document has been unpublished.
func (t *trouble) since(doc string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if from := t.from[doc]; !from.IsZero() {
		return time.Since(from)
	}
	return 0
}

// alarms describes the documents that are unpublished for longer than a new leader may need, or refused.
func (t *trouble) alarms() []string {
	var out []string
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		out = append(out, "the rooms file is refused, the last good rooms stay: "+t.file.Error())
	}
	if own := t.own.Load(); own != nil {
		out = append(out, *own)
	}
	for _, doc := range append(slices.Clip(published), drawsDue) {
		if from := t.from[doc]; !from.IsZero() && time.Since(from) > alarmAfter {
			out = append(out, "the "+doc+" cannot be published: "+t.texts[doc])
		}
	}
	return out
}

// published are the documents that a leader publishes for all nodes.
var published = []string{
	node.RoomsDocument, node.KeysDocument, node.MembersDocument, node.ControlsDocument, node.DrawsDocument,
}

// alarmAfter is how long a document may be unpublished before that is an alarm.
const alarmAfter = 5 * time.Second

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		ch <- d
	}
}

// ages are the classes of waiting times.
var ages = []struct {
	label string
	upTo  time.Duration
}{
	{"0-1m", time.Minute},
	{"1-5m", 5 * time.Minute},
	{"5-15m", 15 * time.Minute},
	{"15-60m", time.Hour},
	{"60m+", 1 << 60},
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	st := m.s.Status()
	for _, doc := range published {
		gauge(m.unpublished, m.trouble.since(doc).Seconds(), doc)
	}
	c := m.s.census()
	gauge(m.unlisted, float64(len(c.Unlisted)))
	gauge(m.outdated, truth(c.outdated()))
	gauge(m.draws, float64(len(m.s.lateDraws())))
	late := m.s.late.Load()
	gauge(m.notifyLate, truth(late != nil && *late != ""))
	if e := m.s.expiry.Load(); e != nil {
		gauge(m.tokenExpiry, float64(e.At.Unix()))
	}
	trouble, _ := m.s.Lease.Trouble()
	gauge(m.leaseTrouble, trouble.Seconds())
	gauge(m.leading, truth(st.Leading))
	gauge(m.term, float64(st.Term.N))
	gauge(m.skew, st.Skew.Seconds())
	m.series.Keep(m.s.fleet.Set())
	rooms := node.NewRoomMetrics(ch)
	defer rooms.Close()
	for _, s := range m.s.stops() {
		if s.Room == "" {
			gauge(m.stopped, 1, "", s.Centre, s.Reason.String())
			continue
		}
		rooms.Gauge(m.stopped, 1, m.series.Label(s.Room, true), s.Centre, s.Reason.String())
	}
	for name, l := range st.Rooms {
		v := l.View
		busy := l.Overcommit != 0 || l.Free < 0 || l.RateFree < 0 ||
			(v != nil && (v.Active > 0 || v.Queues() || v.Line.Total() > 0))
		name = m.series.Label(name, busy)
		rooms.Gauge(m.limit, float64(l.Total), name)
		rooms.Gauge(m.rateLimit, float64(l.Rate), name)
		rooms.Least(m.complete, truth(l.Complete), name)
		rooms.Gauge(m.free, float64(l.Free), name)
		rooms.Gauge(m.rateFree, float64(l.RateFree), name)
		rooms.Gauge(m.overcommit, float64(l.Overcommit), name)
		rooms.Gauge(m.beyond, float64(l.Beyond), name)
		for _, c := range l.Centres {
			rooms.Gauge(m.held, float64(c.Held), name, c.Name)
			rooms.Gauge(m.rateHeld, float64(c.RateHeld), name, c.Name)
			rooms.Gauge(m.idle, float64(c.Idle), name, c.Name)
		}
		if v != nil {
			m.view(rooms, v, st.Time, name)
		}
	}
	if len(st.Rooms) == 0 {
		return // it does not lead
	}
	for _, r := range m.s.fleet.Set().Rooms() {
		if last, ok := m.s.lastMinute(r.ID); ok {
			rooms.Gauge(m.minute, float64(last.Admitted), m.series.Label(r.Name, last.Admitted > 0))
		}
	}
}

func (m *metrics) view(rooms *node.RoomMetrics, v *wire.View, now fleettime.Time, name string) {
	rooms.Gauge(m.active, float64(v.Active), name)
	rooms.Gauge(m.slots, float64(v.Free), name)
	rooms.Gauge(m.mu, v.Mu, name)
	rooms.Own(m.theta, v.Theta, name)
	if wait, ok := v.Newcomer(); ok {
		rooms.Own(m.estimate, wait.Seconds(), name)
	}
	rooms.Own(m.cutoff, v.CutoffAge(now).Seconds(), name)
	younger := v.Line.Total()
	for _, a := range ages {
		older := 0.0
		if a.upTo < 1<<50 {
			older = v.Line.Before(now.Add(-a.upTo))
		}
		rooms.Gauge(m.waiting, younger-older, name, a.label)
		younger = older
	}
}
