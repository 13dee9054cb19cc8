package admission

import "vestibule/internal/core/wire"

// moveLog are the tickets that were stamped and of which the regional has not
// acknowledged to know. Bounded: the oldest give way.
type moveLog struct {
	list  []wire.Move
	first uint64 // number of list[0], from 1
	sent  []moveMark
}

// moveMark says that the report seq carried all moves before number next.
type moveMark struct{ seq, next uint64 }

// maxMarks bounds how many unanswered reports are told apart.
const maxMarks = 64

// add notes a stamping for the report; the oldest give way, which costs use
// of the limit and no safety.
func (l *moveLog) add(m wire.Move) {
	if len(l.list) == wire.MaxMoves {
		const dropped = wire.MaxMoves / 4
		l.list = l.list[:copy(l.list, l.list[dropped:])]
		l.first += dropped
	}
	l.list = append(l.list, m)
}

// take returns what report seq is to carry, and the number of the first.
func (l *moveLog) take(seq uint64) (first uint64, moves []wire.Move) {
	next := l.first + uint64(len(l.list))
	if n := len(l.sent); n == 0 || l.sent[n-1].next != next {
		if n == maxMarks { // the parent has been silent for long: let the oldest mark go
			l.sent = l.sent[:copy(l.sent, l.sent[1:])]
		}
		l.sent = append(l.sent, moveMark{seq: seq, next: next})
	}
	if len(l.list) > 0 {
		moves = append([]wire.Move(nil), l.list...)
	}
	return l.first, moves
}

// acked forgets the moves that the regional has taken with report seq.
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
