package ceilings

import (
	"cmp"
	"slices"
)

// Account is one limit: of sessions, or of admissions in a minute.
type Account struct {
	Limit int
	Life  Time // how long a used permit is busy
}

// Config is what all nodes of a world share.
type Config struct {
	Without   Without
	Accounts  []Account
	Lease     Time // of a child
	WriteGap  Time // between two writes of a document
	Overlap   Time // for how long a replaced leader may go on
	Bound     Time // |reading − fleet time| at any node
	Allowance int  // first form: renewals that are not acknowledged; second form: the least room to renew
	Slack     int  // ceilings are raised to this much above the need, or a quarter of it
	Lazy      int  // ceilings are lowered at every Lazy-th step
	Told      bool // second form: children are told their ceilings, and stay below
	Serve     bool // partition_policy
	LostAfter Time // under serve
	Ends      bool // sessions end before their tickets expire
	Bootstrap bool // an empty store is a new fleet
	Centre    bool // the children are data centres
}

// Lender lends the permits of its accounts to children. It is one leader: one term.
type Lender struct {
	cfg       *Config
	term      int
	now       Time // of the newest call
	born      Time
	horizon   Time // no lease of a predecessor ends later, by its child's clock
	watermark Time // seconds up to it are freed
	limits    []int
	latest    Time // no lease to a child ends later; 0 for no such limit
	head      record
	kids      []*borrower // by id; a kid is listed in the head that is stored
	enrol     []int
	promised  []promise
	revision  int // newest of the store
	replaced  bool
	suspect   bool // the store is older than what children were told, or empty
	steps     int

	Overcommit int // under serve: sessions that may be valid beyond the counted ones
}

type promise struct{ to, instance, epoch int }

// borrower is a child as its lender sees it.
type borrower struct {
	record
	id      int
	found   bool // on the list of a predecessor
	heard   bool
	lapsed  bool // its lease is over
	epoch   int  // of its leases
	rep     Report
	sent    []int // permits granted under our term
	tell    []int // ceilings as told
	since   []int // Seq of the first grant that told it
	until   Time  // it has no lease after this reading of its clock
	recv    Time
	acked   int
	seq     int
	adopted int // instance that was told what it holds

	successor int // a newer regional of a data centre, which is heard once that is stored
	adopt     bool
	cleared   []int
}

// NewLender returns the leader of a term that began now.
func NewLender(now Time, cfg *Config, term int) *Lender {
	l := &Lender{cfg: cfg, term: term, now: now, born: now, watermark: never, head: record{cfg: cfg, key: head}}
	l.horizon = now + cfg.Overlap + cfg.Lease + 2*cfg.Bound
	for _, a := range cfg.Accounts {
		l.limits = append(l.limits, a.Limit)
	}
	return l
}

// SetLimit sets what an account may have out.
func (l *Lender) SetLimit(account, n int) { l.limits[account] = n }

// SetLease limits the leases of children to that of the leader's data centre.
func (l *Lender) SetLease(until Time) { l.latest = until }

// Leads reports whether the leader has fenced every document that it found, so that it may lend.
func (l *Lender) Leads() bool {
	return !l.replaced && l.head.fenced && !slices.ContainsFunc(l.kids, func(b *borrower) bool { return b.found && !b.fenced })
}

func (l *Lender) find(id int) *borrower {
	i, ok := slices.BinarySearchFunc(l.kids, id, func(b *borrower, id int) int { return cmp.Compare(b.id, id) })
	if !ok {
		return nil
	}
	return l.kids[i]
}

// add lists a child.
func (l *Lender) add(id int) {
	if l.find(id) != nil {
		return
	}
	n := len(l.cfg.Accounts)
	b := &borrower{id: id, found: !l.head.fenced, record: record{cfg: l.cfg, key: Key(id)}, until: l.horizon, recv: l.born, sent: make([]int, n), tell: make([]int, n), since: make([]int, n)}
	i, _ := slices.BinarySearchFunc(l.kids, id, func(b *borrower, id int) int { return cmp.Compare(b.id, id) })
	l.kids = slices.Insert(l.kids, i, b)
	l.enrol = slices.DeleteFunc(l.enrol, func(x int) bool { return x == id })
}

// Observe takes a report.
func (l *Lender) Observe(now Time, r *Report) {
	l.now = now
	if !l.Leads() {
		return
	}
	if r.Term != l.term {
		if r.Term < l.term {
			l.promised = append(l.promised, promise{r.From, r.Instance, 0})
		}
		return
	}
	b := l.find(r.From)
	if b == nil {
		l.unlisted(r)
		return
	}
	if !b.fenced {
		return
	}
	switch {
	case r.Instance < b.doc.Instance && l.cfg.Without.keeps(OlderRegionalUnheard):
		return
	case r.Instance > b.doc.Instance && l.cfg.Without.keeps(InstanceStored):
		b.successor = max(b.successor, r.Instance)
		return
	case r.Blank && b.adopted != r.Instance:
		l.succeeded(b, r)
		return
	case r.Blank || (r.Instance == b.rep.Instance && r.Seq <= b.rep.Seq):
		return
	}
	if r.Epoch != b.epoch {
		l.promised = append(l.promised, promise{r.From, r.Instance, b.epoch})
		return
	}
	l.believe(now, b, r)
}

// believe counts a child by its report from now on.
func (l *Lender) believe(now Time, b *borrower, r *Report) {
	if b.lapsed && l.cfg.Without.keeps(EpochPerLapse) {
		clear(b.sent)
	}
	b.heard, b.lapsed, b.rep, b.recv, b.adopt = true, false, *r, now, false
	b.until = max(b.until, r.Clock+l.cfg.Lease) // our answer may be on its way
	if l.cfg.Without.keeps(WatermarkTaken) {
		l.watermark = max(l.watermark, r.Watermark)
	}
	older := l.cfg.Without.keeps(RevisionTold) && (r.Revision > l.revision || r.Watermark > l.head.doc.Watermark)
	if l.cfg.Told && l.cfg.Without.keeps(RevisionTold) {
		for i := range r.Lines {
			older = older || r.Lines[i].Ceiling > b.most(i)
		}
	}
	if older && !l.cfg.Bootstrap {
		l.suspect = true
	}
}

// unlisted has a child listed that is not.
func (l *Lender) unlisted(r *Report) {
	for i := range r.Lines {
		if !l.cfg.Bootstrap && l.cfg.Without.keeps(RevisionTold) && (r.Revision > 0 || len(r.Lines[i].Sums) > 0) {
			l.suspect = true
		}
	}
	if !l.cfg.Without.keeps(ListFirst) {
		l.add(r.From)
		return
	}
	if !slices.Contains(l.enrol, r.From) {
		l.enrol = append(l.enrol, r.From)
	}
}

// succeeded takes the first report of another regional of a data centre. It does not know what it holds, and is
// told: what we count, or, where nobody told us, what the others leave of the limit, at most the ceiling. Until
// it reports, the data centre counts with its ceiling.
func (l *Lender) succeeded(b *borrower, r *Report) {
	lines := make([]ReportLine, len(l.cfg.Accounts))
	for i := range lines {
		switch {
		case l.passed(b, i):
		case b.heard:
			lines[i].Credit = b.credit(i)
		case l.cfg.Without.keeps(BlankHoldsRest):
			lines[i].Credit = max(0, min(b.most(i), l.Free(i)+l.claim(b, i)))
		default:
			lines[i].Credit = b.most(i)
		}
		lines[i].Ceiling = b.most(i)
		b.sent[i] = 0
	}
	b.rep = Report{From: b.id, Instance: r.Instance, Term: l.term, Seq: r.Seq, Clock: r.Clock, Watermark: l.watermark, Lines: lines}
	b.adopted, b.adopt, b.heard, b.lapsed, b.recv = r.Instance, true, true, false, l.now
	b.until = max(b.until, r.Clock+l.cfg.Lease)
}

// credit returns what the child may have unspent: what it reported, and what was granted since.
func (b *borrower) credit(a int) int { return b.rep.Lines[a].Credit + b.sent[a] - b.rep.Lines[a].Got }

// out returns the most that a child which was heard may have out at any later second.
func (l *Lender) out(b *borrower, a int) int {
	s := b.rep.Lines[a].Sums
	n := s.after(l.watermark)
	if l.cfg.Without.keeps(LaterSeconds) {
		n = s.top(l.watermark)
	}
	n += b.credit(a)
	if a == 0 && !l.cfg.Told && l.cfg.Without.keeps(Allowance) {
		n += l.cfg.Allowance
	}
	return n
}

// current reports whether the report of a child can be counted with.
func (l *Lender) current(b *borrower) bool {
	if l.cfg.Told {
		return b.heard && !b.lapsed && (b.rep.Clock >= l.watermark || !l.cfg.Without.keeps(ReportAfterWatermark))
	}
	return b.heard && !b.lapsed
}

// passed reports whether no ticket can be valid that the child stamped, nor others' tickets that it renewed.
func (l *Lender) passed(b *borrower, a int) bool {
	if l.cfg.Serve {
		return l.now > b.recv+l.cfg.LostAfter && l.watermark > b.until
	}
	if !l.cfg.Without.keeps(UntilFreed) {
		return l.now > b.until+l.cfg.Accounts[a].Life
	}
	return l.watermark > b.until+l.cfg.Accounts[a].Life
}

// claim returns what the child counts with. The sum of a child alone may be negative, where others' tickets
// ended there.
func (l *Lender) claim(b *borrower, a int) int {
	switch {
	case b.adopt && !l.passed(b, a):
		return max(b.credit(a), b.most(a))
	case l.current(b) && l.cfg.Centre:
		return max(b.credit(a), b.rep.Lines[a].Out)
	case l.current(b):
		return b.rep.Lines[a].Sums.after(l.watermark) + b.credit(a)
	case l.passed(b, a):
		return 0
	case b.heard && !l.cfg.Told:
		return max(l.out(b, a), b.rep.Lines[a].Sums.after(l.watermark))
	case b.heard && !l.cfg.Without.keeps(ServeAtCeiling):
		return l.out(b, a)
	case b.heard || l.cfg.Without.keeps(UnheardAtCeiling):
		return b.most(a)
	}
	return 0
}

// Free returns what can be lent of an account.
func (l *Lender) Free(a int) int {
	free := l.limits[a]
	for _, b := range l.kids {
		free -= l.claim(b, a)
	}
	return free
}
