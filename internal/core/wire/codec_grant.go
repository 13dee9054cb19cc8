package wire

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire/wirepb"
)

// EncodeGrant encodes a grant.
func EncodeGrant(g *Grant) ([]byte, error) {
	p := &wirepb.Grant{
		Version: Version, To: g.To, Instance: g.Instance, LeaseEpoch: g.LeaseEpoch, From: packTerm(g.From), Seq: g.Seq,
		Part: g.Part, Parts: g.Parts, Acked: g.Acked, Told: g.Forwarded, EchoNs: int64(g.Echo), DwellNs: uint64(max(0, g.Dwell)),
		AtMs: int64(g.At), AtBoundNs: uint64(max(0, g.AtBound)), LeaseNs: uint64(max(0, g.Lease)), Guess: g.Guess,
		Twin: g.Twin, Baseline: g.Baseline, Handshake: wirepb.Handshake(g.Handshake) + 1, WatermarkMs: int64(g.Watermark),
		Members: g.Members, Standing: uint32(g.Standing), ClusterId: g.ClusterID, Stop: packStop(&g.Stop),
		Folder: uint32(g.Folder), Rooms: make([]*wirepb.RoomGrant, len(g.Rooms)),
	}
	for i := range g.Rooms {
		r := &g.Rooms[i]
		p.Rooms[i] = &wirepb.RoomGrant{
			Room: uint64(r.Room), Gen: r.Gen, RenewCeil: r.RenewCeil, LifeS: r.Life,
			SessionsGranted: r.Permits.Sessions.Granted, SessionsReturned: r.Permits.Sessions.Returned,
			SessionsKeep: r.Permits.Sessions.Keep, RateGranted: r.Permits.Rate.Granted, RateReturned: r.Permits.Rate.Returned,
			RateKeep: r.Permits.Rate.Keep, View: packView(r.View), Confirmed: r.Confirmed, Ends: packEnds(r.Ends),
			Lines: packLines(r.Lines), Passes: packPasses(&r.Passes), BoundSessions: uint64(r.Bound.Sessions),
			BoundRate: uint64(r.Bound.Rate), Drop: r.Drop,
		}
	}
	return proto.Marshal(p)
}

// DecodeGrant decodes a grant; errors are as in DecodeReport.
func DecodeGrant(data []byte) (*Grant, error) {
	var p wirepb.Grant
	if err := proto.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	if p.Version != Version {
		return nil, fmt.Errorf("grant: %w: %d", ErrVersion, p.Version)
	}
	if err := checkHead(p.To, p.Part, p.Parts, len(p.Rooms)); err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	if p.Handshake < wirepb.Handshake_HANDSHAKE_ADOPTED || p.Handshake > wirepb.Handshake_HANDSHAKE_DEAD {
		return nil, fmt.Errorf("grant: handshake: unknown %d", p.Handshake)
	}
	for _, d := range []struct {
		name string
		ns   uint64
	}{{"dwell", p.DwellNs}, {"at_bound", p.AtBoundNs}, {"lease", p.LeaseNs}} {
		if d.ns > math.MaxInt64 {
			return nil, fmt.Errorf("grant: %s: must be at most %d ns, got %d", d.name, int64(math.MaxInt64), d.ns)
		}
	}
	g := &Grant{
		To: p.To, Instance: p.Instance, LeaseEpoch: p.LeaseEpoch, From: unpackTerm(p.From), Seq: p.Seq, Part: p.Part,
		Parts: p.Parts, Acked: p.Acked, Forwarded: p.Told, Echo: fleettime.Mono(p.EchoNs), Dwell: time.Duration(p.DwellNs),
		At: fleettime.Time(p.AtMs), AtBound: time.Duration(p.AtBoundNs), Lease: time.Duration(p.LeaseNs), Guess: p.Guess,
		Twin: p.Twin, Baseline: p.Baseline, Handshake: Handshake(p.Handshake - 1), Watermark: fleettime.Time(p.WatermarkMs),
		Members: p.Members, Standing: Standing(p.Standing), ClusterID: p.ClusterId, Stop: unpackStop(p.Stop),
		Folder: Folder(p.Folder),
	}
	if len(p.Rooms) > 0 {
		g.Rooms = make([]RoomGrant, len(p.Rooms))
	}
	for i, r := range p.Rooms {
		g.Rooms[i] = RoomGrant{
			Room: room.ID(r.GetRoom()), Gen: r.GetGen(), RenewCeil: r.GetRenewCeil(), Life: r.GetLifeS(),
			Permits: Permits{
				Sessions: Allocation{Granted: r.GetSessionsGranted(), Returned: r.GetSessionsReturned(), Keep: r.GetSessionsKeep()},
				Rate:     Allocation{Granted: r.GetRateGranted(), Returned: r.GetRateReturned(), Keep: r.GetRateKeep()},
			},
			Confirmed: r.GetConfirmed(), Passes: unpackPasses(r.GetPasses()), Drop: r.GetDrop(),
		}
		var err error
		if g.Rooms[i].Bound, err = unpackCounts(r.GetBoundSessions(), r.GetBoundRate()); err != nil {
			return nil, fmt.Errorf("grant: rooms[%d]: bound: %w", i, err)
		}
		if g.Rooms[i].View, err = unpackView(r.GetView()); err != nil {
			return nil, fmt.Errorf("grant: rooms[%d]: view: %w", i, err)
		}
		if g.Rooms[i].Ends, err = unpackEnds(r.GetEnds()); err != nil {
			return nil, fmt.Errorf("grant: rooms[%d]: %w", i, err)
		}
		if g.Rooms[i].Lines, err = unpackLines(r.GetLines()); err != nil {
			return nil, fmt.Errorf("grant: rooms[%d]: %w", i, err)
		}
	}
	return g, nil
}

func packOutcomes(o estimate.Outcomes) []uint64 {
	for n := len(o); n > 0; n-- {
		if o[n-1] != 0 {
			return o[:n:n]
		}
	}
	return nil
}

func packView(v *View) *wirepb.View {
	if v == nil {
		return nil
	}
	p := &wirepb.View{
		Version: v.Version, AtMs: int64(v.At), CutoffMs: int64(v.Cutoff), ParkMs: int64(v.Park),
		Slots: v.Free, Active: v.Active, Mu: v.Mu, Theta: v.Theta, Line: packLine(v.Line.Histogram()), Joining: v.Joining,
		CalledMs: int64(v.Called), SinceMs: int64(v.Since), ChangedMs: int64(v.Changed),
	}
	for _, c := range v.Paces {
		p.PaceMs, p.PaceMu = append(p.PaceMs, uint64(max(0, c.For.Milliseconds()))), append(p.PaceMu, c.Mu)
	}
	for _, r := range v.Rounds {
		p.RoundSeed, p.RoundCalledMs = append(p.RoundSeed, r.Seed), append(p.RoundCalledMs, int64(r.Called))
	}
	if v.Waits.Known() {
		for _, d := range v.Waits {
			p.WaitMs = append(p.WaitMs, uint64(max(0, d.Milliseconds())))
		}
	}
	if v.Ranges != (estimate.Ranges{}) {
		for _, r := range v.Ranges {
			p.RangeLow, p.RangeHigh = append(p.RangeLow, r.Low), append(p.RangeHigh, r.High)
		}
	}
	return p
}

func unpackView(p *wirepb.View) (*View, error) {
	if p == nil {
		return nil, nil
	}
	for _, f := range []struct {
		name string
		rate float64
	}{{"mu", p.Mu}, {"theta", p.Theta}, {"joining", p.Joining}} {
		if !isCount(f.rate) {
			return nil, fmt.Errorf("%s: must be a rate, got %v", f.name, f.rate)
		}
	}
	h, err := unpackLine(p.Line)
	if err != nil {
		return nil, fmt.Errorf("line: %w", err)
	}
	v := &View{
		Version: p.Version, At: fleettime.Time(p.AtMs), Cutoff: fleettime.Time(p.CutoffMs), Park: fleettime.Time(p.ParkMs),
		Free: p.Slots, Active: p.Active, Mu: p.Mu, Theta: p.Theta, Line: estimate.NewDigest(h), Joining: p.Joining,
		Called: fleettime.Time(p.CalledMs), Since: fleettime.Time(p.SinceMs), Changed: fleettime.Time(p.ChangedMs),
	}
	if len(p.PaceMs) != len(p.PaceMu) || len(p.PaceMs) > estimate.MaxPaces {
		return nil, fmt.Errorf("paces: columns must be equally long and hold at most %d phases", estimate.MaxPaces)
	}
	for i, ms := range p.PaceMs {
		if ms > maxTime || !isCount(p.PaceMu[i]) {
			return nil, fmt.Errorf("paces[%d]: must be a time and a rate, got %d ms and %v", i, ms, p.PaceMu[i])
		}
		v.Paces = append(v.Paces, estimate.Pace{
			For: time.Duration(min(ms, uint64(estimate.MaxWait.Milliseconds()))) * time.Millisecond, Mu: p.PaceMu[i],
		})
	}
	if n := len(p.RangeLow); n != len(p.RangeHigh) || (n != 0 && n != len(v.Ranges)) {
		return nil, fmt.Errorf("ranges: columns must be equally long and hold none or %d classes", len(v.Ranges))
	}
	for i, low := range p.RangeLow {
		if !(low > 0 && low <= p.RangeHigh[i]) || math.IsInf(p.RangeHigh[i], 0) {
			return nil, fmt.Errorf("ranges[%d]: must be above 0 and ascend, got %v to %v", i, low, p.RangeHigh[i])
		}
		v.Ranges[i] = estimate.Range{Low: low, High: p.RangeHigh[i]}
	}
	return v, v.unpackRounds(p)
}

// unpackRounds decodes the rounds of a view. The one of a leader without fleet time begins at 0.
func (v *View) unpackRounds(p *wirepb.View) error {
	if len(p.RoundSeed) != len(p.RoundCalledMs) || len(p.RoundSeed) > draw.MaxRounds {
		return fmt.Errorf("rounds: columns must be equally long and hold at most %d rounds", draw.MaxRounds)
	}
	for i, seed := range p.RoundSeed {
		r := draw.Round{Seed: seed, Called: fleettime.Time(p.RoundCalledMs[i])}
		if n := len(v.Rounds); r.Called < 0 || n > 0 && r.Start() <= v.Rounds[n-1].Start() {
			return fmt.Errorf("rounds[%d]: must be after the one before, got %d", i, r.Called)
		}
		v.Rounds = append(v.Rounds, r)
	}
	if n := len(p.WaitMs); n != 0 && n != len(v.Waits) {
		return fmt.Errorf("waits: must be none or %d, got %d", len(v.Waits), n)
	}
	for i, ms := range p.WaitMs {
		v.Waits[i] = time.Duration(min(ms, uint64(estimate.MaxWait.Milliseconds()))) * time.Millisecond
	}
	return nil
}
