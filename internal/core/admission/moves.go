package admission

import "vestibule/internal/core/wire"

// moveLog holds the stamped tickets that the regional has not acknowledged. It is bounded: the oldest are dropped.
type moveLog struct {
	list  []wire.Move
	first uint64 // number of list[0], from 1
	sent  []moveMark
}

// moveMark records that report seq carried all moves before number next.
type moveMark struct{ seq, next uint64 }

// maxMarks bounds the number of unanswered reports that are tracked.
const maxMarks = 64

// add records a stamped ticket for the report. Dropping the oldest costs capacity but not safety.
func (l *moveLog) add(m wire.Move) {
	if len(l.list) == wire.MaxMoves {
		const dropped = wire.MaxMoves / 4
		l.list = l.list[:copy(l.list, l.list[dropped:])]
		l.first += dropped
	}
	l.list = append(l.list, m)
}

// unacknowledged returns the moves for report seq, and the number of the first.
func (l *moveLog) unacknowledged(seq uint64) (first uint64, moves []wire.Move) {
	next := l.first + uint64(len(l.list))
	if n := len(l.sent); n == 0 || l.sent[n-1].next != next {
		if n == maxMarks { // the parent has been silent for long: drop the oldest mark
			l.sent = l.sent[:copy(l.sent, l.sent[1:])]
		}
		l.sent = append(l.sent, moveMark{seq: seq, next: next})
	}
	if len(l.list) > 0 {
		moves = append([]wire.Move(nil), l.list...)
	}
	return l.first, moves
}

// acked removes the moves acknowledged with report seq.
func (l *moveLog) acked(seq uint64) {
	n := 0
	for n < len(l.sent) && l.sent[n].seq <= seq {
		n++
	}
	if n == 0 {
		return
	}
	next := l.sent[n-1].next
	l.sent = l.sent[:copy(l.sent, l.sent[n:])]
	if next > l.first {
		l.list = l.list[:copy(l.list, l.list[next-l.first:])]
		l.first = next
	}
}
