package wire

import (
	"bytes"
	"cmp"
	"compress/flate"
	"crypto/sha256"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire/wirepb"
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
	data, err := encodeHead(&head)
	if err == nil && len(data) > MaxStored {
		err = fmt.Errorf("%w: the head has %d", ErrTooLarge, len(data))
	}
	return data, err
}

// EncodeWhole returns promises with the rooms of the roster in one value of any size, for a file. [DecodePromises]
// decodes it.
func EncodeWhole(p *Promises) ([]byte, error) { return encodeHead(p) }

func encodeHead(p *Promises) ([]byte, error) {
	m := &wirepb.Promises{Version: Version, Owner: packTerm(p.Owner), Write: p.Write, Durable: packDurable(&p.Durable)}
	for _, s := range p.Sections {
		m.Sections = append(m.Sections, &wirepb.Section{Key: s.Key, Sum: bytes.Clone(s.Sum[:])})
	}
	m.ProtoReflect().SetUnknown(p.Unknown)
	data, err := stable.Marshal(m)
	if err != nil {
		return nil, err
	}
	data = deflate(data)
	if _, err := DecodePromises(data); err != nil { // a stored value that no leader can read closes the data centre
		return nil, fmt.Errorf("encode what could not be read: %w", err)
	}
	return data, nil
}

// stable encodes equal messages to equal bytes.
var stable = proto.MarshalOptions{Deterministic: true}

// DecodePromises decodes a head, or whole promises. [Promises.Join] adds the rooms of its sections. The error names the
// field and the rule; it is [ErrVersion] for another version.
func DecodePromises(data []byte) (*Promises, error) {
	raw, err := inflate(data)
	if err != nil {
		return nil, fmt.Errorf("promises: %w", err)
	}
	var m wirepb.Promises
	if err := proto.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("promises: %w", err)
	}
	if m.Version != Version {
		return nil, fmt.Errorf("promises: %w: %d", ErrVersion, m.Version)
	}
	if len(m.Sections) > maxSections {
		return nil, fmt.Errorf("promises: sections: at most %d, got %d", maxSections, len(m.Sections))
	}
	p := &Promises{Owner: unpackTerm(m.Owner), Write: m.Write, Unknown: unknownOf(&m)}
	for i, s := range m.Sections {
		if len(s.GetSum()) != sha256.Size || s.GetKey() == "" || len(s.GetKey()) > 2*maxName {
			return nil, fmt.Errorf("promises: sections[%d]: must have a key of 1 to %d bytes and a sum of %d", i, 2*maxName,
				sha256.Size)
		}
		p.Sections = append(p.Sections, Section{Key: s.GetKey(), Sum: [sha256.Size]byte(s.GetSum())})
	}
	if p.Durable, err = unpackDurable(m.Durable); err != nil {
		return nil, fmt.Errorf("promises: durable: %w", err)
	}
	return p, nil
}

// Pieces encodes the rooms of a roster entry for sections, each piece at most the size of a section. Pieces may be
// joined to sections in any order.
func Pieces(e *RosterEntry) ([][]byte, error) {
	var out [][]byte
	part := wirepb.RosterEntry{Edge: e.Edge, Instance: e.Instance}
	size := 0
	cut := func() error {
		if len(part.Rooms) == 0 {
			return nil
		}
		data, err := stable.Marshal(&wirepb.PromiseSection{Roster: []*wirepb.RosterEntry{&part}})
		out, part.Rooms, size = append(out, data), nil, 0
		return err
	}
	for i := range e.Rooms {
		r := packRosterRoom(&e.Rooms[i])
		n := proto.Size(r)
		if size+n > cutSection {
			if err := cut(); err != nil {
				return nil, err
			}
		}
		part.Rooms, size = append(part.Rooms, r), size+n
	}
	return out, cut()
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
	var m wirepb.PromiseSection
	if err := proto.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("section %s: %w", s.Key, err)
	}
	at := map[GoneEdge]int{}
	for i, e := range p.Durable.Roster {
		at[GoneEdge{Edge: e.Edge, Instance: e.Instance}] = i
	}
	for _, part := range m.Roster {
		i, ok := at[GoneEdge{Edge: part.GetEdge(), Instance: part.GetInstance()}]
		if !ok {
			return fmt.Errorf("section %s: %q is not on the roster", s.Key, part.GetEdge())
		}
		rooms, err := unpackRosterRooms(part.Rooms)
		if err != nil {
			return fmt.Errorf("section %s: %q: %w", s.Key, part.GetEdge(), err)
		}
		p.Durable.Roster[i].Rooms = append(p.Durable.Roster[i].Rooms, rooms...)
	}
	return nil
}

// Lose records that a section named by the head is lost.
func (p *Promises) Lose() {
	p.Durable.LoseTrack()
}

func packDurable(d *Durable) *wirepb.Durable {
	m := &wirepb.Durable{
		Version: d.Version, Promise: packTerm(d.Promise), LifeS: d.Life, HoldUntilS: d.HoldUntil, Members: d.Members,
		ClusterId: d.ClusterID, MovedInS: d.MovedIn,
	}
	for i := range d.Roster {
		e := &d.Roster[i]
		r := &wirepb.RosterEntry{
			Edge: e.Edge, Instance: e.Instance, LeaseEpoch: e.LeaseEpoch, Dead: e.Dead, Left: e.Left,
			LeasedS: e.Leased, UntilS: e.Until, EndedS: e.Ended, WaitedS: e.Waited, Stored: e.Stored,
		}
		for j := range e.Rooms {
			r.Rooms = append(r.Rooms, packRosterRoom(&e.Rooms[j]))
		}
		for _, g := range e.Gone {
			r.Gone = append(r.Gone, &wirepb.GoneEdge{Edge: g.Edge, Instance: g.Instance, UntilS: g.Until})
		}
		r.ProtoReflect().SetUnknown(e.Unknown)
		m.Roster = append(m.Roster, r)
	}
	if len(d.Rooms) > 0 || len(d.Ceilings) > 0 {
		m.Rooms = &wirepb.StoredRooms{Version: d.Version, FloorsUntilS: d.FloorsUntil, CeilingsUntilS: d.CeilingsUntil}
		for _, e := range d.Ceilings {
			m.Rooms.Edges = append(m.Rooms.Edges, &wirepb.CeilingEdge{Edge: e.Edge, Instance: e.Instance})
		}
		for _, r := range d.Rooms {
			p := m.Rooms
			p.Room = append(p.Room, uint64(r.Room))
			p.BoundSessions = append(p.BoundSessions, uint64(r.Bound.Sessions))
			p.BoundRate = append(p.BoundRate, uint64(r.Bound.Rate))
			p.FloorSessions = append(p.FloorSessions, uint64(r.Floor.Sessions))
			p.FloorRate = append(p.FloorRate, uint64(r.Floor.Rate))
			for _, c := range r.Ceilings {
				p.CeilingSessions = append(p.CeilingSessions, uint64(c.Sessions))
				p.CeilingRate = append(p.CeilingRate, uint64(c.Rate))
			}
		}
	}
	m.ProtoReflect().SetUnknown(d.Unknown)
	return m
}

func packRosterRoom(r *RosterRoom) *wirepb.RosterRoom {
	m := &wirepb.RosterRoom{
		Room: uint64(r.Room), Sessions: packSessions(r.Sessions), ReservedSessions: r.Reserved,
		ReservedUntilS: r.ReservedUntil, Silent: r.Silent, ReservedRate: r.ReservedRate, RateUntilS: r.RateUntil,
	}
	for _, x := range r.Rates {
		m.RatesUntilS, m.RatesN = append(m.RatesUntilS, x.Until), append(m.RatesN, x.N)
	}
	m.ProtoReflect().SetUnknown(r.Unknown)
	return m
}

// unpackDurable is the inverse of packDurable. A nil message is the zero Durable.
func unpackDurable(m *wirepb.Durable) (Durable, error) {
	d := Durable{
		Version: m.GetVersion(), Promise: unpackTerm(m.GetPromise()), Life: m.GetLifeS(), HoldUntil: m.GetHoldUntilS(),
		Members: m.GetMembers(), ClusterID: m.GetClusterId(), MovedIn: m.GetMovedInS(),
		Unknown: unknownOf(m),
	}
	if n := len(m.GetRoster()); n > maxRoster {
		return d, fmt.Errorf("roster: at most %d, got %d", maxRoster, n)
	}
	for i, r := range m.GetRoster() {
		e := RosterEntry{
			Edge: r.GetEdge(), Instance: r.GetInstance(), LeaseEpoch: r.GetLeaseEpoch(), Dead: r.GetDead(), Left: r.GetLeft(),
			Leased: r.GetLeasedS(), Until: r.GetUntilS(), Ended: r.GetEndedS(), Waited: r.GetWaitedS(), Stored: r.GetStored(),
			Unknown: unknownOf(r),
		}
		if e.Edge == "" || len(e.Edge) > maxName {
			return d, fmt.Errorf("roster[%d]: edge: must have 1 to %d bytes, got %d", i, maxName, len(e.Edge))
		}
		var err error
		if e.Rooms, err = unpackRosterRooms(r.GetRooms()); err != nil {
			return d, fmt.Errorf("roster[%d]: %w", i, err)
		}
		if n := len(r.GetGone()); n > maxRoster {
			return d, fmt.Errorf("roster[%d]: gone: at most %d, got %d", i, maxRoster, n)
		}
		for _, g := range r.GetGone() {
			e.Gone = append(e.Gone, GoneEdge{Edge: g.GetEdge(), Instance: g.GetInstance(), Until: g.GetUntilS()})
		}
		d.Roster = append(d.Roster, e)
	}
	if err := d.unpackRooms(m.GetRooms()); err != nil {
		return d, fmt.Errorf("rooms: %w", err)
	}
	return d, nil
}

// unpackRooms decodes the rooms. A release that does not know them raises the version of the Durable beside them: they
// are of an earlier state then.
func (d *Durable) unpackRooms(m *wirepb.StoredRooms) error {
	n := len(m.GetRoom())
	for _, column := range [][]uint64{m.GetBoundSessions(), m.GetBoundRate(), m.GetFloorSessions(), m.GetFloorRate()} {
		if len(column) != n || n > maxRooms {
			return fmt.Errorf("columns must be equally long and hold at most %d rooms, got %d and %d", maxRooms, n, len(column))
		}
	}
	k := len(m.GetEdges())
	// Ceilings without edges bound nobody: builds of November 27 stored such ones after a loss.
	if k > maxRoster || k > 0 && (len(m.GetCeilingSessions()) != k*n || len(m.GetCeilingRate()) != k*n) {
		return fmt.Errorf("ceilings: %d rooms and %d edges (at most %d) must have as many as their product, got %d and %d", n, k,
			maxRoster, len(m.GetCeilingSessions()), len(m.GetCeilingRate()))
	}
	if m.GetVersion() != d.Version {
		return nil
	}
	for i, id := range m.GetRoom() {
		r := StoredRoom{Room: room.ID(id)}
		var err, err2 error
		r.Bound, err = unpackCounts(m.BoundSessions[i], m.BoundRate[i])
		r.Floor, err2 = unpackCounts(m.FloorSessions[i], m.FloorRate[i])
		if err = cmp.Or(err, err2); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
		for j := i * k; j < (i+1)*k; j++ {
			c, err := unpackCounts(m.CeilingSessions[j], m.CeilingRate[j])
			if err != nil {
				return fmt.Errorf("[%d]: ceilings: %w", i, err)
			}
			r.Ceilings = append(r.Ceilings, c)
		}
		d.Rooms = append(d.Rooms, r)
	}
	for i, e := range m.GetEdges() {
		if len(e.GetEdge()) > maxName {
			return fmt.Errorf("edges[%d]: must have at most %d bytes, got %d", i, maxName, len(e.GetEdge()))
		}
		d.Ceilings = append(d.Ceilings, CeilingEdge{Edge: e.GetEdge(), Instance: e.GetInstance()})
	}
	d.FloorsUntil, d.CeilingsUntil = m.GetFloorsUntilS(), m.GetCeilingsUntilS()
	return nil
}

func unpackRosterRooms(rooms []*wirepb.RosterRoom) ([]RosterRoom, error) {
	if len(rooms) > maxRooms {
		return nil, fmt.Errorf("rooms: at most %d, got %d", maxRooms, len(rooms))
	}
	var out []RosterRoom
	for i, m := range rooms {
		sessions, err := unpackSessions(m.GetSessions())
		if err != nil {
			return nil, fmt.Errorf("rooms[%d]: %w", i, err)
		}
		if n := len(m.GetRatesUntilS()); n > MaxRates || n != len(m.GetRatesN()) {
			return nil, fmt.Errorf("rooms[%d]: rates: at most %d, as many seconds as numbers, got %d and %d", i, MaxRates, n,
				len(m.GetRatesN()))
		}
		var rates []RosterRate
		for k, until := range m.GetRatesUntilS() {
			rates = append(rates, RosterRate{until, m.GetRatesN()[k]})
		}
		out = append(out, RosterRoom{
			Room: room.ID(m.GetRoom()), Sessions: sessions, Reserved: m.GetReservedSessions(),
			ReservedUntil: m.GetReservedUntilS(), Silent: m.GetSilent(), ReservedRate: m.GetReservedRate(),
			RateUntil: m.GetRateUntilS(), Rates: rates, Unknown: unknownOf(m),
		})
	}
	return out, nil
}

// unknownOf returns the unknown fields of a message, written by a newer version; nil for none.
func unknownOf(m proto.Message) []byte {
	return bytes.Clone(m.ProtoReflect().GetUnknown())
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
