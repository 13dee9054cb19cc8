package wire

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire/wirepb"
)

// ErrVersion reports a message of an unsupported protocol version.
var ErrVersion = errors.New("wire: unsupported version")

// Bounds of a decoded message, beside those of a report.
const (
	maxName    = 128
	maxRooms   = 10_000
	maxExpirys = 1 << 14
)

// EncodeReport encodes a report.
func EncodeReport(m *Report) ([]byte, error) { return proto.Marshal(packReport(m)) }

func packReport(m *Report) *wirepb.Report {
	p := &wirepb.Report{
		Version: Version, From: m.From, Instance: m.Instance, LeaseEpoch: m.LeaseEpoch, Seq: m.Seq, Part: m.Part,
		Parts: m.Parts, SentNs: int64(m.Sent), AsOfMs: int64(m.AsOf), AsOfBoundNs: uint64(max(0, m.AsOfBound)),
		Seen: packTerm(m.Seen), Acked: m.Acked, Join: m.Join, Final: m.Final, Bye: m.Bye, Leaving: m.Leaving,
		CountsSinceMs: int64(m.CountsSince), Blank: m.Blank, Recovering: m.Recovering, Succeeds: m.Succeeds,
		Members: m.Members, ClusterId: m.ClusterID, Build: shown(m.Build), EdgesN: m.EdgesN, TellsEdges: m.TellsEdges,
		Stop: packStop(&m.Stop), Stored: m.Stored, Settles: m.Settles, CertificateEndS: m.CertificateEnd,
		Rooms: make([]*wirepb.RoomReport, len(m.Rooms)),
	}
	for i := range m.Rooms {
		p.Rooms[i] = packRoomReport(&m.Rooms[i])
	}
	for _, e := range m.Edges[:min(len(m.Edges), MaxReportedEdges)] {
		p.Edges = append(p.Edges, &wirepb.ToldEdge{
			Name: e.Name, Build: shown(e.Build), State: e.State, HeardMs: millis(e.Heard), LeaseMs: millis(e.Lease),
			CertificateEndS: e.CertificateEnd,
		})
	}
	return p
}

// DecodeReport decodes a report. The error names the field and the rule; it is ErrVersion for another protocol version.
func DecodeReport(data []byte) (*Report, error) {
	var p wirepb.Report
	if err := proto.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return unpackReport(&p)
}

func unpackReport(p *wirepb.Report) (*Report, error) {
	if p.GetVersion() != Version {
		return nil, fmt.Errorf("report: %w: %d", ErrVersion, p.GetVersion())
	}
	m := &Report{
		From: p.From, Instance: p.Instance, LeaseEpoch: p.LeaseEpoch, Seq: p.Seq, Part: p.Part, Parts: p.Parts,
		Sent: fleettime.Mono(p.SentNs), AsOf: fleettime.Time(p.AsOfMs), AsOfBound: time.Duration(p.AsOfBoundNs),
		Seen: unpackTerm(p.Seen), Acked: p.Acked, Join: p.Join, Final: p.Final, Bye: p.Bye, Leaving: p.Leaving,
		CountsSince: fleettime.Time(p.CountsSinceMs), Blank: p.Blank, Recovering: p.Recovering, Succeeds: p.Succeeds,
		Members: p.Members, ClusterID: p.ClusterId, Build: shown(p.Build), EdgesN: p.EdgesN, TellsEdges: p.TellsEdges,
		Stored: p.Stored, Settles: p.Settles, CertificateEnd: p.CertificateEndS, Stop: unpackStop(p.Stop),
	}
	if err := checkHead(m.From, m.Part, m.Parts, len(p.Rooms)); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	for _, e := range p.Edges[:min(len(p.Edges), MaxReportedEdges)] {
		if CheckName(e.Name) == nil {
			m.Edges = append(m.Edges, EdgeStatus{
				e.Name, shown(e.Build), shown(e.State), time.Duration(e.HeardMs) * time.Millisecond,
				time.Duration(e.LeaseMs) * time.Millisecond, e.CertificateEndS,
			})
		}
	}
	if n := len(p.Succeeds); n > MaxSucceeds {
		return nil, fmt.Errorf("report: succeeds: at most %d, got %d", MaxSucceeds, n)
	}
	if p.AsOfBoundNs > math.MaxInt64 {
		return nil, fmt.Errorf("report: as_of_bound: must be at most %d ns, got %d", int64(math.MaxInt64), p.AsOfBoundNs)
	}
	if len(p.Rooms) > 0 {
		m.Rooms = make([]RoomReport, len(p.Rooms))
	}
	for i, r := range p.Rooms {
		if err := unpackRoomReport(&m.Rooms[i], r); err != nil {
			return nil, fmt.Errorf("report: rooms[%d]: %w", i, err)
		}
	}
	return m, nil
}

// shown returns a text for display, or "" if it is not printable: a bad text is no reason to refuse a report.
func shown(s string) string {
	if s = s[:min(len(s), maxShown)]; strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return s
}

// millis returns d in milliseconds, clamped to the range of the field.
func millis(d time.Duration) uint32 {
	return uint32(max(0, min(d.Milliseconds(), math.MaxUint32)))
}

func checkHead(name string, part, parts uint32, rooms int) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("name: must have 1 to %d bytes, got %d", maxName, len(name))
	case parts == 0 || parts > MaxParts || part >= parts:
		return fmt.Errorf("part: must be below parts, and parts 1 to %d, got %d of %d", MaxParts, part, parts)
	case rooms > maxRooms:
		return fmt.Errorf("rooms: at most %d, got %d", maxRooms, rooms)
	}
	return nil
}

// packStop returns nil if visitors enter.
func packStop(s *stop.Stop) *wirepb.Stop {
	if s.OK() {
		return nil
	}
	return &wirepb.Stop{
		Reason: uint32(s.Reason), SinceMs: int64(s.Since), UntilMs: int64(s.Until), DataCenter: shown(s.Centre),
		Edge: shown(s.Edge), Instance: s.Instance, Ended: s.Ended,
	}
}

// unpackStop reads a stop for display. A reason of a newer build stays one that this build cannot name.
func unpackStop(p *wirepb.Stop) stop.Stop {
	if p == nil {
		return stop.Stop{}
	}
	return stop.Stop{
		Reason: stop.Reason(min(p.Reason, math.MaxUint8)), Since: fleettime.Time(p.SinceMs), Until: fleettime.Time(p.UntilMs),
		Centre: shown(p.DataCenter), Edge: shown(p.Edge), Instance: p.Instance, Ended: p.Ended,
	}
}

func packTerm(t Term) *wirepb.Term { return &wirepb.Term{N: t.N, Nonce: t.Nonce} }

func unpackTerm(p *wirepb.Term) Term { return Term{N: p.GetN(), Nonce: p.GetNonce()} }

// unpackCounts checks numbers of permits, so that sums of them do not overflow.
func unpackCounts(sessions, rate uint64) (PermitCounts, error) {
	if max(sessions, rate) > MaxPermits {
		return PermitCounts{}, fmt.Errorf("must be at most %d permits, got %d and %d", int64(MaxPermits), sessions, rate)
	}
	return PermitCounts{Sessions: int64(sessions), Rate: int64(rate)}, nil
}

func packRoomReport(r *RoomReport) *wirepb.RoomReport {
	p := new(roomBuffer).pack(r)
	p.Sessions = packSessions(r.Sessions)
	return p
}

// roomBuffer is the memory of a packed RoomReport.
type roomBuffer struct {
	report wirepb.RoomReport
	moves  wirepb.Moves
}

// pack packs r without its sessions. The result is valid until the next call.
func (b *roomBuffer) pack(r *RoomReport) *wirepb.RoomReport {
	p := &b.report
	p.Reset()
	p.Room, p.Gen, p.Reconstructed = uint64(r.Room), r.Gen, r.Reconstructed
	p.SessionsGranted, p.SessionsReturned, p.Spent, p.Idle = r.Permits.Sessions.Granted, r.Permits.Sessions.Returned,
		r.Spent, r.Idle
	p.RateGranted, p.RateReturned, p.RateIdle, p.RateOwed, p.RateUsed = r.Permits.Rate.Granted, r.Permits.Rate.Returned,
		r.RateIdle, r.RateOwed, r.RateUsed
	p.Renewed, p.RenewCeil, p.Moves = r.Renewed, r.RenewCeil, fillMoves(&b.moves, r.FirstMove, r.Moves)
	p.Want, p.HeldPeople = r.Want, r.HeldPeople
	p.Active, p.Admitted, p.Joined, p.Entered = r.Active, r.Admitted, r.Joined, r.Entered
	p.Waiting, p.Movers, p.Overcommit, p.Ends = packLine(r.Waiting), r.Movers, r.Overcommit, packEnds(r.Ends)
	p.Pending, p.Outcomes, p.Counts, p.Copied = packLine(r.Pending), packOutcomes(r.Outcomes), r.Counts.Trim(),
		packLines(r.Copied)
	p.Passes, p.Callable, p.SiteDown, p.Overdue = packPasses(&r.Passes), r.Callable, r.SiteDown, r.Overdue
	p.BoundSessions, p.BoundRate, p.Removed = uint64(r.Bound.Sessions), uint64(r.Bound.Rate), r.Removed
	if t := r.Forwarded; t != nil {
		p.Told = &wirepb.Sums{Admitted: t.Admitted, Joined: t.Joined, Entered: t.Entered, Counts: t.Counts.Trim()}
	}
	if n := len(r.HeldJoined); n > 0 {
		p.HeldJoinedMs = make([]int64, n)
		last := fleettime.Time(0)
		for i, t := range r.HeldJoined {
			p.HeldJoinedMs[i] = int64(t - last)
			last = t
		}
	}
	for _, m := range r.Arrivals {
		p.ArrivalsMinuteMs = append(p.ArrivalsMinuteMs, int64(m.Start))
		p.ArrivalsN = append(p.ArrivalsN, m.N)
	}
	return p
}

func unpackRoomReport(r *RoomReport, p *wirepb.RoomReport) error {
	*r = RoomReport{
		Room: room.ID(p.GetRoom()), Gen: p.GetGen(), Reconstructed: p.GetReconstructed(),
		Permits: Permits{
			Sessions: Allocation{Granted: p.GetSessionsGranted(), Returned: p.GetSessionsReturned()},
			Rate:     Allocation{Granted: p.GetRateGranted(), Returned: p.GetRateReturned()},
		},
		Spent: p.GetSpent(), Idle: p.GetIdle(), RateIdle: p.GetRateIdle(), RateOwed: p.GetRateOwed(),
		RateUsed: p.GetRateUsed(), Renewed: p.GetRenewed(), RenewCeil: p.GetRenewCeil(), Want: p.GetWant(),
		HeldPeople: p.GetHeldPeople(), Active: p.GetActive(), Admitted: p.GetAdmitted(), Joined: p.GetJoined(),
		Entered: p.GetEntered(), Movers: p.GetMovers(), Overcommit: p.GetOvercommit(), Callable: p.GetCallable(),
		SiteDown: min(p.GetSiteDown(), math.MaxInt32), Overdue: p.GetOverdue(), Removed: p.GetRemoved(),
	}
	r.Passes = unpackPasses(p.GetPasses())
	var err error
	if r.Bound, err = unpackCounts(p.GetBoundSessions(), p.GetBoundRate()); err != nil {
		return fmt.Errorf("bound: %w", err)
	}
	if r.Sessions, err = unpackSessions(p.GetSessions()); err != nil {
		return err
	}
	if r.FirstMove, r.Moves, err = unpackMoves(p.GetMoves()); err != nil {
		return err
	}
	if r.Ends, err = unpackEnds(p.GetEnds()); err != nil {
		return err
	}
	if r.Copied, err = unpackLines(p.GetCopied()); err != nil {
		return fmt.Errorf("copied: %w", err)
	}
	if n := len(r.RateUsed); n > MaxRateUsed {
		return fmt.Errorf("rate_used: at most %d seconds, got %d", MaxRateUsed, n)
	}
	if n := len(p.GetHeldJoinedMs()); n > MaxHeld {
		return fmt.Errorf("held_joined: at most %d, got %d", MaxHeld, n)
	}
	last := int64(0)
	for _, d := range p.GetHeldJoinedMs() {
		last += d
		if len(r.HeldJoined) > 0 && d < 0 {
			return errors.New("held_joined: join times must not decrease")
		}
		r.HeldJoined = append(r.HeldJoined, fleettime.Time(last))
	}
	if r.Waiting, err = unpackLine(p.GetWaiting()); err != nil {
		return fmt.Errorf("waiting: %w", err)
	}
	if r.Pending, err = unpackLine(p.GetPending()); err != nil {
		return fmt.Errorf("pending: %w", err)
	}
	if n := len(p.GetOutcomes()); n > estimate.OutcomesLen {
		return fmt.Errorf("outcomes: at most %d, got %d", estimate.OutcomesLen, n)
	} else if n > 0 {
		r.Outcomes = make(estimate.Outcomes, estimate.OutcomesLen)
		copy(r.Outcomes, p.GetOutcomes())
	}
	if r.Counts = p.GetCounts(); len(r.Counts) > history.NumCounts {
		return fmt.Errorf("counts: at most %d, got %d", history.NumCounts, len(r.Counts))
	}
	if t := p.GetTold(); t != nil {
		if len(t.Counts) > history.NumCounts {
			return fmt.Errorf("told: at most %d counts, got %d", history.NumCounts, len(t.Counts))
		}
		r.Forwarded = &Sums{t.Admitted, t.Joined, t.Entered, t.Counts}
	}
	if len(p.GetArrivalsMinuteMs()) != len(p.GetArrivalsN()) || len(p.GetArrivalsN()) > MaxMinutes {
		return fmt.Errorf("arrivals: columns must be equally long and hold at most %d minutes", MaxMinutes)
	}
	for i, t := range p.GetArrivalsMinuteMs() {
		r.Arrivals = append(r.Arrivals, Minute{Start: fleettime.Time(t), N: p.GetArrivalsN()[i]})
	}
	return nil
}
