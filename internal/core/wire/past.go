package wire

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"vestibule/internal/core/wire/pb"
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

var pastFields = pb.Message[Past]{
	version[Past](),
	pb.Int(2, func(p *Past) *uint64 { return &p.Number }),
	pb.Custom(3, func(b []byte, p *Past) []byte {
		return pb.Sized(b, 3, func(b []byte) []byte { return reportCodec.Append(b, &p.Head) })
	}, func(p *Past, data []byte) error {
		head, err := decode("head", reportCodec, data)
		if err == nil {
			p.Head = *head
		}
		return err
	}),
	pb.Repeated(pastRooms, "rooms", maxRooms, roomPastFields, func(p *Past) *[]RoomPast { return &p.Rooms }),
}

const pastRooms = 4 // field of the encoded rooms

var roomPastFields = pb.Message[RoomPast]{
	pb.Sub(1, "", roomReportCodec, nil, func(p *RoomPast) *RoomReport { return &p.Report }),
	pb.Int(2, func(p *RoomPast) *uint64 { return &p.More }),
	pb.Int(3, func(p *RoomPast) *uint32 { return &p.Life }),
}

// AppendRoomPast appends the encoded room of a snapshot, for [AppendPast].
func AppendRoomPast(b []byte, r *RoomPast) []byte { return roomPastFields.Append(b, r) }

// AppendPast appends a snapshot with the given encoded rooms.
func AppendPast(b []byte, number uint64, head *Report, rooms [][]byte) []byte {
	b = pastFields.Append(b, &Past{Number: number, Head: *head})
	for _, r := range rooms {
		b = protowire.AppendBytes(protowire.AppendTag(b, pastRooms, protowire.BytesType), r)
	}
	return b
}

// DecodePast decodes a snapshot. The error names the field and the rule; it is [ErrVersion] for another version.
func DecodePast(data []byte) (*Past, error) {
	p, err := decode("snapshot", pastFields, data)
	if err != nil {
		return nil, err
	}
	switch {
	case p.Number == 0:
		return nil, errors.New("snapshot: number: must not be 0")
	case p.Head.Parts == 0:
		return nil, errors.New("snapshot: head: is missing")
	}
	for i := range p.Rooms {
		if p.Rooms[i].Report.Room == 0 {
			return nil, fmt.Errorf("snapshot: rooms[%d]: report: is missing", i)
		}
	}
	return p, nil
}
