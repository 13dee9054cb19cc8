package ceilings

import "maps"

// Child spends permits. It is an edge, or, without sums, a data centre towards global.
//
// Invariant of the second form: in each account, the largest later sum plus the credit is at most the
// ceiling that it was told.
type Child struct {
	cfg       *Config
	id        int
	instance  int
	accounts  []holding
	watermark Time
	term      int
	epoch     int
	lease     Time // it may spend until then
	ended     Time // the latest end of any lease that it had
	seq       int
	granted   int // Seq of the newest grant applied
	acked     int
	revision  int
	blank     bool
	ends      map[int]end
	informed  bool // it knows every end that was booked
	guests    int  // renewals beyond the ceiling, under serve
}

// holding is one account of a child.
type holding struct {
	sums     Sums
	credit   int
	got      int // granted in the epoch
	total    int // the same, as told
	ceiling  int
	want     int
	renewed  int
	told     int // renewals that the leader has below the ceiling
	reported map[int]int
}

// end is the end of a session before its ticket expires.
type end struct {
	at     Time // expiry of the ticket shown
	begun  bool // it was shown here
	booked bool
}

// NewChild returns a child that was never heard.
func NewChild(cfg *Config, id, instance int) *Child {
	c := &Child{cfg: cfg, id: id, instance: instance, watermark: never, lease: never, ended: never, ends: map[int]end{}}
	c.accounts = make([]holding, len(cfg.Accounts))
	for i := range c.accounts {
		c.accounts[i].reported = map[int]int{}
	}
	return c
}

// Pass lets time pass: one ticket life after the last lease, unspent credit is void, because it was
// presumed spent and is counted no more. An edge that knows no ends booked since then is not informed.
func (c *Child) Pass(now Time) {
	for i := range c.accounts {
		rule := VoidCredit
		if c.cfg.Centre {
			rule = VoidHeld
		}
		if now > c.ended+c.cfg.Accounts[i].Life && c.cfg.Without.keeps(rule) {
			c.accounts[i].credit = 0
		}
	}
	if now > c.ended+c.cfg.Accounts[0].Life {
		c.informed = false
	}
}

// Report returns what the child has to say.
func (c *Child) Report(now Time) Report {
	c.seq++
	r := Report{
		From: c.id, Instance: c.instance, Term: c.term, Epoch: c.epoch, Seq: c.seq, Granted: c.granted, Clock: now,
		Watermark: c.watermark, Revision: c.revision, Blank: c.blank, Ends: maps.Clone(c.ends),
	}
	r.Lines = make([]ReportLine, len(c.accounts))
	for i := range c.accounts {
		h := &c.accounts[i]
		h.reported[c.seq] = h.renewed
		r.Lines[i] = ReportLine{Sums: append(Sums(nil), h.sums...), Credit: h.credit, Got: h.got, Ceiling: h.ceiling, Want: h.want}
	}
	return r
}

// follow makes the child follow a newer leader, or begin another epoch of its leases. What was said before has
// no effect any more.
func (c *Child) follow(term, epoch int) {
	c.term, c.epoch, c.granted, c.acked = term, epoch, 0, 0
	if c.cfg.Without.keeps(FollowEndsLease) {
		c.lease = never // so the next report is the last word of the lease
	}
	for i := range c.accounts {
		c.accounts[i].got, c.accounts[i].total = 0, 0
	}
}

// Apply takes a grant.
func (c *Child) Apply(now Time, g *Grant) {
	if g.Term > c.term || (g.Term == c.term && g.Epoch > c.epoch) {
		c.follow(g.Term, g.Epoch)
	}
	if g.Term != c.term || g.Epoch != c.epoch || g.Instance != c.instance || g.Lines == nil {
		return
	}
	c.Pass(now)
	if g.Adopt && c.blank {
		c.blank = false
		for i := range g.Lines {
			c.accounts[i].credit = g.Lines[i].Held
		}
	}
	if c.blank {
		return
	}
	newer := g.Seq > c.granted
	c.granted = max(c.granted, g.Seq)
	c.revision = max(c.revision, g.Revision)
	c.lease, c.ended = max(c.lease, g.Lease), max(c.ended, g.Lease)
	c.watermark = max(c.watermark, g.Watermark)
	for i := range g.Lines {
		h := &c.accounts[i]
		h.sums.drop(c.watermark)
		c.take(h, &g.Lines[i], newer)
		if g.Acked > c.acked {
			h.told = max(h.told, h.reported[g.Acked])
			maps.DeleteFunc(h.reported, func(seq, _ int) bool { return seq < g.Acked })
		}
	}
	c.acked = max(c.acked, g.Acked)
	c.settle(now, g)
}

// take takes one account of a grant.
func (c *Child) take(h *holding, l *GrantLine, newer bool) {
	h.total = max(h.total, l.Total)
	if !c.cfg.Told {
		h.credit += h.total - h.got
		h.got = h.total
		return
	}
	used := h.sums.top(c.watermark) + h.credit
	if newer {
		h.ceiling = max(l.Ceiling, min(h.ceiling, used)) // what is out already stays below the older one
	}
	n := h.total - h.got
	if c.cfg.Without.keeps(BelowTold) {
		n = min(n, max(0, h.ceiling-used))
	}
	h.credit += n
	h.got += n
}

// leased reports whether the child may spend.
func (c *Child) leased(now Time) bool { return c.term > 0 && now <= c.lease }

// Admit spends a permit of each account and returns the expiry of the ticket.
func (c *Child) Admit(now Time) (expiry Time, ok bool) {
	c.Pass(now)
	if !c.leased(now) {
		return 0, false
	}
	for i := range c.accounts {
		if c.accounts[i].credit <= 0 {
			return 0, false
		}
	}
	for i := range c.accounts {
		c.spend(now, i)
	}
	return now + c.cfg.Accounts[0].Life, true
}

// MoveIn spends a session permit alone, for a session that is counted elsewhere.
func (c *Child) MoveIn(now Time) (expiry Time, ok bool) {
	c.Pass(now)
	if !c.leased(now) || c.accounts[0].credit <= 0 {
		return 0, false
	}
	c.spend(now, 0)
	return now + c.cfg.Accounts[0].Life, true
}

func (c *Child) spend(now Time, i int) {
	h := &c.accounts[i]
	h.credit--
	h.sums.add(now+c.cfg.Accounts[i].Life, 1)
}

// Renew replaces the ticket of a session that expires at old. A guest's ticket is counted nowhere, so it can be
// replaced by another one of that kind, or by a permit.
func (c *Child) Renew(now, old Time, was bool) (expiry Time, guest, ok bool) {
	c.Pass(now)
	h, expiry := &c.accounts[0], now+c.cfg.Accounts[0].Life
	leased := c.leased(now)
	switch {
	case old <= now || (!leased && !c.cfg.Serve), expiry <= old && c.cfg.Without.keeps(RenewLater):
		return 0, false, false
	case was && leased && c.cfg.Without.keeps(GuestTakesPermit):
		expiry, ok = c.MoveIn(now)
		return expiry, false, ok
	case (!was || !c.cfg.Without.keeps(GuestTakesPermit)) && c.covers(h, old, expiry):
		h.sums.add(old, -1)
		h.sums.add(expiry, 1)
		h.renewed++
		return expiry, false, true
	case !leased: // under serve it is served, and metered
		if c.cfg.Without.keeps(GuestsMetered) {
			c.guests++
			return expiry, true, true
		}
		return expiry, false, true
	}
	return 0, false, false
}

// covers reports whether a renewal is within what the leader has written.
func (c *Child) covers(h *holding, old, expiry Time) bool {
	if !c.cfg.Told {
		return h.renewed-h.told < c.cfg.Allowance || !c.cfg.Without.keeps(Allowance)
	}
	if !c.cfg.Without.keeps(BelowTold) {
		return true
	}
	s := append(Sums(nil), h.sums...)
	s.add(old, -1)
	s.add(expiry, 1)
	if !c.cfg.Without.keeps(LaterSeconds) {
		return s.after(c.watermark)+h.credit <= h.ceiling
	}
	return s.top(c.watermark)+h.credit <= h.ceiling
}

// Accepts reports whether the edge lets the session in without a permit.
func (c *Child) Accepts(now Time, id int, expiry Time) bool {
	if now >= expiry {
		return false
	}
	if !c.cfg.Ends {
		return true
	}
	c.Pass(now)
	_, denied := c.ends[id]
	return !denied && (c.informed || !c.cfg.Without.keeps(NewcomerTakesPermit))
}

// End takes a session's goodbye, or its revocation by the site.
func (c *Child) End(id int, expiry Time) {
	e := c.ends[id]
	if !e.begun {
		e.at, e.begun = expiry, true
	}
	if !c.cfg.Without.keeps(DenyBeforeEnd) {
		c.book(&e)
	}
	c.ends[id] = e
}

// settle takes what a grant says about ends. An end is booked as a ticket renewed away, and never replaced:
// that frees its permit.
func (c *Child) settle(now Time, g *Grant) {
	for _, id := range g.Deny {
		if _, ok := c.ends[id]; !ok {
			c.ends[id] = end{}
		}
	}
	if g.Complete && c.leased(now) {
		c.informed = true
	}
	for _, id := range g.Clear {
		e := c.ends[id]
		c.book(&e)
		c.ends[id] = e
	}
}

func (c *Child) book(e *end) {
	if e.begun && !e.booked {
		e.booked = true
		if e.at > c.watermark {
			c.accounts[0].sums.add(e.at, -1)
		}
	}
}
