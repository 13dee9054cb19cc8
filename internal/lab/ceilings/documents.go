package ceilings

import "slices"

// record is a document as its leader knows it. One write is under way at a time. It is repeated as it is until
// it is answered, because a lost answer does not tell whether it was done.
type record struct {
	cfg     *Config
	key     Key
	rev     int
	doc     Doc // as stored
	read    bool
	fenced  bool
	pending *Write
	sent    Time
	seq     int
	staged  map[int]int // ceilings to be written next, by account
	begun   Time        // the last write
}

// retry is after how many ticks a write is repeated.
const retry = 1

// stored returns the ceiling that is stored for certain, whatever becomes of a write under way.
func (r *record) stored(a int) int {
	if r.lowered() {
		return min(r.doc.ceiling(a), r.pending.Doc.ceiling(a))
	}
	return r.doc.ceiling(a)
}

// most returns the highest ceiling that may be stored.
func (r *record) most(a int) int {
	if r.lowered() {
		return max(r.doc.ceiling(a), r.pending.Doc.ceiling(a))
	}
	return r.doc.ceiling(a)
}

func (r *record) lowered() bool {
	return r.pending != nil && r.pending.Expect != readOnly && r.cfg.Without.keeps(LoweredWhenSent)
}

func (d *Doc) ceiling(a int) int {
	if a < len(d.Ceilings) {
		return d.Ceilings[a]
	}
	return 0
}

// write begins a write of doc.
func (l *Lender) write(r *record, doc Doc) {
	r.seq++
	doc.Term, doc.Seq = l.term, r.seq
	r.pending, r.sent, r.begun = &Write{Key: r.key, Expect: r.rev, Blind: !l.cfg.Without.keeps(CompareAndSet), Doc: doc}, never, l.now
}

// Writes returns what the leader asks of the store.
func (l *Lender) Writes(now Time) (list []Write) {
	l.now = now
	if l.replaced {
		return nil
	}
	l.flush(&l.head, &list)
	if !l.head.fenced {
		return list
	}
	for _, b := range l.kids {
		l.flush(&b.record, &list)
	}
	return list
}

// flush sends the write of a document that is due. A successor's first is the document as it found it, under
// its own term: from then on nobody else's revision is good.
func (l *Lender) flush(r *record, list *[]Write) {
	switch {
	case r.pending != nil:
	case !r.read:
		r.pending, r.sent = &Write{Key: r.key, Expect: readOnly}, never
	case !r.fenced:
		l.write(r, r.doc)
	case len(r.staged) > 0 && l.now-r.begun >= l.cfg.WriteGap:
		doc := r.doc
		doc.Ceilings = make([]int, len(l.cfg.Accounts))
		copy(doc.Ceilings, r.doc.Ceilings)
		for a, n := range r.staged {
			doc.Ceilings[a] = n
		}
		r.staged = nil
		l.write(r, doc)
	}
	if r.pending != nil && (r.sent == never || l.now-r.sent >= retry) {
		r.sent = l.now
		*list = append(*list, *r.pending)
	}
}

// Stored takes an answer of the store.
func (l *Lender) Stored(now Time, a *Answer) {
	l.now = now
	r := &l.head
	if a.Key != head {
		b := l.find(int(a.Key))
		if b == nil {
			return
		}
		r = &b.record
	}
	switch {
	case l.replaced || r.pending == nil || a.Of != r.pending.Doc.Seq:
	case a.Doc.Term > l.term:
		l.replaced = true
	case r.pending.Expect == readOnly:
		if !a.Done {
			r.read = true
			l.adopt(r, a)
			r.fenced = !l.cfg.Without.keeps(FenceAtStart)
		}
	case a.Doc.Term == l.term && a.Doc.Seq == r.pending.Doc.Seq: // done now, or earlier with a lost answer
		l.adopt(r, a)
		r.fenced = true
	case !r.fenced:
		l.adopt(r, a)
	default:
		l.rewrite(r, a)
	}
}

// adopt takes a document as the store has it.
func (l *Lender) adopt(r *record, a *Answer) {
	r.doc, r.rev, r.pending = a.Doc, a.Revision, nil
	l.revision = max(l.revision, a.Revision)
	if r.key != head {
		return
	}
	if !l.head.fenced && a.Revision == 0 && !l.cfg.Bootstrap && l.cfg.Without.keeps(EmptyIsUnknown) {
		l.suspect = true
	}
	if l.cfg.Without.keeps(WatermarkTaken) || l.head.fenced {
		l.watermark = max(l.watermark, a.Doc.Watermark)
	}
	for _, id := range a.Doc.Children {
		l.add(id)
	}
}

// rewrite writes every document again, because the store lost this one or has it older than it was. A leader that
// lives knows better.
func (l *Lender) rewrite(r *record, a *Answer) {
	if !l.cfg.Without.keeps(LeaderRewrites) {
		r.rev = a.Revision
		l.write(r, r.pending.Doc)
		return
	}
	r.rev = a.Revision
	doc := r.pending.Doc
	if r.key != head {
		doc.Ceilings = slices.Clone(doc.Ceilings)
		for i := range doc.Ceilings {
			doc.Ceilings[i] = max(doc.Ceilings[i], r.doc.ceiling(i), a.Doc.ceiling(i))
		}
	}
	l.write(r, doc)
	for _, b := range l.kids {
		if b.pending == nil {
			l.write(&b.record, b.doc)
		}
	}
	if l.head.pending == nil {
		l.write(&l.head, l.head.doc)
	}
}

// stage asks for a ceiling with the next write of the child's document.
func (b *borrower) stage(a, n int) {
	if b.doc.ceiling(a) == n {
		return
	}
	if b.staged == nil {
		b.staged = map[int]int{}
	}
	b.staged[a] = n
}
