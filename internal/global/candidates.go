package global

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/push"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

// Every candidate publishes its own state once a second, and the leader publishes the state of the data centres too.
// So the API shows the whole fleet at each candidate.
const (
	candidateEvery = time.Second
	candidateGone  = time.Minute // a candidate that is silent for longer is not shown
	leaderGone     = 5 * time.Second
	maxCandidates  = 64 // and notifiers
	maxAlarms      = 30
	maxAlarmText   = 500 // bytes
	maxEdges       = 500 // of all data centres together, in one message
	maxCentres     = 1000
	edgesCurrent   = 10 * time.Second // two intervals in which regionals report their edges
)

// centreReport is the state that a data centre reports of itself, for display only.
type centreReport struct {
	build  string
	edges  []wire.EdgeStatus
	edgesN uint32
	at     fleettime.Mono // when it reported the edges
	stop   stop.Stop      // why nobody enters there

	certificateEnd int64
	listens        string // of the regional
}

// storeCentreReport stores the display part of a report. The caller holds the lock.
func (l *leadership) storeCentreReport(now fleettime.Mono, m *wire.Report) {
	c := l.reports[m.From]
	if c == nil {
		if len(l.reports) >= maxCentres {
			return
		}
		c = &centreReport{}
		l.reports[m.From] = c
	}
	if m.Build != "" { // the first part of a report
		c.build, c.stop, c.certificateEnd, c.listens = m.Build, m.Stop, m.CertificateEnd, m.Listens
	}
	if m.TellsEdges {
		c.edges, c.edgesN, c.at = m.Edges, m.EdgesN, now
	}
}

// alive returns the number of edges that report to their regional, if the data centre has told it.
func (c *centreReport) alive() (n int, told bool) {
	if c == nil || c.at == 0 {
		return 0, false
	}
	n = int(c.edgesN)
	for i := range c.edges { // abnormal ones come first
		if c.edges[i].State != region.Alive {
			n--
		}
	}
	return n, true
}

// show fills in the reported state of a data centre, with at most the given number of its edges.
func (c *centreReport) show(now fleettime.Mono, most int, out *api.DataCenter) {
	if out.Edges = []api.Edge{}; c == nil {
		return
	}
	out.Build, out.EdgesCount, out.CertificateEnd = c.build, int(c.edgesN), endOf(c.certificateEnd)
	since := now.Sub(c.at)
	known := since <= edgesCurrent
	if known { // between two reports the edges are taken to be as they were
		since = 0
	}
	for _, e := range c.edges[:min(len(c.edges), most)] {
		if !known {
			e.State = "unknown"
		}
		out.Edges = append(out.Edges, api.Edge{
			Name: e.Name, Build: e.Build, State: e.State, HeardSeconds: (e.Heard + since).Seconds(),
			LeaseSeconds: max(0, e.Lease-since).Seconds(), CertificateEnd: endOf(e.CertificateEnd),
		})
	}
}

// endOf returns a time in Unix seconds; nil for 0.
func endOf(s int64) *time.Time {
	if s == 0 {
		return nil
	}
	at := time.Unix(s, 0).UTC()
	return &at
}

// certificateSoon is how long before its end a certificate is an alarm.
const certificateSoon = 30 * 24 * time.Hour

// certificateAlarm returns the alarm of the certificates that end soon; "" for none. It names the first process of
// those that t tells of.
func (t *candidateState) certificateAlarm(now time.Time) string {
	first, whose, soon := now.Add(certificateSoon), "", 0
	see := func(end *time.Time, of string) {
		if end == nil || end.Sub(now) >= certificateSoon {
			return
		}
		if soon++; end.Before(first) {
			first, whose = *end, of
		}
	}
	see(t.CertificateEnd, t.Name)
	for i := range t.DataCenters {
		d := &t.DataCenters[i]
		see(d.CertificateEnd, "the regional of "+d.Name)
		for j := range d.Edges {
			see(d.Edges[j].CertificateEnd, d.Edges[j].Name+" of "+d.Name)
		}
	}
	if soon == 0 {
		return ""
	}
	text := fmt.Sprintf("a certificate of %s ends on %s: replace the certificate files in time", whose,
		first.Format(time.DateOnly))
	if soon > 1 {
		text += fmt.Sprintf("; %d processes have one that ends within 30 days", soon)
	}
	return text
}

// candidateState is the message of a candidate. Readers ignore unknown fields.
type candidateState struct {
	api.Candidate
	DataCenters []api.DataCenter `json:"data_centers,omitempty"`
	Listens     []string         `json:"listens,omitempty"` // of this process; of a leader those of the fleet
}

// maxListens bounds the addresses in a message: 4,000 take 100 KB.
const maxListens = 4000

// listed adds the addresses of listeners that a node reports to those of others.
func listed(to []string, reported string) []string {
	for at := range strings.FieldsSeq(reported) {
		if len(to) < maxListens && len(at) <= 64 {
			to = append(to, at)
		}
	}
	return to
}

// listens returns the addresses of all listeners that candidates and notifiers know, for a minute after they were told.
func (c *candidates) listens() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.heard {
		all = append(all, t.Listens...)
	}
	for _, n := range c.notifiers {
		all = append(all, n.listens...)
	}
	return all
}

// candidates holds the recently heard candidates and notifiers. It is safe for concurrent use.
type candidates struct {
	mu        sync.Mutex
	heard     map[string]candidateState
	notifiers map[string]notifierState
}

// notifierState is the message of a notifier.
type notifierState struct {
	api.Notifier
	rooms   map[room.ID]int // subscribed visitors
	failing []string        // push services
	listens []string
}

// run publishes the state of this candidate and receives the others'.
func (c *candidates) run(ctx context.Context, s *Server) error {
	unsubscribe, err := s.hear(wire.FleetSubject, c.receive)
	if err != nil {
		return err
	}
	defer unsubscribe()
	unsubscribeNotifiers, err := s.hear(wire.NotifyingSubject, c.hearNotifier)
	if err != nil {
		return err
	}
	defer unsubscribeNotifiers()
	node.Every(ctx, candidateEvery, func() {
		state := s.candidateState()
		c.store(state, time.Now()) // also while no other can be reached
		s.tell(wire.FleetSubject, state)
	})
	return nil
}

// candidateState returns the state of this candidate.
func (s *Server) candidateState() candidateState {
	trouble, _ := s.Lease.Trouble()
	alarms := s.Ready()
	now := time.Now()
	t := candidateState{Candidate: api.Candidate{
		Name: s.Config.Name, CertificateEnd: endOf(s.Certificates.First()), Build: node.ShortBuild(),
		LeaseTroubleSeconds: trouble.Seconds(), RoomsVersion: int64(s.fleet.Set().Version()),
		KeysVersion: int64(s.fleet.Ring().Version), Alarms: []string{},
	}}
	if m := s.fleet.Members(); m != nil {
		t.MembersVersion = int64(m.Version)
	}
	for _, text := range slices.Concat(alarms.Reasons, alarms.Alarms)[:min(maxAlarms,
		len(alarms.Reasons)+len(alarms.Alarms))] {
		t.Alarms = append(t.Alarms, strings.ToValidUTF8(text[:min(maxAlarmText, len(text))], ""))
	}
	t.Listens = slices.Clone(s.Listens())
	s.addCentres(&t)
	if text := t.certificateAlarm(now); text != "" {
		t.Alarms = append(t.Alarms, text)
	}
	return t
}

// addCentres adds the leader's numbers of the data centres.
func (s *Server) addCentres(t *candidateState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leading
	if l == nil {
		return
	}
	t.Leading, t.Term, t.ClockSkewSeconds = true, strconv.FormatUint(l.term.N, 10), l.skew.Seconds()
	now, edges := s.Clock.Now(), maxEdges
	for _, r := range l.reports {
		t.Listens = listed(t.Listens, r.listens)
		for i := range r.edges {
			t.Listens = listed(t.Listens, r.edges[i].Listens)
		}
	}
	for _, d := range l.alloc.Centres(now) {
		dc := api.DataCenter{
			Name: d.Name, State: d.Standing.String(), HeardSeconds: d.Heard.Seconds(), Told: d.Reporting, Adopted: d.Adopted,
			Term: strconv.FormatUint(d.Term, 10), MembersVersion: int64(d.Stored), Permits: d.Held, PermitsIdle: d.Idle,
			RatePermits: d.RateHeld, RatePermitsIdle: d.RateIdle, Sessions: int64(d.Sessions), Overcommit: d.Overcommit,
			MovingIn: int64(d.Movers),
		}
		if d.Bound != fleettime.Unsynced {
			bound := d.Bound.Seconds()
			dc.ClockBoundSeconds = &bound
		}
		if d.Reporting && d.Adopted {
			dc.LeaseSeconds = max(0, s.Params.RegionalLease-d.Heard).Seconds()
		}
		l.reports[d.Name].show(now, edges, &dc)
		edges -= len(dc.Edges)
		t.DataCenters = append(t.DataCenters, dc)
	}
}

// receive takes the message of a candidate.
func (c *candidates) receive(data []byte, now time.Time) error {
	var t candidateState
	if err := json.Unmarshal(data, &t); err != nil {
		return err
	}
	if err := wire.CheckName(t.Name); err != nil {
		return err
	}
	c.store(t, now)
	return nil
}

func (c *candidates) store(t candidateState, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard == nil {
		c.heard = map[string]candidateState{}
	}
	if t.Alarms == nil {
		t.Alarms = []string{}
	}
	t.AsOf = now.UTC()
	c.heard[t.Name] = t
	for len(c.heard) > maxCandidates {
		delete(c.heard, slices.MinFunc(slices.Collect(maps.Values(c.heard)), older).Name)
	}
}

// hearNotifier takes the state of a notifier.
func (c *candidates) hearNotifier(data []byte, now time.Time) error {
	var n push.State
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	if err := wire.CheckName(n.Name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.notifiers == nil {
		c.notifiers = map[string]notifierState{}
	}
	if _, known := c.notifiers[n.Name]; known || len(c.notifiers) < maxCandidates {
		c.notifiers[n.Name] = notifierState{api.Notifier{
			Name: n.Name, AsOf: now.UTC(), Subscribed: n.Subscribed, Due: n.Due, Sent: n.Sent, Failed: n.Failed, GivenUp: n.Dead,
			LateSeconds: n.Late,
		}, n.Rooms, n.Failing[:min(maxAlarms, len(n.Failing))], listed(nil, n.Listens)}
	}
	return nil
}

// notified returns when a notifier was last heard, and how many visitors of a room it then knew to be subscribed.
func (c *candidates) notified(id room.ID) (at time.Time, subscribed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.notifiers {
		if n.AsOf.After(at) {
			at, subscribed = n.AsOf, n.rooms[id]
		}
	}
	return at, subscribed
}

// failing returns the push services that fail, as one notifier after the other tells.
func (c *candidates) failing(now time.Time) (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.notifiers)) {
		if n := c.notifiers[name]; now.Sub(n.AsOf) <= candidateGone {
			out = append(out, n.failing...)
		}
	}
	return out
}

func older(a, b candidateState) int { return a.AsOf.Compare(b.AsOf) }

// view returns the fleet as last reported.
func (c *candidates) view() api.Fleet {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.heard, func(_ string, t candidateState) bool { return now.Sub(t.AsOf) > candidateGone })
	maps.DeleteFunc(c.notifiers, func(_ string, n notifierState) bool { return now.Sub(n.AsOf) > candidateGone })
	out := api.Fleet{Candidates: []api.Candidate{}, DataCenters: []api.DataCenter{}, Notifiers: []api.Notifier{}}
	for _, name := range slices.Sorted(maps.Keys(c.notifiers)) {
		out.Notifiers = append(out.Notifiers, c.notifiers[name].Notifier)
	}
	leader := c.leader(now)
	for _, t := range slices.SortedFunc(maps.Values(c.heard),
		func(a, b candidateState) int { return cmp.Compare(a.Name, b.Name) }) {
		t.Leading = t.Leading && t.Name == leader.Name // one that was killed said so last
		out.Candidates = append(out.Candidates, t.Candidate)
	}
	if out.Leader = leader.Name; leader.DataCenters != nil {
		out.DataCenters = leader.DataCenters
	}
	return out
}

// leader returns the recent claimant with the highest term. The caller holds the lock.
func (c *candidates) leader(now time.Time) (leader candidateState) {
	for _, t := range slices.SortedFunc(maps.Values(c.heard),
		func(a, b candidateState) int { return cmp.Compare(a.Name, b.Name) }) {
		if t.Leading && now.Sub(t.AsOf) <= leaderGone && (!leader.Leading || termOf(t) > termOf(leader)) {
			leader = t
		}
	}
	return leader
}

// termOf returns the term of a leading candidate, or 0.
func termOf(t candidateState) uint64 {
	n, err := strconv.ParseUint(t.Term, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
