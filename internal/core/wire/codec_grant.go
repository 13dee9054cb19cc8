package wire

import (
	"fmt"
	"math"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire/pb"
)

// EncodeGrant encodes a grant.
func EncodeGrant(g *Grant) []byte { return grantCodec.Append(nil, g) }

// DecodeGrant decodes a grant; errors are as in DecodeReport.
func DecodeGrant(data []byte) (*Grant, error) { return decode("grant", grantCodec, data) }

// grant is a Grant as encoded: with a handshake that is never 0.
type grant struct {
	Grant
	handshake uint32
}

var grantCodec = pb.Convert(grantFields, func(g *Grant) grant { return grant{*g, uint32(g.Handshake) + 1} },
	func(p *grant) (Grant, error) {
		if p.handshake < 1 || p.handshake > uint32(Dead)+1 {
			return p.Grant, fmt.Errorf("handshake: unknown %d", p.handshake)
		}
		p.Handshake = Handshake(p.handshake - 1)
		return p.Grant, checkHead(p.To, p.Part, p.Parts)
	})

var grantFields = pb.Message[grant]{
	version[grant](),
	pb.String(2, func(g *grant) *string { return &g.To }),
	pb.Fixed(3, func(g *grant) *uint64 { return &g.Instance }),
	pb.Int(4, func(g *grant) *uint64 { return &g.LeaseEpoch }),
	pb.Sub(5, "", termFields, nil, func(g *grant) *Term { return &g.From }),
	pb.Int(6, func(g *grant) *uint64 { return &g.Seq }),
	pb.Int(7, func(g *grant) *uint32 { return &g.Part }),
	pb.Int(8, func(g *grant) *uint32 { return &g.Parts }),
	pb.Int(9, func(g *grant) *uint64 { return &g.Acked }),
	pb.Signed(10, func(g *grant) *fleettime.Mono { return &g.Echo }),
	nanos(11, "dwell", func(g *grant) *time.Duration { return &g.Dwell }),
	pb.Int(12, func(g *grant) *fleettime.Time { return &g.At }),
	nanos(13, "at_bound", func(g *grant) *time.Duration { return &g.AtBound }),
	nanos(14, "lease", func(g *grant) *time.Duration { return &g.Lease }),
	pb.Bool(15, func(g *grant) *bool { return &g.Baseline }),
	pb.Int(16, func(g *grant) *uint32 { return &g.handshake }),
	pb.Int(17, func(g *grant) *fleettime.Time { return &g.Watermark }),
	pb.Repeated(18, "rooms", maxRooms, roomGrantCodec, func(g *grant) *[]RoomGrant { return &g.Rooms }),
	pb.Bool(19, func(g *grant) *bool { return &g.Guess }),
	pb.Bool(20, func(g *grant) *bool { return &g.Twin }),
	pb.Int(24, func(g *grant) *uint64 { return &g.Members }),
	pb.Int(25, func(g *grant) *Standing { return &g.Standing }),
	pb.Fixed(26, func(g *grant) *uint64 { return &g.ClusterID }),
	pb.Sub(28, "", stopFields, stops, func(g *grant) *stop.Stop { return &g.Stop }),
	pb.Int(29, func(g *grant) *uint64 { return &g.Forwarded }),
	pb.Int(40, func(g *grant) *Folder { return &g.Folder }),
	pb.Int(41, func(g *grant) *Forms { return &g.Reads }),
	pb.Int(42, func(g *grant) *Membership { return &g.Membership }),
}

var roomGrantCodec = pb.Check(roomGrantFields, func(r *RoomGrant) error {
	if err := r.Bound.check(); err != nil {
		return fmt.Errorf("bound: %w", err)
	}
	return nil
})

var roomGrantFields = pb.Message[RoomGrant]{
	pb.Fixed(1, func(r *RoomGrant) *room.ID { return &r.Room }),
	pb.Int(2, func(r *RoomGrant) *uint64 { return &r.Gen }),
	pb.Int(3, func(r *RoomGrant) *uint64 { return &r.Permits.Sessions.Granted }),
	pb.Int(4, func(r *RoomGrant) *uint64 { return &r.Permits.Rate.Granted }),
	pb.Int(5, func(r *RoomGrant) *uint64 { return &r.RenewCeil }),
	pb.Int(6, func(r *RoomGrant) *uint32 { return &r.Life }),
	pb.Int(7, func(r *RoomGrant) *uint64 { return &r.Permits.Sessions.Keep }),
	pb.Int(8, func(r *RoomGrant) *uint64 { return &r.Permits.Rate.Keep }),
	pb.Int(9, func(r *RoomGrant) *uint64 { return &r.Permits.Sessions.Returned }),
	pb.Int(10, func(r *RoomGrant) *uint64 { return &r.Permits.Rate.Returned }),
	pb.Pointer(11, "view", viewCodec, func(r *RoomGrant) **View { return &r.View }),
	pb.Bool(12, func(r *RoomGrant) *bool { return &r.Confirmed }),
	ends(13, func(r *RoomGrant) *[]End { return &r.Ends }),
	lines(16, "", func(r *RoomGrant) *[]Line { return &r.Lines }),
	pb.Sub(17, "", passesFields, granted, func(r *RoomGrant) *Passes { return &r.Passes }),
	pb.Int(30, func(r *RoomGrant) *int64 { return &r.Bound.Sessions }),
	pb.Int(31, func(r *RoomGrant) *int64 { return &r.Bound.Rate }),
	pb.Bool(32, func(r *RoomGrant) *bool { return &r.Drop }),
	pb.Repeated(33, "asks", MaxAsks, askFields, func(r *RoomGrant) *[]Ask { return &r.Asks }),
	pb.Repeated(34, "stays", MaxAsks, stayFields, func(r *RoomGrant) *[]Stay { return &r.Stays }),
	pb.Repeated(35, "transfers", 2*MaxAsks, transferFields, func(r *RoomGrant) *[]Transfer { return &r.Transfers }),
	pb.Repeated(36, "taken", 2*MaxTaken, takenFields, func(r *RoomGrant) *[]Taken { return &r.Taken }),
}

// viewMessage is a View as encoded: with lists as columns.
type viewMessage struct {
	View
	line        estimate.Histogram
	paceMs      []uint64
	paceMu      []float64
	low, high   []float64 // ranges: one of each per class
	roundSeed   []uint64
	roundCalled []fleettime.Time
	waitMs      []uint64
}

var viewCodec = pb.Convert(viewFields, packView, unpackView)

var viewFields = pb.Message[viewMessage]{
	pb.Int(1, func(v *viewMessage) *uint64 { return &v.Version }),
	pb.Int(2, func(v *viewMessage) *fleettime.Time { return &v.At }),
	pb.Int(3, func(v *viewMessage) *fleettime.Time { return &v.Cutoff }),
	pb.Int(4, func(v *viewMessage) *fleettime.Time { return &v.Park }),
	pb.Signed(5, func(v *viewMessage) *int64 { return &v.Free }),
	pb.Int(6, func(v *viewMessage) *uint64 { return &v.Active }),
	pb.Double(7, func(v *viewMessage) *float64 { return &v.Mu }),
	pb.Double(8, func(v *viewMessage) *float64 { return &v.Theta }),
	histogram(9, "line", func(v *viewMessage) *estimate.Histogram { return &v.line }),
	pb.List(11, pb.Varint, func(v *viewMessage) *[]uint64 { return &v.paceMs }),
	pb.Doubles(12, func(v *viewMessage) *[]float64 { return &v.paceMu }),
	pb.Doubles(13, func(v *viewMessage) *[]float64 { return &v.low }),
	pb.Doubles(14, func(v *viewMessage) *[]float64 { return &v.high }),
	pb.Double(15, func(v *viewMessage) *float64 { return &v.Joining }),
	pb.Int(16, func(v *viewMessage) *fleettime.Time { return &v.Called }),
	pb.List(17, pb.Fixed64, func(v *viewMessage) *[]uint64 { return &v.roundSeed }),
	pb.List(18, pb.Varint, func(v *viewMessage) *[]fleettime.Time { return &v.roundCalled }),
	pb.List(19, pb.Varint, func(v *viewMessage) *[]uint64 { return &v.waitMs }),
	pb.Int(20, func(v *viewMessage) *fleettime.Time { return &v.Since }),
	pb.Int(21, func(v *viewMessage) *fleettime.Time { return &v.Changed }),
}

func packView(v *View) viewMessage {
	p := viewMessage{View: *v, line: v.Line.Histogram()}
	for _, c := range v.Paces {
		p.paceMs, p.paceMu = append(p.paceMs, uint64(max(0, c.For.Milliseconds()))), append(p.paceMu, c.Mu)
	}
	for _, r := range v.Rounds {
		p.roundSeed, p.roundCalled = append(p.roundSeed, r.Seed), append(p.roundCalled, r.Called)
	}
	if v.Waits.Known() {
		for _, d := range v.Waits {
			p.waitMs = append(p.waitMs, uint64(max(0, d.Milliseconds())))
		}
	}
	if v.Ranges != (estimate.Ranges{}) {
		for _, r := range v.Ranges {
			p.low, p.high = append(p.low, r.Low), append(p.high, r.High)
		}
	}
	return p
}

func unpackView(p *viewMessage) (View, error) {
	v := p.View
	for _, f := range []struct {
		name string
		rate float64
	}{{"mu", v.Mu}, {"theta", v.Theta}, {"joining", v.Joining}} {
		if !isCount(f.rate) {
			return v, fmt.Errorf("%s: must be a rate, got %v", f.name, f.rate)
		}
	}
	v.Line = estimate.NewDigest(p.line)
	if len(p.paceMs) != len(p.paceMu) || len(p.paceMs) > estimate.MaxPaces {
		return v, fmt.Errorf("paces: columns must be equally long and hold at most %d phases", estimate.MaxPaces)
	}
	for i, ms := range p.paceMs {
		if ms > maxTime || !isCount(p.paceMu[i]) {
			return v, fmt.Errorf("paces[%d]: must be a time and a rate, got %d ms and %v", i, ms, p.paceMu[i])
		}
		v.Paces = append(v.Paces, estimate.Pace{
			For: time.Duration(min(ms, uint64(estimate.MaxWait.Milliseconds()))) * time.Millisecond, Mu: p.paceMu[i],
		})
	}
	if n := len(p.low); n != len(p.high) || (n != 0 && n != len(v.Ranges)) {
		return v, fmt.Errorf("ranges: columns must be equally long and hold none or %d classes", len(v.Ranges))
	}
	for i, low := range p.low {
		if !(low > 0 && low <= p.high[i]) || math.IsInf(p.high[i], 0) {
			return v, fmt.Errorf("ranges[%d]: must be above 0 and ascend, got %v to %v", i, low, p.high[i])
		}
		v.Ranges[i] = estimate.Range{Low: low, High: p.high[i]}
	}
	return v, v.unpackRounds(p)
}

// unpackRounds decodes the rounds of a view. The one of a leader without fleet time begins at 0.
func (v *View) unpackRounds(p *viewMessage) error {
	if len(p.roundSeed) != len(p.roundCalled) || len(p.roundSeed) > draw.MaxRounds {
		return fmt.Errorf("rounds: columns must be equally long and hold at most %d rounds", draw.MaxRounds)
	}
	for i, seed := range p.roundSeed {
		r := draw.Round{Seed: seed, Called: p.roundCalled[i]}
		if n := len(v.Rounds); r.Called < 0 || n > 0 && r.Start() <= v.Rounds[n-1].Start() {
			return fmt.Errorf("rounds[%d]: must be after the one before, got %d", i, r.Called)
		}
		v.Rounds = append(v.Rounds, r)
	}
	if n := len(p.waitMs); n != 0 && n != len(v.Waits) {
		return fmt.Errorf("waits: must be none or %d, got %d", len(v.Waits), n)
	}
	for i, ms := range p.waitMs {
		v.Waits[i] = time.Duration(min(ms, uint64(estimate.MaxWait.Milliseconds()))) * time.Millisecond
	}
	return nil
}
