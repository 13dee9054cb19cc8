package wire

// Outbox holds ends or lines that are told with every message until one that carried
// them is acknowledged. Bounded by MaxEnds: what does not fit is not told,
// which costs use of the limit and no safety. The zero value is empty.
type Outbox[T End | Line] struct {
	queue []queued[T]
}

type queued[T End | Line] struct {
	told T
	n    uint64 // number given by Add
	sent uint64 // Seq of the first message that carried it, 0 before
}

// Add puts e into the box under number n; numbers ascend. It reports false for
// a full box.
func (o *Outbox[T]) Add(e T, n uint64) bool {
	if len(o.queue) >= MaxEnds {
		return false
	}
	o.queue = append(o.queue, queued[T]{told: e, n: n})
	return true
}

// Take returns what message seq is to carry: all that no message up to acked
// has brought over.
func (o *Outbox[T]) Take(seq, acked uint64) []T {
	o.Acked(acked)
	if len(o.queue) == 0 {
		return nil
	}
	out := make([]T, len(o.queue))
	for i := range o.queue {
		q := &o.queue[i]
		if q.sent == 0 {
			q.sent = seq
		}
		out[i] = q.told
	}
	return out
}

// Acked drops what messages up to acked have brought over.
func (o *Outbox[T]) Acked(acked uint64) {
	n := 0
	for n < len(o.queue) && o.queue[n].sent != 0 && o.queue[n].sent <= acked {
		n++
	}
	if n > 0 {
		o.queue = o.queue[:copy(o.queue, o.queue[n:])]
	}
}

// Again tells everything anew: the other side is another one, which has
// acknowledged nothing.
func (o *Outbox[T]) Again() {
	for i := range o.queue {
		o.queue[i].sent = 0
	}
}

// First returns the number of the oldest end that is still to be told; ok is
// false for an empty box.
func (o *Outbox[T]) First() (n uint64, ok bool) {
	if len(o.queue) == 0 {
		return 0, false
	}
	return o.queue[0].n, true
}

// Len returns how many ends are still to be told.
func (o *Outbox[T]) Len() int { return len(o.queue) }
