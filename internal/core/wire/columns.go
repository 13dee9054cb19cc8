package wire

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire/wirepb"
)

// This file packs lists into columns of equal length, one per field, and unpacks them.

func packSessions(sessions []Expiry) *wirepb.Sessions {
	n := len(sessions)
	if n == 0 {
		return nil
	}
	s := &wirepb.Sessions{Until: make([]uint32, n), Stamped: make([]uint64, n), Consumed: make([]uint64, n)}
	last := uint32(0)
	for i, e := range sessions {
		s.Until[i], s.Stamped[i], s.Consumed[i] = e.Until-last, e.Stamped, e.Consumed
		last = e.Until
	}
	return s
}

func unpackSessions(p *wirepb.Sessions) ([]Expiry, error) {
	n := len(p.GetUntil())
	if n != len(p.GetStamped()) || n != len(p.GetConsumed()) || n > maxExpirys {
		return nil, fmt.Errorf("sessions: columns must be equally long and hold at most %d seconds", maxExpirys)
	}
	if n == 0 {
		return nil, nil
	}
	out := make([]Expiry, n)
	last := uint32(0)
	for i, d := range p.GetUntil() {
		if d > math.MaxUint32-last || (i > 0 && d == 0) {
			return nil, errors.New("sessions: seconds must ascend")
		}
		last += d
		out[i] = Expiry{Until: last, Stamped: p.GetStamped()[i], Consumed: p.GetConsumed()[i]}
	}
	return out, nil
}

// fillMoves packs moves into s; nil for none.
func fillMoves(s *wirepb.Moves, first uint64, moves []Move) *wirepb.Moves {
	n := len(moves)
	if n == 0 && first == 0 {
		return nil
	}
	s.Reset()
	s.First, s.Id, s.From, s.Until = first, make([]uint64, n), make([]int32, n), make([]int32, n)
	if n > 0 {
		s.Base = moves[0].Until
	}
	for i, m := range moves {
		s.Id[i], s.Until[i] = m.ID, int32(m.Until-s.Base)
		if m.From != 0 {
			if s.From[i] = int32(m.From - s.Base); s.From[i] <= 0 {
				s.From[i]-- // 0 means admission
			}
		}
	}
	if slices.ContainsFunc(moves, func(m Move) bool { return m.Shown.Stamp != 0 }) {
		s.Stamp, s.Parent, s.Root, s.Seen = make([]uint32, n), make([]uint32, n), make([]uint32, n), make([]int32, n)
		for i := range moves {
			if v := &moves[i].Shown; v.Stamp != 0 {
				s.Stamp[i], s.Parent[i], s.Root[i], s.Seen[i] = v.Stamp, v.Parent, v.Root, int32(v.Seen-s.Base)
			}
		}
	}
	return s
}

func unpackMoves(p *wirepb.Moves) (uint64, []Move, error) {
	n := len(p.GetId())
	if n != len(p.GetFrom()) || n != len(p.GetUntil()) || n > MaxMoves {
		return 0, nil, fmt.Errorf("moves: columns must be equally long and hold at most %d moves", MaxMoves)
	}
	shown := len(p.GetStamp())
	if shown != len(p.GetParent()) || shown != len(p.GetRoot()) || shown != len(p.GetSeen()) ||
		(shown != 0 && shown != n) {
		return 0, nil, errors.New("moves: columns of versions must be empty or as long as the others")
	}
	if n == 0 {
		return p.GetFirst(), nil, nil
	}
	out := make([]Move, n)
	for i, id := range p.GetId() {
		m := Move{ID: id, Until: p.GetBase() + uint32(p.GetUntil()[i])}
		if d := p.GetFrom()[i]; d > 0 {
			m.From = p.GetBase() + uint32(d)
		} else if d < 0 {
			m.From = p.GetBase() + uint32(d+1)
		}
		if shown > 0 && p.GetStamp()[i] != 0 {
			m.Shown = reuse.Version{
				Stamp: p.GetStamp()[i], Parent: p.GetParent()[i], Root: p.GetRoot()[i], Seen: p.GetBase() + uint32(p.GetSeen()[i]),
			}
		}
		out[i] = m
	}
	return p.GetFirst(), out, nil
}

func packLines(lines []Line) *wirepb.Lines {
	n := len(lines)
	if n == 0 {
		return nil
	}
	p := &wirepb.Lines{Id: make([]uint64, n), Stamp: make([]uint32, n)}
	for i, l := range lines {
		p.Id[i], p.Stamp[i] = l.ID, l.Stamp
	}
	return p
}

func unpackLines(p *wirepb.Lines) ([]Line, error) {
	n := len(p.GetId())
	if n != len(p.GetStamp()) || n > MaxEnds {
		return nil, fmt.Errorf("lines: columns must be equally long and hold at most %d", MaxEnds)
	}
	if n == 0 {
		return nil, nil
	}
	out := make([]Line, n)
	for i := range out {
		out[i] = Line{ID: p.GetId()[i], Stamp: p.GetStamp()[i]}
	}
	return out, nil
}

func packEnds(ends []End) *wirepb.Ends {
	n := len(ends)
	if n == 0 {
		return nil
	}
	p := &wirepb.Ends{Id: make([]uint64, n), Home: make([]uint32, n), Until: make([]uint32, n), Kind: make([]uint32, n)}
	for i, e := range ends {
		p.Id[i], p.Home[i], p.Until[i], p.Kind[i] = e.ID, e.Home, e.Until, uint32(e.Kind)
		if e.Shown != 0 && p.Shown == nil {
			p.Shown = make([]uint32, n)
		}
		if p.Shown != nil {
			p.Shown[i] = e.Shown
		}
	}
	return p
}

func unpackEnds(p *wirepb.Ends) ([]End, error) {
	n := len(p.GetId())
	if n != len(p.GetHome()) || n != len(p.GetUntil()) || n != len(p.GetKind()) ||
		(len(p.GetShown()) > 0 && n != len(p.GetShown())) || n > MaxEnds {
		return nil, fmt.Errorf("ends: columns must be equally long and hold at most %d", MaxEnds)
	}
	if n == 0 {
		return nil, nil
	}
	out := make([]End, n)
	for i := range out {
		kind := p.GetKind()[i]
		if kind < uint32(Moved) || kind > uint32(Cleared) {
			return nil, fmt.Errorf("ends[%d]: kind: unknown %d", i, kind)
		}
		out[i] = End{ID: p.GetId()[i], Home: p.GetHome()[i], Until: p.GetUntil()[i], Kind: EndKind(kind)}
		if len(p.GetShown()) > 0 {
			out[i].Shown = p.GetShown()[i]
		}
	}
	return out, nil
}

func packLine(h estimate.Histogram) *wirepb.Line {
	if len(h) == 0 {
		return nil
	}
	p := &wirepb.Line{StartMs: make([]int64, len(h)), WidthMs: make([]uint64, len(h)), N: make([]float32, len(h))}
	last := fleettime.Time(0)
	for i, s := range h {
		p.StartMs[i], p.WidthMs[i], p.N[i] = int64(s.Start-last), uint64(s.Width), float32(s.N)
		last = s.End()
	}
	return p
}

// maxTime bounds join times, in milliseconds: far above real ones, and a sum of two cannot overflow.
const maxTime = 1 << 50

func unpackLine(p *wirepb.Line) (estimate.Histogram, error) {
	n := len(p.GetStartMs())
	if n != len(p.GetWidthMs()) || n != len(p.GetN()) || n > MaxSlices {
		return nil, fmt.Errorf("columns must be equally long and hold at most %d slices", MaxSlices)
	}
	if n == 0 {
		return nil, nil
	}
	h := make(estimate.Histogram, n)
	last := int64(0)
	for i, d := range p.GetStartMs() {
		w, people := p.GetWidthMs()[i], float64(p.GetN()[i])
		if (i > 0 && d < 0) || d > maxTime || d < -maxTime || w == 0 || w > maxTime || math.Abs(float64(last+d)) > maxTime {
			return nil, fmt.Errorf("slice %d: slices must ascend without overlap, each at least 1 ms wide", i)
		}
		if math.IsNaN(people) || math.IsInf(people, 0) {
			return nil, fmt.Errorf("slice %d: n: must be a number", i)
		}
		h[i] = estimate.Slice{Start: fleettime.Time(last + d), Width: int64(w), N: people}
		last = int64(h[i].End())
	}
	return h, nil
}

// isCount reports whether x is a valid count.
func isCount(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }
