package ceilings

import "slices"

// Grants advances the leader to now and returns what it says to its children.
func (l *Lender) Grants(now Time) (out []Grant) {
	l.now = now
	if !l.Leads() {
		return nil
	}
	l.steps++
	for _, p := range l.promised {
		out = append(out, Grant{To: p.to, Instance: p.instance, Term: l.term, Epoch: p.epoch})
	}
	l.promised = nil
	for _, b := range l.kids {
		if !b.lapsed && b.heard && l.over(b) {
			l.lapse(b)
		}
	}
	l.advance()
	for _, b := range l.kids {
		if b.successor > b.doc.Instance && b.pending == nil {
			doc := b.doc
			doc.Instance = b.successor
			l.write(&b.record, doc)
		}
	}
	l.meterOvercommit()
	free := make([]int, len(l.limits))
	for a := range free {
		free[a] = l.Free(a)
		if l.suspect && l.watermark <= l.horizon+l.cfg.Accounts[0].Life {
			free[a] = 0
		}
	}
	deny, clear, complete := l.ends()
	for _, b := range l.kids {
		if g, ok := l.grant(b, free); ok {
			g.Deny, g.Clear, g.Complete = deny, clear[b.id], complete
			out = append(out, g)
		}
	}
	return out
}

// lapse ends an epoch of a child's leases. Grants on their way are void once it has reported the next.
func (l *Lender) lapse(b *borrower) {
	if b.lapsed = true; l.cfg.Without.keeps(EpochPerLapse) {
		b.epoch++
	}
}

// over reports whether the lease of a child is over by its own clock.
func (l *Lender) over(b *borrower) bool { return l.now > b.until+2*l.cfg.Bound }

// advance moves the watermark and lists children. What the store says is freed is freed: a replaced leader
// knows fewer children.
func (l *Lender) advance() {
	to := l.now
	if l.cfg.Without.keeps(ClockMargin) {
		to -= 2 * l.cfg.Bound // no clock reads less
	}
	for _, b := range l.kids {
		switch {
		case !b.heard:
			if !l.cfg.Told && l.cfg.Without.keeps(WaitForUnheard) && !l.over(b) {
				to = min(to, l.watermark)
			}
		case !l.over(b) && !b.lapsed:
			to = min(to, b.rep.Clock)
		}
	}
	if !l.cfg.Without.keeps(WatermarkStored) {
		l.watermark = max(l.watermark, to)
	}
	if !l.cfg.Without.keeps(WatermarkStored) {
		to = never
	}
	if l.head.pending != nil || (to <= l.head.doc.Watermark && len(l.enrol) == 0) {
		return
	}
	doc := l.head.doc
	doc.Watermark = max(doc.Watermark, to)
	doc.Children = slices.Concat(doc.Children, l.enrol)
	l.write(&l.head, doc)
}

// grant returns the answer to a child that was heard.
func (l *Lender) grant(b *borrower, free []int) (Grant, bool) {
	b.staged = nil
	if !l.current(b) {
		return Grant{}, false
	}
	covered := true
	for a := range free {
		n := l.out(b, a)
		if !l.cfg.Told && n > b.stored(a) {
			b.stage(a, l.ahead(n))
			covered = false
		}
	}
	if covered || !l.cfg.Without.keeps(CeilingBeforeAck) {
		b.acked = b.rep.Seq
	} else if l.cfg.Without.keeps(CeilingBeforeLease) {
		return Grant{}, false // a lease is an allowance to renew
	}
	b.seq++
	g := Grant{
		To: b.id, Instance: b.rep.Instance, Term: l.term, Epoch: b.epoch, Seq: b.seq, Acked: b.acked, Revision: l.revision,
		Watermark: l.watermark, Lease: b.rep.Clock + l.cfg.Lease, Adopt: b.adopt, Lines: make([]GrantLine, len(free)),
	}
	if !l.cfg.Without.keeps(LeaseAnswersReport) {
		g.Lease = l.now + l.cfg.Lease
	}
	if l.latest != 0 && l.cfg.Without.keeps(LeaseWithinLease) {
		g.Lease = min(g.Lease, l.latest)
	}
	b.until = max(b.until, g.Lease)
	for a := range free {
		give := 0
		if !b.adopt {
			give = l.give(b, a, free[a])
		}
		b.sent[a] += give
		free[a] -= give
		g.Lines[a] = GrantLine{Total: b.sent[a], Held: b.rep.Lines[a].Credit}
		if l.cfg.Told {
			g.Lines[a].Ceiling = l.ceiling(b, a)
		}
	}
	return g, true
}

// give returns how many permits a child gets, and has its ceiling raised or lowered.
func (l *Lender) give(b *borrower, a, free int) int {
	n := max(0, min(b.rep.Lines[a].Want-b.sent[a]+b.rep.Lines[a].Got, free))
	need := l.out(b, a) + n
	if l.cfg.Told {
		l.adjust(b, a, need)
		return min(n, max(0, b.stored(a)-need+n))
	}
	switch u := b.stored(a); {
	case n > 0 && need > u:
		b.stage(a, l.ahead(need))
		if l.cfg.Without.keeps(CeilingBeforeGrant) {
			return max(0, u-need+n)
		}
	case need < u && l.steps%max(1, l.cfg.Lazy) == 0:
		b.stage(a, max(0, need))
	}
	return n
}

// ahead is the ceiling for a need.
func (l *Lender) ahead(need int) int {
	return max(0, need) + max(l.cfg.Slack, need*min(1, l.cfg.Slack)/4)
}

// adjust has the ceiling of a child that is told it raised before it is needed, and lowered when the child
// follows a lower one.
func (l *Lender) adjust(b *borrower, a, need int) {
	u, most := b.stored(a), l.ahead(need+l.cfg.Allowance)
	if b.tell[a] >= u {
		b.tell[a] = 0
	}
	switch {
	case u < need+l.cfg.Allowance:
		b.stage(a, most)
		b.tell[a] = 0
	case u <= most:
		b.tell[a] = 0
	case l.steps%max(1, l.cfg.Lazy) != 0:
	case b.tell[a] == 0 || b.tell[a] < need:
		b.tell[a], b.since[a] = most, b.seq
	case !l.cfg.Without.keeps(LowerWhenFollowed):
		b.stage(a, b.tell[a])
	case b.rep.Granted >= b.since[a] && b.rep.Lines[a].Ceiling <= b.tell[a]:
		b.stage(a, b.tell[a])
	}
}

// ceiling is what the child is told.
func (l *Lender) ceiling(b *borrower, a int) int {
	u := b.stored(a)
	if !l.cfg.Without.keeps(StoredBeforeTold) && b.pending != nil {
		u = max(u, b.pending.Doc.ceiling(a))
	}
	if b.tell[a] > 0 {
		u = min(u, b.tell[a])
	}
	return u
}

// meterOvercommit counts the sessions that may live on at children that are given up under serve.
func (l *Lender) meterOvercommit() {
	l.Overcommit = 0
	for _, b := range l.kids {
		if l.cfg.Serve && !l.current(b) && l.passed(b, 0) {
			l.Overcommit += b.most(0)
		}
	}
}

// ends returns the ended sessions that every child is to refuse, and per child those that it may book. An end
// is booked once, where it was shown, when every listed child refuses the session.
func (l *Lender) ends() (deny []int, clear map[int][]int, complete bool) {
	if !l.cfg.Ends {
		return nil, nil, true
	}
	clear, complete = map[int][]int{}, true
	known := map[int]bool{}
	for _, b := range l.kids {
		complete = complete && (b.heard || l.passed(b, 0))
		for id := range b.rep.Ends {
			known[id] = true
		}
	}
	for id := range known {
		deny = append(deny, id)
	}
	slices.Sort(deny)
	for _, id := range deny {
		if owner := l.owner(id); owner != nil {
			owner.cleared = append(owner.cleared, id)
		}
	}
	for _, b := range l.kids {
		clear[b.id] = b.cleared
	}
	return deny, clear, complete
}

// owner returns the child that is to book an end, if it is time.
func (l *Lender) owner(id int) (owner *borrower) {
	for _, b := range l.kids {
		e, ok := b.rep.Ends[id]
		switch {
		case slices.Contains(b.cleared, id):
			if l.cfg.Without.keeps(EndOnce) {
				return nil
			}
			continue
		case e.booked && l.cfg.Without.keeps(EndOnce):
			return nil
		case !ok && !l.passed(b, 0):
			return nil
		case e.begun && !e.booked && owner == nil:
			owner = b
		}
	}
	return owner
}
