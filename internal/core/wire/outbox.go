package wire

// Outbox holds entries that are repeated in every message until acknowledged. It holds at most MaxEnds, or Most. An
// overflow costs use of the limit and no safety. The zero value is empty.
type Outbox[T End | Line | Stay] struct {
	Most  int // 0 for MaxEnds
	queue []queued[T]
}

type queued[T End | Line | Stay] struct {
	value T
	n     uint64 // number given to Add
	sent  uint64 // Seq of the first message with it, 0 before
}

// Add queues e under number n; numbers ascend. It reports false if the outbox is full.
func (o *Outbox[T]) Add(e T, n uint64) bool {
	if len(o.queue) >= max(o.Most, MaxEnds) {
		return false
	}
	o.queue = append(o.queue, queued[T]{value: e, n: n})
	return true
}

// Take returns the entries for message seq: the oldest that no message up to acked has delivered, at most MaxEnds.
func (o *Outbox[T]) Take(seq, acked uint64) []T { return o.TakeUpTo(MaxEnds, seq, acked) }

// TakeUpTo is Take for at most n entries.
func (o *Outbox[T]) TakeUpTo(n int, seq, acked uint64) []T {
	o.Acked(acked)
	if n = min(n, len(o.queue)); n == 0 {
		return nil
	}
	out := make([]T, n)
	for i := range out {
		q := &o.queue[i]
		if q.sent == 0 {
			q.sent = seq
		}
		out[i] = q.value
	}
	return out
}

// Acked drops the entries delivered by messages up to acked.
func (o *Outbox[T]) Acked(acked uint64) {
	n := 0
	for n < len(o.queue) && o.queue[n].sent != 0 && o.queue[n].sent <= acked {
		n++
	}
	if n > 0 {
		o.queue = o.queue[:copy(o.queue, o.queue[n:])]
	}
}

// Again marks all entries unsent, for a new peer that has acknowledged nothing.
func (o *Outbox[T]) Again() {
	for i := range o.queue {
		o.queue[i].sent = 0
	}
}

// First returns the number of the oldest entry; ok is false if the outbox is empty.
func (o *Outbox[T]) First() (n uint64, ok bool) {
	if len(o.queue) == 0 {
		return 0, false
	}
	return o.queue[0].n, true
}

// Unsent reports whether an entry was in no message yet.
func (o *Outbox[T]) Unsent() bool { return len(o.queue) > 0 && o.queue[len(o.queue)-1].sent == 0 }

// Len returns the number of entries.
func (o *Outbox[T]) Len() int { return len(o.queue) }
