package wire

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"vestibule/internal/core/wire/wirepb"
)

// Past is the snapshot of an edge in its data folder. Its successor makes the last report of the edge from it.
type Past struct {
	Number uint64 // grows with every snapshot of the instance, from 1
	Head   Report // without rooms; AsOfBound covers the time until the instance has ended
	Rooms  []RoomPast
}

// SnapshotLife is the time after a snapshot in which the edge may stamp tickets under it. Past.Head.AsOfBound has it.
const SnapshotLife = 5 * time.Second

// RoomPast is the state of one room in a snapshot, with the permits that the edge may have used since.
type RoomPast struct {
	Report RoomReport
	More   uint64 // tickets that the edge may have stamped since
	Life   uint32 // seconds: their longest life
}

// PastEncoder encodes snapshots into buffers that are used again.
type PastEncoder struct {
	buffer  roomBuffer
	body    []byte
	columns [3][]byte // of Sessions
}

// Field numbers of wirepb.
const (
	fieldReport, fieldMore, fieldLife = 1, 2, 3 // of RoomPast
	fieldSessions                     = 12      // of RoomReport
)

// AppendRoom appends the encoded room of a snapshot, for [PastEncoder.Append].
func (e *PastEncoder) AppendRoom(to []byte, r *RoomPast) ([]byte, error) {
	p := e.buffer.pack(&r.Report)
	body, err := proto.MarshalOptions{}.MarshalAppend(e.body[:0], p)
	if err != nil {
		return to, err
	}
	e.body = e.appendSessions(body, r.Report.Sessions)
	to = protowire.AppendBytes(protowire.AppendTag(to, fieldReport, protowire.BytesType), e.body)
	to = protowire.AppendVarint(protowire.AppendTag(to, fieldMore, protowire.VarintType), r.More)
	return protowire.AppendVarint(protowire.AppendTag(to, fieldLife, protowire.VarintType), uint64(r.Life)), nil
}

// appendSessions appends the columns of sessions as the field of a room report.
func (e *PastEncoder) appendSessions(to []byte, sessions []Expiry) []byte {
	c, last, size := &e.columns, uint32(0), 0
	c[0], c[1], c[2] = c[0][:0], c[1][:0], c[2][:0]
	for _, s := range sessions {
		c[0], c[1], c[2] = protowire.AppendVarint(c[0], uint64(s.Until-last)), protowire.AppendVarint(c[1], s.Stamped),
			protowire.AppendVarint(c[2], s.Consumed)
		last = s.Until
	}
	for i := range c {
		size += protowire.SizeTag(1) + protowire.SizeBytes(len(c[i]))
	}
	to = protowire.AppendVarint(protowire.AppendTag(to, fieldSessions, protowire.BytesType), uint64(size))
	for i, column := range c {
		to = protowire.AppendBytes(protowire.AppendTag(to, protowire.Number(i+1), protowire.BytesType), column)
	}
	return to
}

// Append appends a snapshot with the given encoded rooms.
func (*PastEncoder) Append(to []byte, number uint64, head *Report, rooms [][]byte) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(to, &wirepb.EdgePast{
		Version: Version, Number: number, Head: packReport(head), Rooms: rooms,
	})
}

// DecodePast decodes a snapshot. The error names the field and the rule; it is [ErrVersion] for another version.
func DecodePast(data []byte) (*Past, error) {
	var m wirepb.EdgePast
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	switch {
	case m.Version != Version:
		return nil, fmt.Errorf("snapshot: %w: %d", ErrVersion, m.Version)
	case m.Number == 0:
		return nil, errors.New("snapshot: number: must not be 0")
	case len(m.Rooms) > maxRooms:
		return nil, fmt.Errorf("snapshot: rooms: at most %d, got %d", maxRooms, len(m.Rooms))
	}
	head, err := unpackReport(m.Head)
	if err != nil {
		return nil, fmt.Errorf("snapshot: head: %w", err)
	}
	p := &Past{Number: m.Number, Head: *head, Rooms: make([]RoomPast, len(m.Rooms))}
	for i, data := range m.Rooms {
		var r wirepb.RoomPast
		if err := proto.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("snapshot: rooms[%d]: %w", i, err)
		}
		if r.Report == nil {
			return nil, fmt.Errorf("snapshot: rooms[%d]: report: is missing", i)
		}
		if err := unpackRoomReport(&p.Rooms[i].Report, r.Report); err != nil {
			return nil, fmt.Errorf("snapshot: rooms[%d]: %w", i, err)
		}
		p.Rooms[i].More, p.Rooms[i].Life = r.More, r.LifeS
	}
	return p, nil
}
