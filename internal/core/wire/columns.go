package wire

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire/pb"
)

// This file packs lists into columns of equal length, one per field, and unpacks them.

// columns is a list as a message of columns; an empty list is left out. Errors begin with its name, if it has one.
func columns[M any, S ~[]T, T, W any](number protowire.Number, name string, fields pb.Message[W], pack func(*S) W,
	unpack func(*W) (S, error), at func(*M) *S,
) pb.Field[M] {
	codec := pb.Convert(fields, pack, unpack)
	return pb.Sub(number, name, codec, func(list *S) bool { return len(*list) > 0 }, at)
}

// sessions is a list of expiry seconds. It is encoded without a copy: it is long, and every snapshot has it.
func sessions[M any](number protowire.Number, at func(*M) *[]Expiry) pb.Field[M] {
	return pb.Custom(number, func(b []byte, m *M) []byte {
		list := *at(m)
		if len(list) == 0 {
			return b
		}
		return pb.Sized(b, number, func(b []byte) []byte {
			b = pb.Sized(b, 1, func(b []byte) []byte {
				last := uint32(0)
				for i := range list {
					b = protowire.AppendVarint(b, uint64(list[i].Until-last))
					last = list[i].Until
				}
				return b
			})
			b = pb.Sized(b, 2, func(b []byte) []byte {
				for i := range list {
					b = protowire.AppendVarint(b, list[i].Stamped)
				}
				return b
			})
			return pb.Sized(b, 3, func(b []byte) []byte {
				for i := range list {
					b = protowire.AppendVarint(b, list[i].Consumed)
				}
				return b
			})
		})
	}, func(m *M, data []byte) error {
		var p sessionColumns
		err := sessionFields.Decode(&p, data)
		if err == nil {
			*at(m), err = unpackSessions(&p)
		}
		return err
	})
}

type sessionColumns struct {
	until             []uint32 // the first absolute, the others as differences
	stamped, consumed []uint64
}

var sessionFields = pb.Message[sessionColumns]{
	pb.List(1, pb.Varint, func(p *sessionColumns) *[]uint32 { return &p.until }),
	pb.List(2, pb.Varint, func(p *sessionColumns) *[]uint64 { return &p.stamped }),
	pb.List(3, pb.Varint, func(p *sessionColumns) *[]uint64 { return &p.consumed }),
}

func unpackSessions(p *sessionColumns) ([]Expiry, error) {
	n := len(p.until)
	if n != len(p.stamped) || n != len(p.consumed) || n > maxExpirys {
		return nil, fmt.Errorf("sessions: columns must be equally long and hold at most %d seconds", maxExpirys)
	}
	if n == 0 {
		return nil, nil
	}
	out := make([]Expiry, n)
	last := uint32(0)
	for i, d := range p.until {
		if d > math.MaxUint32-last || (i > 0 && d == 0) {
			return nil, errors.New("sessions: seconds must ascend")
		}
		last += d
		out[i] = Expiry{Until: last, Stamped: p.stamped[i], Consumed: p.consumed[i]}
	}
	return out, nil
}

type moveColumns struct {
	first       uint64 // number of the first move
	base        uint32 // Unix second: base of the columns below
	id          []uint64
	from, until []int32 // from is base + 1 + from; 0 is an admission

	// The presented versions, zeros for none; the columns are empty if there are none.
	stamp, parent, root []uint32
	seen                []int32
}

var moveFields = pb.Message[moveColumns]{
	pb.Int(1, func(p *moveColumns) *uint64 { return &p.first }),
	pb.Int(2, func(p *moveColumns) *uint32 { return &p.base }),
	pb.List(3, pb.Fixed64, func(p *moveColumns) *[]uint64 { return &p.id }),
	pb.List(4, pb.Zigzag, func(p *moveColumns) *[]int32 { return &p.from }),
	pb.List(5, pb.Zigzag, func(p *moveColumns) *[]int32 { return &p.until }),
	pb.List(6, pb.Fixed32, func(p *moveColumns) *[]uint32 { return &p.stamp }),
	pb.List(7, pb.Fixed32, func(p *moveColumns) *[]uint32 { return &p.parent }),
	pb.List(8, pb.Fixed32, func(p *moveColumns) *[]uint32 { return &p.root }),
	pb.List(9, pb.Zigzag, func(p *moveColumns) *[]int32 { return &p.seen }),
}

// any reports whether the columns are encoded.
func (p *moveColumns) any() bool { return p.first != 0 || len(p.id) > 0 }

func packMoves(first uint64, moves []Move) moveColumns {
	n := len(moves)
	if n == 0 {
		return moveColumns{first: first}
	}
	s := moveColumns{
		first: first, base: moves[0].Until, id: make([]uint64, n), from: make([]int32, n), until: make([]int32, n),
	}
	for i, m := range moves {
		s.id[i], s.until[i] = m.ID, int32(m.Until-s.base)
		if m.From != 0 {
			if s.from[i] = int32(m.From - s.base); s.from[i] <= 0 {
				s.from[i]-- // 0 means admission
			}
		}
	}
	if slices.ContainsFunc(moves, func(m Move) bool { return m.Shown.Stamp != 0 }) {
		s.stamp, s.parent, s.root, s.seen = make([]uint32, n), make([]uint32, n), make([]uint32, n), make([]int32, n)
		for i := range moves {
			if v := &moves[i].Shown; v.Stamp != 0 {
				s.stamp[i], s.parent[i], s.root[i], s.seen[i] = v.Stamp, v.Parent, v.Root, int32(v.Seen-s.base)
			}
		}
	}
	return s
}

func unpackMoves(p *moveColumns) ([]Move, error) {
	n := len(p.id)
	if n != len(p.from) || n != len(p.until) || n > MaxMoves {
		return nil, fmt.Errorf("moves: columns must be equally long and hold at most %d moves", MaxMoves)
	}
	shown := len(p.stamp)
	if shown != len(p.parent) || shown != len(p.root) || shown != len(p.seen) || (shown != 0 && shown != n) {
		return nil, errors.New("moves: columns of versions must be empty or as long as the others")
	}
	if n == 0 {
		return nil, nil
	}
	out := make([]Move, n)
	for i, id := range p.id {
		m := Move{ID: id, Until: p.base + uint32(p.until[i])}
		if d := p.from[i]; d > 0 {
			m.From = p.base + uint32(d)
		} else if d < 0 {
			m.From = p.base + uint32(d+1)
		}
		if shown > 0 && p.stamp[i] != 0 {
			m.Shown = reuse.Version{
				Stamp: p.stamp[i], Parent: p.parent[i], Root: p.root[i], Seen: p.base + uint32(p.seen[i]),
			}
		}
		out[i] = m
	}
	return out, nil
}

func lines[M any](number protowire.Number, name string, at func(*M) *[]Line) pb.Field[M] {
	return columns(number, name, lineFields, packLines, unpackLines, at)
}

type lineColumns struct {
	id    []uint64
	stamp []uint32
}

var lineFields = pb.Message[lineColumns]{
	pb.List(1, pb.Fixed64, func(p *lineColumns) *[]uint64 { return &p.id }),
	pb.List(2, pb.Fixed32, func(p *lineColumns) *[]uint32 { return &p.stamp }),
}

func packLines(lines *[]Line) (p lineColumns) {
	for _, l := range *lines {
		p.id, p.stamp = append(p.id, l.ID), append(p.stamp, l.Stamp)
	}
	return p
}

func unpackLines(p *lineColumns) ([]Line, error) {
	n := len(p.id)
	if n != len(p.stamp) || n > MaxEnds {
		return nil, fmt.Errorf("lines: columns must be equally long and hold at most %d", MaxEnds)
	}
	var out []Line
	for i, id := range p.id {
		out = append(out, Line{ID: id, Stamp: p.stamp[i]})
	}
	return out, nil
}

func ends[M any](number protowire.Number, at func(*M) *[]End) pb.Field[M] {
	return columns(number, "", endFields, packEnds, unpackEnds, at)
}

type endColumns struct {
	id          []uint64
	home, until []uint32
	kind        []uint32
	shown       []uint32 // empty if all are unknown
}

var endFields = pb.Message[endColumns]{
	pb.List(1, pb.Fixed64, func(p *endColumns) *[]uint64 { return &p.id }),
	pb.List(2, pb.Fixed32, func(p *endColumns) *[]uint32 { return &p.home }),
	pb.List(3, pb.Varint, func(p *endColumns) *[]uint32 { return &p.until }),
	pb.List(4, pb.Varint, func(p *endColumns) *[]uint32 { return &p.kind }),
	pb.List(5, pb.Varint, func(p *endColumns) *[]uint32 { return &p.shown }),
}

func packEnds(ends *[]End) (p endColumns) {
	n := len(*ends)
	p = endColumns{id: make([]uint64, n), home: make([]uint32, n), until: make([]uint32, n), kind: make([]uint32, n)}
	for i, e := range *ends {
		p.id[i], p.home[i], p.until[i], p.kind[i] = e.ID, e.Home, e.Until, uint32(e.Kind)
		if e.Shown != 0 && p.shown == nil {
			p.shown = make([]uint32, n)
		}
		if p.shown != nil {
			p.shown[i] = e.Shown
		}
	}
	return p
}

func unpackEnds(p *endColumns) ([]End, error) {
	n := len(p.id)
	if n != len(p.home) || n != len(p.until) || n != len(p.kind) || (len(p.shown) > 0 && n != len(p.shown)) || n > MaxEnds {
		return nil, fmt.Errorf("ends: columns must be equally long and hold at most %d", MaxEnds)
	}
	if n == 0 {
		return nil, nil
	}
	out := make([]End, n)
	for i, id := range p.id {
		kind := p.kind[i]
		if kind < uint32(Moved) || kind > uint32(Cleared) {
			return nil, fmt.Errorf("ends[%d]: kind: unknown %d", i, kind)
		}
		out[i] = End{ID: id, Home: p.home[i], Until: p.until[i], Kind: EndKind(kind)}
		if len(p.shown) > 0 {
			out[i].Shown = p.shown[i]
		}
	}
	return out, nil
}

// The lists of sessions that change data centres. Unlike columns they can gain fields.
var askFields = pb.Message[Ask]{
	pb.Fixed(1, func(a *Ask) *uint64 { return &a.ID }),
	pb.Int(2, func(a *Ask) *uint32 { return &a.Home }),
	pb.Int(3, func(a *Ask) *uint32 { return &a.For }),
	pb.Int(4, func(a *Ask) *uint32 { return &a.Shown }),
	pb.Int(5, func(a *Ask) *uint32 { return &a.Until }),
}

var transferFields = pb.Message[Transfer]{
	pb.Fixed(1, func(t *Transfer) *uint64 { return &t.ID }),
	pb.Int(2, func(t *Transfer) *uint32 { return &t.From }),
	pb.Int(3, func(t *Transfer) *uint32 { return &t.To }),
	pb.Int(4, func(t *Transfer) *uint64 { return &t.Tag }),
	pb.Int(5, func(t *Transfer) *uint64 { return &t.N }),
	pb.Int(6, func(t *Transfer) *uint32 { return &t.Until }),
}

var takenFields = pb.Message[Taken]{
	pb.Int(1, func(t *Taken) *uint32 { return &t.From }),
	pb.Int(2, func(t *Taken) *uint32 { return &t.To }),
	pb.Int(3, func(t *Taken) *uint64 { return &t.Tag }),
	pb.Int(4, func(t *Taken) *uint64 { return &t.N }),
}

var stayFields = pb.Message[Stay]{
	pb.Fixed(1, func(s *Stay) *uint64 { return &s.ID }),
	pb.Int(2, func(s *Stay) *uint32 { return &s.Home }),
	pb.Int(3, func(s *Stay) *uint32 { return &s.Until }),
	pb.Int(4, func(s *Stay) *uint32 { return &s.Marked }),
}

func histogram[M any](number protowire.Number, name string, at func(*M) *estimate.Histogram) pb.Field[M] {
	return columns(number, name, histogramFields, packHistogram, unpackHistogram, at)
}

type histogramColumns struct {
	start []int64 // the first absolute, the others from the previous end
	width []uint64
	n     []float32
}

var histogramFields = pb.Message[histogramColumns]{
	pb.List(1, pb.Zigzag, func(p *histogramColumns) *[]int64 { return &p.start }),
	pb.List(2, pb.Varint, func(p *histogramColumns) *[]uint64 { return &p.width }),
	pb.Floats(3, func(p *histogramColumns) *[]float32 { return &p.n }),
}

func packHistogram(h *estimate.Histogram) histogramColumns {
	n := len(*h)
	p := histogramColumns{start: make([]int64, n), width: make([]uint64, n), n: make([]float32, n)}
	last := fleettime.Time(0)
	for i, s := range *h {
		p.start[i], p.width[i], p.n[i] = int64(s.Start-last), uint64(s.Width), float32(s.N)
		last = s.End()
	}
	return p
}

// maxTime bounds join times, in milliseconds: far above real ones, and a sum of two cannot overflow.
const maxTime = 1 << 50

func unpackHistogram(p *histogramColumns) (estimate.Histogram, error) {
	n := len(p.start)
	if n != len(p.width) || n != len(p.n) || n > MaxSlices {
		return nil, fmt.Errorf("columns must be equally long and hold at most %d slices", MaxSlices)
	}
	if n == 0 {
		return nil, nil
	}
	h := make(estimate.Histogram, n)
	last := int64(0)
	for i, d := range p.start {
		w, people := p.width[i], float64(p.n[i])
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
