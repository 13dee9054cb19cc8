package wire

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire/pb"
)

// Promises are a [Durable] as stored: fenced by an owner, in a head and sections.
type Promises struct {
	Owner    Term   // the aggregator with the right to write
	Write    uint64 // grows with every write of the owner
	Durable  Durable
	Sections []Section // the rooms of the roster's entries

	Unknown []byte // fields of a newer version, preserved on rewrite
}

// Section refers to one value beside the head, by key and checksum.
type Section struct {
	Key string
	Sum [sha256.Size]byte
}

// Limits of stored promises, in bytes.
const (
	// MaxStored bounds every value.
	MaxStored = 256 << 10

	// cutSection is the maximum size of a section before compression. Compression grows none by more than a few bytes.
	cutSection = 192 << 10

	maxInflated = 16 << 20 // per value
	maxRoster   = 1 << 16
	maxSections = 1 << 12
)

// storedMagic is the prefix of every head and section.
const storedMagic = "VSP1"

// ErrTooLarge reports that promises exceed the store's value size.
var ErrTooLarge = fmt.Errorf("promises: a value may have at most %d bytes", MaxStored)

// EncodeHead returns the head of promises, without the rooms, which lie in sections. It returns [ErrTooLarge] if the
// head is too large.
func EncodeHead(p *Promises) ([]byte, error) {
	head := *p
	head.Durable = p.Durable.Clone()
	for i := range head.Durable.Roster {
		head.Durable.Roster[i].Rooms = nil
	}
	data, err := EncodeWhole(&head)
	if err == nil && len(data) > MaxStored {
		err = fmt.Errorf("%w: the head has %d", ErrTooLarge, len(data))
	}
	return data, err
}

// EncodeWhole returns promises with the rooms of the roster in one value of any size, for a file. [DecodePromises]
// decodes it.
func EncodeWhole(p *Promises) ([]byte, error) {
	data := deflate(promisesFields.Append(nil, p))
	if _, err := DecodePromises(data); err != nil { // a stored value that no leader can read closes the data centre
		return nil, fmt.Errorf("encode what could not be read: %w", err)
	}
	return data, nil
}

// DecodePromises decodes a head, or whole promises. [Promises.Join] adds the rooms of its sections. The error names the
// field and the rule; it is [ErrVersion] for another version.
func DecodePromises(data []byte) (*Promises, error) {
	raw, err := inflate(data)
	if err != nil {
		return nil, fmt.Errorf("promises: %w", err)
	}
	return decode("promises", promisesFields, raw)
}

// Pieces encodes the rooms of a roster entry for sections, each piece at most the size of a section. Pieces may be
// joined to sections in any order.
func Pieces(e *RosterEntry) [][]byte {
	var out [][]byte
	part := RosterEntry{Edge: e.Edge, Instance: e.Instance}
	size := 0
	cut := func() {
		if len(part.Rooms) > 0 {
			out = append(out, roomsFields.Append(nil, &[]RosterEntry{part}))
			part.Rooms, size = nil, 0
		}
	}
	var data []byte
	for i := range e.Rooms {
		data = rosterRoomCodec.Append(data[:0], &e.Rooms[i])
		if size+len(data) > cutSection {
			cut()
		}
		part.Rooms, size = append(part.Rooms, e.Rooms[i]), size+len(data)
	}
	cut()
	return out
}

// roomsFields encode the content of a section: the rooms of roster entries of the head.
var roomsFields = pb.Message[[]RosterEntry]{
	pb.Repeated(1, "roster", maxRoster, rosterCodec, func(all *[]RosterEntry) *[]RosterEntry { return all }),
}

// CutSections joins pieces to sections, before compression.
func CutSections(pieces [][]byte) [][]byte {
	var out [][]byte
	for _, p := range pieces {
		if n := len(out); n == 0 || len(out[n-1])+len(p) > cutSection {
			out = append(out, nil)
		}
		last := &out[len(out)-1]
		*last = append(*last, p...)
	}
	return out
}

// PackSection returns a section as stored, and its checksum.
func PackSection(content []byte) (data []byte, sum [sha256.Size]byte, err error) {
	if data = deflate(content); len(data) > MaxStored {
		err = fmt.Errorf("%w: a section has %d", ErrTooLarge, len(data))
	}
	return data, sha256.Sum256(content), err
}

// Join adds the rooms of a section to the roster. It returns an error if data does not match the head.
func (p *Promises) Join(s Section, data []byte) error {
	raw, err := inflate(data)
	if err != nil {
		return fmt.Errorf("section %s: %w", s.Key, err)
	}
	if sha256.Sum256(raw) != s.Sum {
		return fmt.Errorf("section %s: checksum differs from the head", s.Key)
	}
	var parts []RosterEntry
	if err := roomsFields.Decode(&parts, raw); err != nil {
		return fmt.Errorf("section %s: %w", s.Key, err)
	}
	at := map[GoneEdge]int{}
	for i, e := range p.Durable.Roster {
		at[GoneEdge{Edge: e.Edge, Instance: e.Instance}] = i
	}
	for _, part := range parts {
		i, ok := at[GoneEdge{Edge: part.Edge, Instance: part.Instance}]
		if !ok {
			return fmt.Errorf("section %s: %q is not on the roster", s.Key, part.Edge)
		}
		p.Durable.Roster[i].Rooms = append(p.Durable.Roster[i].Rooms, part.Rooms...)
	}
	return nil
}

// Lose records that a section named by the head is lost.
func (p *Promises) Lose() {
	p.Durable.LoseTrack()
}

var promisesFields = pb.Message[Promises]{
	version[Promises](),
	pb.Sub(2, "", termFields, nil, func(p *Promises) *Term { return &p.Owner }),
	pb.Int(3, func(p *Promises) *uint64 { return &p.Write }),
	pb.Sub(4, "durable", durableCodec, nil, func(p *Promises) *Durable { return &p.Durable }),
	pb.Repeated(5, "sections", maxSections, sectionCodec, func(p *Promises) *[]Section { return &p.Sections }),
	pb.Unknown(func(p *Promises) *[]byte { return &p.Unknown }),
}

// section is a Section as encoded.
type section struct {
	key string
	sum []byte // SHA-256 of its content, before compression
}

var sectionCodec = pb.Convert(sectionFields, func(s *Section) section { return section{s.Key, s.Sum[:]} },
	func(p *section) (Section, error) {
		if len(p.sum) != sha256.Size || p.key == "" || len(p.key) > 2*maxName {
			return Section{}, fmt.Errorf("must have a key of 1 to %d bytes and a sum of %d", 2*maxName, sha256.Size)
		}
		return Section{p.key, [sha256.Size]byte(p.sum)}, nil
	})

var sectionFields = pb.Message[section]{
	pb.String(1, func(s *section) *string { return &s.key }),
	pb.Bytes(2, func(s *section) *[]byte { return &s.sum }),
}

// durable is a Durable as encoded.
type durable struct {
	Durable
	rooms storedRooms
}

var durableCodec = pb.Convert(durableFields, packDurable, unpackDurable)

var durableFields = pb.Message[durable]{
	pb.Int(1, func(d *durable) *uint64 { return &d.Version }),
	pb.Sub(2, "", termFields, nil, func(d *durable) *Term { return &d.Promise }),
	pb.Int(3, func(d *durable) *uint32 { return &d.Life }),
	pb.Repeated(4, "roster", maxRoster, rosterCodec, func(d *durable) *[]RosterEntry { return &d.Roster }),
	pb.Int(5, func(d *durable) *int64 { return &d.HoldUntil }),
	pb.Int(6, func(d *durable) *uint64 { return &d.Members }),
	pb.Fixed(8, func(d *durable) *uint64 { return &d.ClusterID }),
	pb.Int(9, func(d *durable) *int64 { return &d.MovedIn }),
	pb.Sub(20, "", storedRoomsFields, (*storedRooms).any, func(d *durable) *storedRooms { return &d.rooms }),
	pb.Unknown(func(d *durable) *[]byte { return &d.Unknown }),
}

// storedRooms are the rooms and ceilings of a Durable, with lists as columns.
type storedRooms struct {
	version                      uint64 // of the Durable; another one was written by a release that does not know these fields
	room                         []room.ID
	boundSessions, boundRate     []int64
	floorSessions, floorRate     []int64
	floorsUntil                  int64
	edges                        []CeilingEdge
	ceilingSessions, ceilingRate []int64 // a row for each room, a column for each edge
	ceilingsUntil                int64
	membership                   Membership
}

// any reports whether there is anything to encode.
func (p *storedRooms) any() bool { return len(p.room) > 0 || len(p.edges) > 0 || p.membership != 0 }

var storedRoomsFields = pb.Message[storedRooms]{
	pb.Int(1, func(p *storedRooms) *uint64 { return &p.version }),
	pb.List(2, pb.Fixed64, func(p *storedRooms) *[]room.ID { return &p.room }),
	pb.List(3, pb.Varint, func(p *storedRooms) *[]int64 { return &p.boundSessions }),
	pb.List(4, pb.Varint, func(p *storedRooms) *[]int64 { return &p.boundRate }),
	pb.List(5, pb.Varint, func(p *storedRooms) *[]int64 { return &p.floorSessions }),
	pb.List(6, pb.Varint, func(p *storedRooms) *[]int64 { return &p.floorRate }),
	pb.Int(7, func(p *storedRooms) *int64 { return &p.floorsUntil }),
	pb.Repeated(8, "edges", maxRoster, ceilingEdgeFields, func(p *storedRooms) *[]CeilingEdge { return &p.edges }),
	pb.List(9, pb.Varint, func(p *storedRooms) *[]int64 { return &p.ceilingSessions }),
	pb.List(10, pb.Varint, func(p *storedRooms) *[]int64 { return &p.ceilingRate }),
	pb.Int(11, func(p *storedRooms) *int64 { return &p.ceilingsUntil }),
	pb.Int(12, func(p *storedRooms) *Membership { return &p.membership }),
}

var ceilingEdgeFields = pb.Message[CeilingEdge]{
	pb.String(1, func(e *CeilingEdge) *string { return &e.Edge }),
	pb.Fixed(2, func(e *CeilingEdge) *uint64 { return &e.Instance }),
}

func packDurable(d *Durable) durable {
	m := durable{*d, storedRooms{
		version: d.Version, edges: d.Ceilings, floorsUntil: d.FloorsUntil, ceilingsUntil: d.CeilingsUntil,
		membership: d.Membership,
	}}
	for _, r := range d.Rooms {
		p := &m.rooms
		p.room = append(p.room, r.Room)
		p.boundSessions, p.boundRate = append(p.boundSessions, r.Bound.Sessions), append(p.boundRate, r.Bound.Rate)
		p.floorSessions, p.floorRate = append(p.floorSessions, r.Floor.Sessions), append(p.floorRate, r.Floor.Rate)
		for _, c := range r.Ceilings {
			p.ceilingSessions, p.ceilingRate = append(p.ceilingSessions, c.Sessions), append(p.ceilingRate, c.Rate)
		}
	}
	return m
}

// unpackDurable unpacks the rooms. A release that does not know them raises the version of the Durable beside them: they
// are of an earlier state then.
func unpackDurable(p *durable) (Durable, error) {
	d, m := p.Durable, &p.rooms
	n := len(m.room)
	for _, column := range [][]int64{m.boundSessions, m.boundRate, m.floorSessions, m.floorRate} {
		if len(column) != n || n > maxRooms {
			return d, fmt.Errorf("rooms: columns must be equally long and hold at most %d rooms, got %d and %d", maxRooms, n,
				len(column))
		}
	}
	k := len(m.edges)
	// Ceilings without edges bound nobody: builds of November 27 stored such ones after a loss.
	if k > 0 && (len(m.ceilingSessions) != k*n || len(m.ceilingRate) != k*n) {
		return d, fmt.Errorf("rooms: ceilings: %d rooms and %d edges must have as many as their product, got %d and %d", n, k,
			len(m.ceilingSessions), len(m.ceilingRate))
	}
	if m.version != d.Version {
		return d, nil
	}
	for i, id := range m.room {
		r := StoredRoom{
			Room: id, Bound: PermitCounts{m.boundSessions[i], m.boundRate[i]}, Floor: PermitCounts{m.floorSessions[i], m.floorRate[i]},
		}
		for j := i * k; j < (i+1)*k; j++ {
			r.Ceilings = append(r.Ceilings, PermitCounts{m.ceilingSessions[j], m.ceilingRate[j]})
		}
		for _, c := range append(slices.Clone(r.Ceilings), r.Bound, r.Floor) {
			if err := c.check(); err != nil {
				return d, fmt.Errorf("rooms: [%d]: %w", i, err)
			}
		}
		d.Rooms = append(d.Rooms, r)
	}
	for i, e := range m.edges {
		if len(e.Edge) > maxName {
			return d, fmt.Errorf("rooms: edges[%d]: must have at most %d bytes, got %d", i, maxName, len(e.Edge))
		}
	}
	d.Ceilings, d.FloorsUntil, d.CeilingsUntil = m.edges, m.floorsUntil, m.ceilingsUntil
	d.Membership = m.membership
	return d, nil
}

var rosterCodec = pb.Check(rosterFields, func(e *RosterEntry) error {
	if e.Edge == "" || len(e.Edge) > maxName {
		return fmt.Errorf("edge: must have 1 to %d bytes, got %d", maxName, len(e.Edge))
	}
	return nil
})

var rosterFields = pb.Message[RosterEntry]{
	pb.String(1, func(e *RosterEntry) *string { return &e.Edge }),
	pb.Fixed(2, func(e *RosterEntry) *uint64 { return &e.Instance }),
	pb.Int(3, func(e *RosterEntry) *uint64 { return &e.LeaseEpoch }),
	pb.Bool(4, func(e *RosterEntry) *bool { return &e.Dead }),
	pb.Bool(5, func(e *RosterEntry) *bool { return &e.Left }),
	pb.Repeated(6, "rooms", maxRooms, rosterRoomCodec, func(e *RosterEntry) *[]RosterRoom { return &e.Rooms }),
	pb.Int(7, func(e *RosterEntry) *int64 { return &e.Leased }),
	pb.Int(8, func(e *RosterEntry) *int64 { return &e.Until }),
	pb.Int(9, func(e *RosterEntry) *int64 { return &e.Ended }),
	pb.Int(10, func(e *RosterEntry) *uint32 { return &e.Waited }),
	pb.Repeated(11, "gone", maxRoster, goneEdgeFields, func(e *RosterEntry) *[]GoneEdge { return &e.Gone }),
	pb.Int(12, func(e *RosterEntry) *uint64 { return &e.Stored }),
	pb.Unknown(func(e *RosterEntry) *[]byte { return &e.Unknown }),
}

var goneEdgeFields = pb.Message[GoneEdge]{
	pb.String(1, func(e *GoneEdge) *string { return &e.Edge }),
	pb.Fixed(2, func(e *GoneEdge) *uint64 { return &e.Instance }),
	pb.Int(3, func(e *GoneEdge) *int64 { return &e.Until }),
}

// rosterRoom is a RosterRoom as encoded: with lists as columns.
type rosterRoom struct {
	RosterRoom
	ratesUntil, ratesN []int64
}

var rosterRoomCodec = pb.Convert(rosterRoomFields, packRosterRoom, unpackRosterRoom)

var rosterRoomFields = pb.Message[rosterRoom]{
	pb.Fixed(1, func(r *rosterRoom) *room.ID { return &r.Room }),
	sessions(2, func(r *rosterRoom) *[]Expiry { return &r.Sessions }),
	pb.Signed(3, func(r *rosterRoom) *int64 { return &r.Reserved }),
	pb.Int(4, func(r *rosterRoom) *int64 { return &r.ReservedUntil }),
	pb.Bool(5, func(r *rosterRoom) *bool { return &r.Silent }),
	pb.Signed(6, func(r *rosterRoom) *int64 { return &r.ReservedRate }),
	pb.Int(7, func(r *rosterRoom) *int64 { return &r.RateUntil }),
	pb.List(8, pb.Varint, func(r *rosterRoom) *[]int64 { return &r.ratesUntil }),
	pb.List(9, pb.Zigzag, func(r *rosterRoom) *[]int64 { return &r.ratesN }),
	pb.Repeated(10, "left", MaxLeft, stayFields, func(r *rosterRoom) *[]Stay { return &r.Left }),
	pb.Unknown(func(r *rosterRoom) *[]byte { return &r.Unknown }),
}

func packRosterRoom(r *RosterRoom) rosterRoom {
	m := rosterRoom{RosterRoom: *r}
	for _, x := range r.Rates {
		m.ratesUntil, m.ratesN = append(m.ratesUntil, x.Until), append(m.ratesN, x.N)
	}
	return m
}

func unpackRosterRoom(m *rosterRoom) (RosterRoom, error) {
	r := m.RosterRoom
	if n := len(m.ratesUntil); n > MaxRates || n != len(m.ratesN) {
		return r, fmt.Errorf("rates: at most %d, as many seconds as numbers, got %d and %d", MaxRates, n, len(m.ratesN))
	}
	for i, until := range m.ratesUntil {
		r.Rates = append(r.Rates, RosterRate{until, m.ratesN[i]})
	}
	return r, nil
}

func deflate(data []byte) []byte {
	return compress.Deflate([]byte(storedMagic), data, flate.BestSpeed)
}

var errNotStored = errors.New("unknown format: wrong prefix")

func inflate(data []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(data, []byte(storedMagic))
	if !ok {
		return nil, errNotStored
	}
	return compress.Inflate(rest, maxInflated)
}
