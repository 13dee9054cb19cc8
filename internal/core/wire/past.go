package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"vestibule/internal/core/wire/wirepb"
)

// Past is the snapshot of an edge in its data folder. Its successor makes the last report of the edge from it.
type Past struct {
	Number uint64 // grows with every snapshot of the instance, from 1
	Head   Report // without rooms; AsOfBound covers the time until the instance has ended
	Rooms  []RoomPast
}

// RoomPast is the state of one room in a snapshot, and what the edge may have done since.
type RoomPast struct {
	Report RoomReport
	More   uint64 // tickets that the edge may have stamped since
	Life   uint32 // seconds: their longest life
}

// EncodeRoomPast encodes the room of a snapshot, for [EncodePast].
func EncodeRoomPast(r *RoomPast) ([]byte, error) {
	return proto.Marshal(&wirepb.RoomPast{Report: packRoomReport(&r.Report), More: r.More, LifeS: r.Life})
}

// EncodePast encodes a snapshot with the given encoded rooms.
func EncodePast(number uint64, head *Report, rooms [][]byte) ([]byte, error) {
	return proto.Marshal(&wirepb.EdgePast{Version: Version, Number: number, Head: packReport(head), Rooms: rooms})
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
