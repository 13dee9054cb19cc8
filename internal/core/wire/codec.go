package wire

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire/pb"
)

// ErrVersion reports a message of an unsupported protocol version.
var ErrVersion = errors.New("wire: unsupported version")

// Bounds of a decoded message, beside those of a report.
const (
	maxName    = 128
	maxRooms   = 10_000
	maxExpirys = 1 << 14
)

// versionField is the number of the protocol version in every message that is sent or stored.
const versionField = 1

func version[M any]() pb.Field[M] {
	return pb.Number(versionField, pb.Varint, func(*M) uint64 { return Version }, func(_ *M, n uint64) error {
		if n != Version {
			return fmt.Errorf("%w: %d", ErrVersion, n)
		}
		return nil
	})
}

// decode decodes a message that begins with its version. Errors begin with what the message is.
func decode[M any](what string, c pb.Codec[M], data []byte) (*M, error) {
	m := new(M)
	if err := c.Decode(m, data); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if first, _, _ := protowire.ConsumeTag(data); first != versionField {
		return nil, fmt.Errorf("%s: %w: 0", what, ErrVersion)
	}
	return m, nil
}

// EncodeReport encodes a report.
func EncodeReport(m *Report) []byte { return reportCodec.Append(nil, m) }

// DecodeReport decodes a report. The error names the field and the rule; it is ErrVersion for another protocol version.
func DecodeReport(data []byte) (*Report, error) { return decode("report", reportCodec, data) }

var reportCodec = pb.Check(reportFields, func(m *Report) error {
	m.Edges = slices.DeleteFunc(m.Edges[:min(len(m.Edges), MaxReportedEdges)], func(e EdgeStatus) bool {
		return CheckName(e.Name) != nil
	})
	if n := len(m.Succeeds); n > MaxSucceeds {
		return fmt.Errorf("succeeds: at most %d, got %d", MaxSucceeds, n)
	}
	return checkHead(m.From, m.Part, m.Parts)
})

var reportFields = pb.Message[Report]{
	version[Report](),
	pb.String(2, func(m *Report) *string { return &m.From }),
	pb.Fixed(3, func(m *Report) *uint64 { return &m.Instance }),
	pb.Int(4, func(m *Report) *uint64 { return &m.LeaseEpoch }),
	pb.Int(5, func(m *Report) *uint64 { return &m.Seq }),
	pb.Int(6, func(m *Report) *uint32 { return &m.Part }),
	pb.Int(7, func(m *Report) *uint32 { return &m.Parts }),
	pb.Signed(8, func(m *Report) *fleettime.Mono { return &m.Sent }),
	pb.Int(9, func(m *Report) *fleettime.Time { return &m.AsOf }),
	pb.Sub(10, "", termFields, nil, func(m *Report) *Term { return &m.Seen }),
	pb.Int(11, func(m *Report) *uint64 { return &m.Acked }),
	pb.Bool(12, func(m *Report) *bool { return &m.Join }),
	pb.Bool(13, func(m *Report) *bool { return &m.Final }),
	pb.Bool(14, func(m *Report) *bool { return &m.Bye }),
	pb.Bool(15, func(m *Report) *bool { return &m.Blank }),
	pb.Repeated(16, "rooms", maxRooms, roomReportCodec, func(m *Report) *[]RoomReport { return &m.Rooms }),
	nanos(17, "as_of_bound", func(m *Report) *time.Duration { return &m.AsOfBound }),
	pb.Bool(18, func(m *Report) *bool { return &m.Recovering }),
	pb.List(19, pb.Fixed64, func(m *Report) *[]uint64 { return &m.Succeeds }),
	pb.Int(24, func(m *Report) *uint64 { return &m.Members }),
	pb.Fixed(25, func(m *Report) *uint64 { return &m.ClusterID }),
	pb.Bool(26, func(m *Report) *bool { return &m.Leaving }),
	text(27, func(m *Report) *string { return &m.Build }),
	pb.Repeated(28, "edges", math.MaxInt, edgeFields, func(m *Report) *[]EdgeStatus { return &m.Edges }),
	pb.Int(29, func(m *Report) *uint32 { return &m.EdgesN }),
	pb.Bool(30, func(m *Report) *bool { return &m.TellsEdges }),
	pb.Int(32, func(m *Report) *fleettime.Time { return &m.CountsSince }),
	pb.Sub(33, "", stopFields, stops, func(m *Report) *stop.Stop { return &m.Stop }),
	pb.Int(40, func(m *Report) *uint64 { return &m.Stored }),
	pb.Bool(41, func(m *Report) *bool { return &m.Settles }),
	pb.Int(42, func(m *Report) *int64 { return &m.CertificateEnd }),
	pb.Int(43, func(m *Report) *Forms { return &m.Reads }),
	pb.String(44, func(m *Report) *string { return &m.Listens }),
	pb.Int(45, func(m *Report) *Membership { return &m.Membership }),
}

var termFields = pb.Message[Term]{
	pb.Int(1, func(t *Term) *uint64 { return &t.N }),
	pb.Fixed(2, func(t *Term) *uint64 { return &t.Nonce }),
}

var edgeFields = pb.Message[EdgeStatus]{
	pb.String(1, func(e *EdgeStatus) *string { return &e.Name }),
	text(2, func(e *EdgeStatus) *string { return &e.Build }),
	text(3, func(e *EdgeStatus) *string { return &e.State }),
	millis(4, func(e *EdgeStatus) *time.Duration { return &e.Heard }),
	millis(5, func(e *EdgeStatus) *time.Duration { return &e.Lease }),
	pb.Int(6, func(e *EdgeStatus) *int64 { return &e.CertificateEnd }),
	pb.String(7, func(e *EdgeStatus) *string { return &e.Listens }),
}

// stopFields encode a stop for display. A reason of a newer build stays one that this build cannot name.
var stopFields = pb.Message[stop.Stop]{
	pb.Number(1, pb.Varint, func(s *stop.Stop) uint64 { return uint64(s.Reason) }, func(s *stop.Stop, n uint64) error {
		s.Reason = stop.Reason(min(n, math.MaxUint8))
		return nil
	}),
	pb.Int(2, func(s *stop.Stop) *fleettime.Time { return &s.Since }),
	pb.Int(3, func(s *stop.Stop) *fleettime.Time { return &s.Until }),
	text(4, func(s *stop.Stop) *string { return &s.Centre }),
	text(5, func(s *stop.Stop) *string { return &s.Edge }),
	pb.Fixed(6, func(s *stop.Stop) *uint64 { return &s.Instance }),
	pb.Bool(7, func(s *stop.Stop) *bool { return &s.Ended }),
}

func stops(s *stop.Stop) bool { return !s.OK() }

// text is a text for display.
func text[M any](number protowire.Number, at func(*M) *string) pb.Field[M] {
	return pb.Custom(number, func(b []byte, m *M) []byte {
		if s := shown(*at(m)); s != "" {
			b = protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
		}
		return b
	}, func(m *M, data []byte) error {
		*at(m) = shown(string(data))
		return nil
	})
}

// texts is a list of texts for display, cut at most.
func texts[M any](number protowire.Number, most int, at func(*M) *[]string) pb.Field[M] {
	return pb.Custom(number, func(b []byte, m *M) []byte {
		all := *at(m)
		for _, s := range all[:min(len(all), most)] {
			b = protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), shown(s))
		}
		return b
	}, func(m *M, data []byte) error {
		if all := at(m); len(*all) < most {
			*all = append(*all, shown(string(data)))
		}
		return nil
	})
}

// shown returns a text for display, or "" if it is not printable: a bad text is no reason to refuse a report.
func shown(s string) string {
	if s = s[:min(len(s), maxShown)]; strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return s
}

// nanos is a time in nanoseconds, at least 0.
func nanos[M any](number protowire.Number, name string, at func(*M) *time.Duration) pb.Field[M] {
	return pb.Number(number, pb.Varint, func(m *M) uint64 { return uint64(max(0, *at(m))) }, func(m *M, n uint64) error {
		if n > math.MaxInt64 {
			return fmt.Errorf("%s: must be at most %d ns, got %d", name, int64(math.MaxInt64), n)
		}
		*at(m) = time.Duration(n)
		return nil
	})
}

// millis is a time in milliseconds, clamped to 32 bits.
func millis[M any](number protowire.Number, at func(*M) *time.Duration) pb.Field[M] {
	return pb.Number(number, pb.Varint, func(m *M) uint64 {
		return uint64(max(0, min((*at(m)).Milliseconds(), math.MaxUint32)))
	}, func(m *M, n uint64) error {
		*at(m) = time.Duration(uint32(n)) * time.Millisecond
		return nil
	})
}

func checkHead(name string, part, parts uint32) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("name: must have 1 to %d bytes, got %d", maxName, len(name))
	case parts == 0 || parts > MaxParts || part >= parts:
		return fmt.Errorf("part: must be below parts, and parts 1 to %d, got %d of %d", MaxParts, part, parts)
	}
	return nil
}

// check holds that sums of the numbers do not overflow.
func (c PermitCounts) check() error {
	if s, r := uint64(c.Sessions), uint64(c.Rate); max(s, r) > MaxPermits {
		return fmt.Errorf("must be at most %d permits, got %d and %d", int64(MaxPermits), s, r)
	}
	return nil
}

// roomReport is a RoomReport as encoded: with lists as columns, and without zeros at the end of counts.
type roomReport struct {
	*RoomReport
	moves    moveColumns
	held     []int64 // join times: the first absolute, the others as differences
	minutes  []fleettime.Time
	arrivals []uint64
	outcomes estimate.Outcomes
	counts   history.Counts
	told     *Sums
}

// roomReports is the codec of a RoomReport, which is not copied: every snapshot encodes all of them.
type roomReports struct{}

var roomReportCodec pb.Codec[RoomReport] = roomReports{}

// Append implements [pb.Codec].
func (roomReports) Append(b []byte, r *RoomReport) []byte {
	p := roomReport{
		RoomReport: r, moves: packMoves(r.FirstMove, r.Moves), outcomes: packOutcomes(r.Outcomes), counts: r.Counts.Trim(),
	}
	if t := r.Forwarded; t != nil {
		p.told = &Sums{t.Admitted, t.Joined, t.Entered, t.Counts.Trim()}
	}
	if n := len(r.HeldJoined); n > 0 {
		p.held = make([]int64, n)
		last := fleettime.Time(0)
		for i, t := range r.HeldJoined {
			p.held[i] = int64(t - last)
			last = t
		}
	}
	for _, m := range r.Arrivals {
		p.minutes, p.arrivals = append(p.minutes, m.Start), append(p.arrivals, m.N)
	}
	return roomReportFields.Append(b, &p)
}

// Decode implements [pb.Codec].
func (roomReports) Decode(r *RoomReport, data []byte) error {
	p := roomReport{RoomReport: r}
	err := roomReportFields.Decode(&p, data)
	if err != nil {
		return err
	}
	r.SiteDown = min(r.SiteDown, math.MaxInt32)
	if err := r.Bound.check(); err != nil {
		return fmt.Errorf("bound: %w", err)
	}
	if err := r.Uncovered.check(); err != nil {
		return fmt.Errorf("uncovered: %w", err)
	}
	r.FirstMove = p.moves.first
	if r.Moves, err = unpackMoves(&p.moves); err != nil {
		return err
	}
	if n := len(r.RateUsed); n > MaxRateUsed {
		return fmt.Errorf("rate_used: at most %d seconds, got %d", MaxRateUsed, n)
	}
	if n := len(p.held); n > MaxHeld {
		return fmt.Errorf("held_joined: at most %d, got %d", MaxHeld, n)
	}
	last := int64(0)
	for _, d := range p.held {
		last += d
		if len(r.HeldJoined) > 0 && d < 0 {
			return errors.New("held_joined: join times must not decrease")
		}
		r.HeldJoined = append(r.HeldJoined, fleettime.Time(last))
	}
	if n := len(p.outcomes); n > estimate.OutcomesLen {
		return fmt.Errorf("outcomes: at most %d, got %d", estimate.OutcomesLen, n)
	} else if n > 0 {
		r.Outcomes = make(estimate.Outcomes, estimate.OutcomesLen)
		copy(r.Outcomes, p.outcomes)
	}
	if r.Counts = p.counts; len(r.Counts) > history.NumCounts {
		return fmt.Errorf("counts: at most %d, got %d", history.NumCounts, len(r.Counts))
	}
	if r.Forwarded = p.told; r.Forwarded != nil && len(r.Forwarded.Counts) > history.NumCounts {
		return fmt.Errorf("told: at most %d counts, got %d", history.NumCounts, len(r.Forwarded.Counts))
	}
	if len(p.minutes) != len(p.arrivals) || len(p.arrivals) > MaxMinutes {
		return fmt.Errorf("arrivals: columns must be equally long and hold at most %d minutes", MaxMinutes)
	}
	for i, t := range p.minutes {
		r.Arrivals = append(r.Arrivals, Minute{Start: t, N: p.arrivals[i]})
	}
	return nil
}

func packOutcomes(o estimate.Outcomes) estimate.Outcomes {
	for n := len(o); n > 0; n-- {
		if o[n-1] != 0 {
			return o[:n:n]
		}
	}
	return nil
}

var sumsFields = pb.Message[Sums]{
	pb.Int(1, func(s *Sums) *uint64 { return &s.Admitted }),
	pb.Int(2, func(s *Sums) *uint64 { return &s.Joined }),
	pb.Int(3, func(s *Sums) *uint64 { return &s.Entered }),
	pb.List(4, pb.Varint, func(s *Sums) *history.Counts { return &s.Counts }),
}

var roomReportFields = pb.Message[roomReport]{
	pb.Fixed(1, func(r *roomReport) *room.ID { return &r.Room }),
	pb.Int(2, func(r *roomReport) *uint64 { return &r.Gen }),
	pb.Int(3, func(r *roomReport) *uint64 { return &r.Permits.Sessions.Granted }),
	pb.Int(4, func(r *roomReport) *uint64 { return &r.Permits.Sessions.Returned }),
	pb.Int(5, func(r *roomReport) *uint64 { return &r.Spent }),
	pb.Int(6, func(r *roomReport) *uint64 { return &r.Idle }),
	pb.Int(7, func(r *roomReport) *uint64 { return &r.Permits.Rate.Granted }),
	pb.Int(8, func(r *roomReport) *uint64 { return &r.Permits.Rate.Returned }),
	pb.Int(9, func(r *roomReport) *uint64 { return &r.RateIdle }),
	pb.Int(10, func(r *roomReport) *uint64 { return &r.Renewed }),
	pb.Int(11, func(r *roomReport) *uint64 { return &r.RenewCeil }),
	sessions(12, func(r *roomReport) *[]Expiry { return &r.Sessions }),
	pb.Sub(13, "", moveFields, (*moveColumns).any, func(r *roomReport) *moveColumns { return &r.moves }),
	pb.Int(14, func(r *roomReport) *uint64 { return &r.Want }),
	pb.Int(15, func(r *roomReport) *uint64 { return &r.HeldPeople }),
	pb.List(16, pb.Zigzag, func(r *roomReport) *[]int64 { return &r.held }),
	pb.Int(17, func(r *roomReport) *uint64 { return &r.Active }),
	pb.Int(18, func(r *roomReport) *uint64 { return &r.Admitted }),
	pb.Int(19, func(r *roomReport) *uint64 { return &r.Joined }),
	pb.Int(20, func(r *roomReport) *uint64 { return &r.Entered }),
	histogram(21, "waiting", func(r *roomReport) *estimate.Histogram { return &r.Waiting }),
	pb.List(22, pb.Varint, func(r *roomReport) *[]fleettime.Time { return &r.minutes }),
	pb.List(23, pb.Varint, func(r *roomReport) *[]uint64 { return &r.arrivals }),
	pb.Int(24, func(r *roomReport) *uint64 { return &r.RateOwed }),
	pb.Bool(25, func(r *roomReport) *bool { return &r.Reconstructed }),
	pb.Int(26, func(r *roomReport) *uint64 { return &r.Movers }),
	pb.Int(27, func(r *roomReport) *uint64 { return &r.Overcommit }),
	ends(28, func(r *roomReport) *[]End { return &r.Ends }),
	pb.List(30, pb.Varint, func(r *roomReport) *estimate.Outcomes { return &r.outcomes }),
	histogram(31, "pending", func(r *roomReport) *estimate.Histogram { return &r.Pending }),
	lines(36, "copied", func(r *roomReport) *[]Line { return &r.Copied }),
	pb.List(37, pb.Varint, func(r *roomReport) *[]uint32 { return &r.RateUsed }),
	pb.Sub(38, "", passesFields, granted, func(r *roomReport) *Passes { return &r.Passes }),
	pb.Int(39, func(r *roomReport) *uint64 { return &r.Callable }),
	pb.List(40, pb.Varint, func(r *roomReport) *history.Counts { return &r.counts }),
	pb.Int(41, func(r *roomReport) *uint64 { return &r.SiteDown }),
	pb.Signed(42, func(r *roomReport) *int64 { return &r.Overdue }),
	pb.Int(50, func(r *roomReport) *int64 { return &r.Bound.Sessions }),
	pb.Int(51, func(r *roomReport) *int64 { return &r.Bound.Rate }),
	pb.Pointer(52, "", sumsFields, func(r *roomReport) **Sums { return &r.told }),
	pb.Bool(53, func(r *roomReport) *bool { return &r.Removed }),
	pb.Int(54, func(r *roomReport) *int64 { return &r.Uncovered.Sessions }),
	pb.Int(55, func(r *roomReport) *int64 { return &r.Uncovered.Rate }),
	pb.Repeated(56, "asks", MaxAsks, askFields, func(r *roomReport) *[]Ask { return &r.Asks }),
	pb.Repeated(57, "stays", MaxAsks, stayFields, func(r *roomReport) *[]Stay { return &r.Stays }),
	pb.Repeated(58, "transfers", MaxAsks, transferFields, func(r *roomReport) *[]Transfer { return &r.Transfers }),
	pb.Repeated(59, "taken", MaxTaken, takenFields, func(r *roomReport) *[]Taken { return &r.Taken }),
	texts(60, MaxNamed, func(r *roomReport) *[]string { return &r.SiteDownAt }),
}
