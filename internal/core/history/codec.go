package history

import (
	"compress/flate"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/wire/wirepb"
)

// Bounds of decoded messages.
const (
	maxPoints  = 3600
	maxCentres = 1000
	maxBlock   = 8 << 20 // uncompressed
)

// EncodeSecond encodes the states of one second.
func EncodeSecond(at int64, states []State) ([]byte, error) {
	m := &wirepb.HistorySecond{AtS: at}
	for i := range states {
		s := &states[i]
		p := &wirepb.HistoryState{Room: s.Room, Values: s.Point.Values}
		for j, c := range s.Centres {
			p.Centres = append(p.Centres, &wirepb.HistoryCentre{
				Name: c.Name, Values: s.Point.Centres[j].Values, Term: c.Term, Counts: c.Counts,
				Joined: c.Joined, Admitted: c.Admitted, Entered: c.Entered, Waiting: c.Waiting,
			})
		}
		m.Rooms = append(m.Rooms, p)
	}
	return proto.Marshal(m)
}

// DecodeSecond decodes the states of one second.
func DecodeSecond(data []byte) (at int64, states []State, err error) {
	var m wirepb.HistorySecond
	if err := proto.Unmarshal(data, &m); err != nil {
		return 0, nil, fmt.Errorf("history: second: %w", err)
	}
	for _, p := range m.Rooms {
		s := State{Room: p.Room, Point: Point{At: m.AtS, Values: fit(p.Values, NumFields)}}
		if len(p.Centres) > maxCentres {
			return 0, nil, fmt.Errorf("history: second: at most %d data centres, got %d", maxCentres, len(p.Centres))
		}
		for _, c := range p.Centres {
			s.Point.Centres = append(s.Point.Centres, Centre{c.Name, fit(c.Values, NumCentreFields)})
			s.Centres = append(s.Centres, CentreState{c.Name, Report{
				Term: c.Term, Joined: c.Joined, Admitted: c.Admitted, Entered: c.Entered, Waiting: c.Waiting,
				Counts: c.Counts[:min(len(c.Counts), NumCounts)],
			}})
		}
		states = append(states, s)
	}
	return m.AtS, states, nil
}

// part returns the part i of all, of n elements.
func part[T any](all []T, i, n int) []T { return all[i*n : (i+1)*n : (i+1)*n] }

// fit returns v with n numbers: those that this build does not know are dropped, those that it misses are 0.
func fit(v []int64, n int) []int64 {
	out := make([]int64, n)
	copy(out, v)
	return out
}

// EncodeBlock encodes successive points of one room, at least one.
func EncodeBlock(points []Point) ([]byte, error) {
	m := &wirepb.HistoryBlock{AtS: points[0].At}
	var names []string
	for i, p := range points {
		if i > 0 {
			m.AfterS = append(m.AfterS, uint32(p.At-points[i-1].At))
		}
		for _, c := range p.Centres {
			if !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	for f := range NumFields {
		m.Values = append(m.Values, column(points, func(p *Point) int64 { return p.Values[f] }))
	}
	slices.Sort(names)
	for _, name := range names {
		c := &wirepb.HistoryCentreColumns{Name: name}
		for f := range NumCentreFields {
			c.Values = append(c.Values, column(points, func(p *Point) int64 { return p.centre(name, f) }))
		}
		m.Centres = append(m.Centres, c)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return compress.Deflate(nil, data, flate.DefaultCompression), nil
}

// centre returns a number of a data centre, 0 if it is missing in the point.
func (p *Point) centre(name string, f int) int64 {
	for _, c := range p.Centres {
		if c.Name == name {
			return c.Values[f]
		}
	}
	return 0
}

// column returns one number of all points.
func column(points []Point, of func(*Point) int64) []byte {
	var out []byte
	before, end := int64(0), 0
	for i := range points {
		n := of(&points[i])
		if out = protowire.AppendVarint(out, protowire.EncodeZigZag(n-before)); n != before {
			before, end = n, len(out)
		}
	}
	if end == 0 {
		return nil
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), out[:end])
}

// DecodeBlock decodes successive points of one room.
func DecodeBlock(data []byte) ([]Point, error) {
	plain, err := compress.Inflate(data, maxBlock)
	if err != nil {
		return nil, fmt.Errorf("history: block: %w", err)
	}
	var m wirepb.HistoryBlock
	if err := proto.Unmarshal(plain, &m); err != nil {
		return nil, fmt.Errorf("history: block: %w", err)
	}
	n := len(m.AfterS) + 1
	if n > maxPoints || len(m.Centres) > maxCentres {
		return nil, fmt.Errorf("history: block: at most %d points and %d data centres, got %d and %d", maxPoints, maxCentres,
			n, len(m.Centres))
	}
	points, values, centres := make([]Point, n), make([]int64, n*NumFields), make([]Centre, n*len(m.Centres))
	if err := fill(values, NumFields, m.Values); err != nil {
		return nil, err
	}
	for i := range points {
		points[i] = Point{At: m.AtS, Values: part(values, i, NumFields), Centres: part(centres, i, len(m.Centres))[:0]}
		if i > 0 {
			points[i].At = points[i-1].At + int64(m.AfterS[i-1])
		}
	}
	for _, c := range m.Centres {
		values := make([]int64, n*NumCentreFields)
		if err := fill(values, NumCentreFields, c.Values); err != nil {
			return nil, err
		}
		for i := range points {
			points[i].Centres = append(points[i].Centres, Centre{c.Name, part(values, i, NumCentreFields)})
		}
	}
	return points, nil
}

// fill writes columns into rows of a width. Columns that this build does not know are dropped.
func fill(rows []int64, width int, columns [][]byte) error {
	for f, c := range columns {
		if len(c) == 0 || f >= width {
			continue // zeros
		}
		number, kind, n := protowire.ConsumeTag(c)
		if n < 0 || number != 1 || kind != protowire.BytesType {
			return errors.New("history: block: not a column")
		}
		list, n := protowire.ConsumeBytes(c[n:])
		if n < 0 {
			return fmt.Errorf("history: block: %w", protowire.ParseError(n))
		}
		sum, at := int64(0), f
		for ; len(list) > 0; at += width {
			x, n := uint64(list[0]), 1
			if x > 0x7f {
				x, n = protowire.ConsumeVarint(list)
			}
			if n < 0 || at >= len(rows) {
				return errors.New("history: block: a column is longer than the block")
			}
			list = list[n:]
			sum += protowire.DecodeZigZag(x)
			rows[at] = sum
		}
		for ; at < len(rows) && sum != 0; at += width {
			rows[at] = sum
		}
	}
	return nil
}
