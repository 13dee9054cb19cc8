package root

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
)

// Ledger is the state of one room at one moment.
type Ledger struct {
	Total      uint64         `json:"permits_total"`
	Rate       uint64         `json:"rate_permits_total"`
	Free       int64          `json:"permits_free"`
	RateFree   int64          `json:"rate_permits_free"`
	Complete   bool           `json:"complete"` // the ledgers of all data centres are known
	Unbound    bool           `json:"unbound"`  // no limit binds: see RoomConfig
	Centres    []CentreLedger `json:"data_centers"`
	Overcommit int64          `json:"overcommit_sessions"`       // sessions that may be valid beyond the counted ones
	Beyond     int64          `json:"sessions_beyond_the_limit"` // sessions above Total: under passthrough, or from before a limit was lowered
	View       *wire.View     `json:"view"`
	Passes     PassLedger     `json:"passes"`
}

// PassLedger is the newest release of a coordinator, as reported.
type PassLedger struct {
	Release uint64 `json:"release"`
	N       uint64 `json:"people_to_let_in"` // visitors to admit
	Free    uint64 `json:"passes_free"`      // passes that are not lent
	Spent   uint64 `json:"people_let_in"`    // admitted visitors
}

// CentreLedger is the loan of one room to one data centre.
type CentreLedger struct {
	Name       string        `json:"name"`
	Adopted    bool          `json:"adopted"`
	Standing   wire.Standing `json:"standing"`
	Overcommit int64         `json:"overcommit_sessions"` // sessions that may be valid beyond its permits
	Held       int64         `json:"permits_held"`
	RateHeld   int64         `json:"rate_permits_held"`
	Idle       int64         `json:"permits_idle"`
	RateIdle   int64         `json:"rate_permits_idle"`
	Keep       uint64        `json:"permits_to_keep"`
	RateKeep   uint64        `json:"rate_permits_to_keep"`
	Active     uint64        `json:"sessions"`
	Want       uint64        `json:"permits_wanted"`
	HeldPeople uint64        `json:"people_held"`
	Movers     uint64        `json:"people_moving_in"` // visitors with a session of another data centre that does not answer
	Gen        uint64        `json:"generation"`
}

// wallBound is the assumed uncertainty of a machine's clock.
const wallBound = 10 * time.Minute

// Clock returns the time for phases of events, and its uncertainty: fleet time if it is known to [fleettime.Rough],
// otherwise the machine's time. a may be nil if this process does not lead.
func (a *Allocator) Clock(now fleettime.Mono, machine fleettime.Time) (t fleettime.Time, bound time.Duration) {
	if a != nil {
		if t, bound := a.clock.Read(now); bound <= fleettime.Rough {
			return t, bound + fleettime.Guard
		}
	}
	return machine, wallBound
}

// Rooms returns the number of rooms with a ledger, also of removed ones.
func (f *fleet) Rooms() int { return len(f.pools.list) }

// Ledger returns the state of a room; the zero value for an unknown one.
func (f *fleet) Ledger(id room.ID) Ledger {
	p := f.pools.byID[id]
	if p == nil {
		return Ledger{}
	}
	l := f.Totals(id)
	l.Centres = make([]CentreLedger, 0, len(f.centres.all))
	for _, d := range f.centres.all {
		c := CentreLedger{Name: d.name, Adopted: d.adopted, Standing: d.standing()}
		if n := p.loans[d]; n != nil {
			c.Overcommit = n.unreturned + int64(n.overcommit)
			l.Overcommit += c.Overcommit
			c.Held, c.RateHeld = n.permits.Sessions.Held(), n.permits.Rate.Held()
			c.Idle, c.RateIdle = n.idleNow(), n.rateIdleNow()
			c.Keep, c.RateKeep = n.permits.Sessions.Keep, n.permits.Rate.Keep
			c.Active, c.Want, c.HeldPeople, c.Gen = n.active, n.demand.Want, n.demand.HeldPeople, n.gen
			c.Movers = n.demand.Movers
		}
		l.Centres = append(l.Centres, c)
		l.Beyond += int64(c.Active)
	}
	l.Beyond = max(0, l.Beyond-int64(l.Total))
	return l
}

// Totals returns the state of a room without its data centres.
func (f *fleet) Totals(id room.ID) Ledger {
	p := f.pools.byID[id]
	if p == nil {
		return Ledger{}
	}
	l := Ledger{Total: p.Total, Rate: p.Rate, Unbound: p.Unbound, View: p.view}
	l.Free, l.RateFree, l.Complete = p.free()
	l.Passes = PassLedger{Release: p.passes.Release, N: p.passes.N, Free: p.passes.Free(), Spent: p.passes.Spent}
	return l
}

// Admitted returns the visitors that entered a room in the last minute, as far as this coordinator knows.
func (a *Allocator) Admitted(now fleettime.Mono, id room.ID) uint64 {
	p := a.pools.byID[id]
	if p == nil {
		return 0
	}
	return p.flow.LastMinute(now, p.progress.Tally(0, 0).Admitted)
}

// Unknown is a data centre whose ledger the coordinator waits for. Until all ledgers are known, it lends only permits
// that were returned.
type Unknown struct {
	Name  string
	Heard time.Duration  // time since its last report, or since the first term that is known to wait for it
	Alive bool           // it reports: its regional waits
	Until fleettime.Time // latest end of the wait; 0 for unknown
	Gone  bool           // it was removed by force
}

// Unknown returns the data centres whose ledgers the coordinator waits for at now. It does not change the allocator.
func (f *fleet) Unknown(now fleettime.Mono) []Unknown {
	if now.Sub(f.centres.started) < ledger.StartupGrace {
		return nil
	}
	var out []Unknown
	for _, d := range f.centres.all {
		blocks, wait := false, time.Duration(0) // in this term
		for _, p := range f.pools.list {
			if !p.missing(d) {
				continue
			}
			blocks = true
			if p.Cap || d.removed {
				wait = max(wait, p.reclaimAfter())
			} else if !f.centres.only(d.name) { // others have to be heard meanwhile
				wait = max(wait, p.LostWait-d.before)
			}
		}
		if !blocks {
			continue
		}
		u := Unknown{Name: d.name, Heard: d.silence(now), Alive: d.heard && now.Sub(d.recv) <= SilentAfter, Gone: d.removed}
		if !d.heard && u.Heard <= SilentAfter {
			continue // it has not found this leader yet
		}
		if !u.Alive && wait > 0 && f.clock.Bound(now) != fleettime.Unsynced {
			u.Until = f.clock.Now(now).Add(max(0, wait-now.Sub(d.recv)))
		}
		out = append(out, u)
	}
	return out
}

// CentreStop returns why nobody enters any room of a data centre at now, for the coordinator's reasons; own is the
// reason that its regional last reported.
func (f *fleet) CentreStop(now fleettime.Mono, t *CentreTotals, own stop.Stop) (s stop.Stop) {
	defer func() { s.Centre = t.Name }()
	switch {
	case t.Heard > SilentAfter && (t.Gone || t.Standing == wire.Unlisted):
		return s // it was removed, or has drained and stopped: nobody expects it to report
	case t.Heard > SilentAfter:
		s.Reason, s.Ended = stop.Silent, f.centres.only(t.Name)
		if f.clock.Bound(now) != fleettime.Unsynced {
			s.Since = f.clock.Now(now).Add(-t.Heard)
		}
		return s
	case !own.OK() && own.Reason != stop.AwaitsCentre:
		return own
	case t.Standing == wire.Draining:
		return stop.Stop{Reason: stop.Draining}
	case t.Standing == wire.Unlisted:
		return stop.Stop{Reason: stop.Unlisted}
	case t.Idle > 0 && own.OK():
		return s
	}
	s = own // without a name
	for _, u := range f.Unknown(now) {
		if u.Name != t.Name && (s.Edge == "" || u.Until > s.Until) {
			s = stop.Stop{Reason: stop.AwaitsCentre, Edge: u.Name, Until: u.Until, Ended: u.Alive || u.Gone}
			if !u.Alive && f.clock.Bound(now) != fleettime.Unsynced {
				s.Since = f.clock.Now(now).Add(-u.Heard)
			}
		}
	}
	return s
}

// SiteDown tells at which edges of a data centre the site of a room does not answer.
type SiteDown struct {
	Edges int      // their number
	First []string // the first of them by name, at most wire.MaxNamed; none from a regional of an older build
}

// SitesDown returns the edges of each data centre at which the site of a room does not answer, without the data centres
// that have none.
func (f *fleet) SitesDown(id room.ID) (out map[string]SiteDown) {
	p := f.pools.byID[id]
	if p == nil {
		return nil
	}
	for d, l := range p.loans {
		if l.demand.SiteDown > 0 && d.heard {
			if out == nil {
				out = map[string]SiteDown{}
			}
			out[d.name] = SiteDown{int(l.demand.SiteDown), l.demand.SiteDownAt}
		}
	}
	return out
}

// Time returns fleet time.
func (f *fleet) Time(now fleettime.Mono) fleettime.Time { return f.clock.Now(now) }

// CentreTotals has the permits and sessions of one data centre over all rooms.
type CentreTotals struct {
	Name           string
	ClusterID      uint64 // 0 for unknown
	Standing       wire.Standing
	Reporting      bool          // it has reported its permits, and reports now
	Heard          time.Duration // since its last report; before one, since it was added or the wait for it began
	Held, RateHeld int64
	Idle, RateIdle int64
	Sessions       uint64
	Movers         uint64        // visitors with a session of another data centre that does not answer
	Overcommit     int64         // sessions that may be valid beyond its permits
	Term           uint64        // of its aggregator; 0 before its first report
	Adopted        bool          // its ledger is known in this term
	Stored         uint64        // newest stored version of its list of data centres
	Gone           bool          // it was removed by force
	Bound          time.Duration // uncertainty of its fleet time; [fleettime.Unsynced] for unknown
}

// Centres returns the totals of every data centre, by name.
func (f *fleet) Centres(now fleettime.Mono) []CentreTotals {
	out := make([]CentreTotals, 0, len(f.centres.all))
	for _, d := range f.centres.all {
		t := CentreTotals{
			Name: d.name, ClusterID: d.clusterID, Standing: d.standing(), Reporting: d.reported() && now.Sub(d.recv) < SilentAfter,
			Heard: d.silence(now), Term: d.instance, Adopted: d.adopted, Stored: d.stored, Gone: d.removed,
			Bound: fleettime.Unsynced,
		}
		if d.time.known {
			t.Bound = d.time.bound
		}
		for _, l := range f.pools.loans(d) {
			t.Held += l.permits.Sessions.Held()
			t.RateHeld += l.permits.Rate.Held()
			t.Idle += l.idleNow()
			t.RateIdle += l.rateIdleNow()
			t.Sessions += l.active
			t.Movers += l.demand.Movers
			t.Overcommit += l.unreturned + int64(l.overcommit)
		}
		out = append(out, t)
	}
	return out
}
