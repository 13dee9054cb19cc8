package history

import (
	"compress/flate"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/wire/pb"
)

// Bounds of decoded messages.
const (
	maxPoints  = 3600
	maxCentres = 1000
	maxBlock   = 8 << 20 // uncompressed
)

// second is what the leading global records of all rooms at one second.
type second struct {
	at    int64
	rooms []State // those that changed, and at the end of a minute all
}

var secondFields = pb.Message[second]{
	pb.Int(1, func(s *second) *int64 { return &s.at }),
	pb.Repeated(2, "rooms", math.MaxInt, stateCodec, func(s *second) *[]State { return &s.rooms }),
}

// state is a State as encoded: with the numbers of each data centre beside its report.
type state struct {
	room    uint64
	values  []int64
	centres []stateCentre
}

type stateCentre struct {
	CentreState
	values []int64
}

var stateCodec = pb.Convert(stateFields, packState, unpackState)

var stateFields = pb.Message[state]{
	pb.Fixed(1, func(s *state) *uint64 { return &s.room }),
	pb.List(2, pb.Zigzag, func(s *state) *[]int64 { return &s.values }),
	pb.Repeated(3, "centres", maxCentres, stateCentreFields, func(s *state) *[]stateCentre { return &s.centres }),
}

var stateCentreFields = pb.Message[stateCentre]{
	pb.String(1, func(c *stateCentre) *string { return &c.Name }),
	pb.List(2, pb.Zigzag, func(c *stateCentre) *[]int64 { return &c.values }),
	pb.Int(3, func(c *stateCentre) *uint64 { return &c.Term }),
	pb.List(4, pb.Varint, func(c *stateCentre) *Counts { return &c.Counts }),
	pb.Int(5, func(c *stateCentre) *uint64 { return &c.Joined }),
	pb.Int(6, func(c *stateCentre) *uint64 { return &c.Admitted }),
	pb.Int(7, func(c *stateCentre) *uint64 { return &c.Entered }),
	pb.Signed(8, func(c *stateCentre) *int64 { return &c.Waiting }),
}

func packState(s *State) state {
	p := state{room: s.Room, values: s.Point.Values}
	for i, c := range s.Centres {
		p.centres = append(p.centres, stateCentre{c, s.Point.Centres[i].Values})
	}
	return p
}

func unpackState(p *state) (State, error) {
	s := State{Room: p.room, Point: Point{Values: fit(p.values, NumFields)}}
	for _, c := range p.centres {
		c.Counts = c.Counts[:min(len(c.Counts), NumCounts)]
		s.Point.Centres = append(s.Point.Centres, Centre{c.Name, fit(c.values, NumCentreFields)})
		s.Centres = append(s.Centres, c.CentreState)
	}
	return s, nil
}

// EncodeSecond encodes the states of one second.
func EncodeSecond(at int64, states []State) []byte {
	return secondFields.Append(nil, &second{at, states})
}

// DecodeSecond decodes the states of one second.
func DecodeSecond(data []byte) (at int64, states []State, err error) {
	var s second
	if err := secondFields.Decode(&s, data); err != nil {
		return 0, nil, fmt.Errorf("history: second: %w", err)
	}
	for i := range s.rooms {
		s.rooms[i].Point.At = s.at
	}
	return s.at, s.rooms, nil
}

// part returns the part i of all, of n elements.
func part[T any](all []T, i, n int) []T { return all[i*n : (i+1)*n : (i+1)*n] }

// fit returns v with n numbers: those that this build does not know are dropped, those that it misses are 0.
func fit(v []int64, n int) []int64 {
	out := make([]int64, n)
	copy(out, v)
	return out
}

// block has successive points of one room. A column is one number of all points.
type block struct {
	at      int64    // of the first point
	after   []uint32 // of the other points, since the one before
	values  [][]byte
	centres []blockCentre
}

// blockCentre has the columns of a data centre, 0 in points that it is missing in.
type blockCentre struct {
	name   string
	values [][]byte
}

var blockFields = pb.Message[block]{
	pb.Int(1, func(b *block) *int64 { return &b.at }),
	pb.List(2, pb.Varint, func(b *block) *[]uint32 { return &b.after }),
	columns(3, func(b *block) *[][]byte { return &b.values }),
	pb.Repeated(4, "centres", maxCentres, blockCentreFields, func(b *block) *[]blockCentre { return &b.centres }),
}

var blockCentreFields = pb.Message[blockCentre]{
	pb.String(1, func(c *blockCentre) *string { return &c.name }),
	columns(2, func(c *blockCentre) *[][]byte { return &c.values }),
}

// columns are encoded columns, which share the memory of the decoded message.
func columns[M any](number protowire.Number, at func(*M) *[][]byte) pb.Field[M] {
	return pb.Custom(number, func(b []byte, m *M) []byte {
		for _, c := range *at(m) {
			b = protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), c)
		}
		return b
	}, func(m *M, data []byte) error {
		*at(m) = append(*at(m), data)
		return nil
	})
}

// EncodeBlock encodes successive points of one room, at least one.
func EncodeBlock(points []Point) []byte {
	m := block{at: points[0].At}
	var names []string
	for i, p := range points {
		if i > 0 {
			m.after = append(m.after, uint32(p.At-points[i-1].At))
		}
		for _, c := range p.Centres {
			if !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	for f := range NumFields {
		m.values = append(m.values, column(points, func(p *Point) int64 { return p.Values[f] }))
	}
	slices.Sort(names)
	for _, name := range names {
		c := blockCentre{name: name}
		for f := range NumCentreFields {
			c.values = append(c.values, column(points, func(p *Point) int64 { return p.centre(name, f) }))
		}
		m.centres = append(m.centres, c)
	}
	return compress.Deflate(nil, blockFields.Append(nil, &m), flate.DefaultCompression)
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
	var m block
	if err := blockFields.Decode(&m, plain); err != nil {
		return nil, fmt.Errorf("history: block: %w", err)
	}
	n := len(m.after) + 1
	if n > maxPoints {
		return nil, fmt.Errorf("history: block: at most %d points, got %d", maxPoints, n)
	}
	points, values, centres := make([]Point, n), make([]int64, n*NumFields), make([]Centre, n*len(m.centres))
	if err := fill(values, NumFields, m.values); err != nil {
		return nil, err
	}
	for i := range points {
		points[i] = Point{At: m.at, Values: part(values, i, NumFields), Centres: part(centres, i, len(m.centres))[:0]}
		if i > 0 {
			points[i].At = points[i-1].At + int64(m.after[i-1])
		}
	}
	for _, c := range m.centres {
		values := make([]int64, n*NumCentreFields)
		if err := fill(values, NumCentreFields, c.values); err != nil {
			return nil, err
		}
		for i := range points {
			points[i].Centres = append(points[i].Centres, Centre{c.name, part(values, i, NumCentreFields)})
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
