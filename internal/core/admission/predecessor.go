package admission

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Predecessor makes the last report of a process that ended without a goodbye, from the snapshot that it left in the
// data folder. Like an [Engine] it is a child of the regional. The holder of the folder's lock may use it: the process
// has ended.
type Predecessor struct {
	head  wire.Report
	rooms []wire.RoomReport
	seen  wire.Term // the parent that the reports are for
	seq   uint64
	due   fleettime.Mono
	done  bool
	every wire.Params
}

// settleSeq is above the Seq of every report of a living process.
const settleSeq = 1 << 48

// NewPredecessor returns the predecessor that left snapshot p. Its first report is due at once.
func NewPredecessor(p *wire.Past, params wire.Params) *Predecessor {
	out := &Predecessor{head: p.Head, seen: p.Head.Seen, seq: settleSeq, every: params, due: -1 << 63}
	out.head.Join, out.head.Final, out.head.Bye, out.head.Settles, out.head.Stored = true, true, true, true, p.Number
	for i := range p.Rooms {
		out.rooms = append(out.rooms, lastReport(&p.Head, &p.Rooms[i]))
	}
	return out
}

// lastReport returns the last report of a room: its snapshot, with all tickets that may have been stamped since. Each
// of them may be an admission or a renewal of a session that counts already, and expires as late as any.
func lastReport(head *wire.Report, p *wire.RoomPast) wire.RoomReport {
	r := p.Report
	if p.More == 0 {
		return r
	}
	until := uint32(head.AsOf.Second()) + snapshotLife + 1 + p.Life
	i, found := slices.BinarySearchFunc(r.Sessions, until,
		func(x wire.Expiry, until uint32) int { return int(x.Until) - int(until) })
	if r.Sessions = slices.Clone(r.Sessions); found {
		r.Sessions[i].Stamped += p.More
	} else {
		r.Sessions = slices.Insert(r.Sessions, i, wire.Expiry{Until: until, Stamped: p.More})
	}
	r.FirstMove += p.More           // moves that nobody reports
	kept := min(r.RateIdle, p.More) // may have been used since
	r.Permits.Rate.Returned += r.RateIdle - kept
	r.RateIdle = kept
	r.RateOwed += p.More - kept // a new regional knows of no permits of R that were granted since
	return r
}

// Instance returns the instance ID of the process.
func (p *Predecessor) Instance() uint64 { return p.head.Instance }

// Settled reports whether the regional has settled the instance, or refuses to.
func (p *Predecessor) Settled() bool { return p.done }

// Due returns when the next report is due; fleettime.Never once the instance is settled.
func (p *Predecessor) Due() fleettime.Mono {
	if p.done {
		return fleettime.Never
	}
	return p.due
}

// Report returns the last report, for the parent that is known to lead.
func (p *Predecessor) Report(now fleettime.Mono) []wire.Report {
	p.seq++
	p.due = now.Add(p.every.ReportFast)
	head := p.head
	head.Seq, head.Sent, head.Seen = p.seq, now, p.seen
	pack := wire.NewReportPacker(head)
	for _, r := range p.rooms {
		if p.seen != p.head.Seen {
			r.Passes = wire.Passes{} // another parent granted them
		}
		pack.Add(r)
	}
	return pack.Reports()
}

// Apply applies a grant to the process: its promise to follow the sender is that of the process, which does nothing any
// more.
func (p *Predecessor) Apply(now fleettime.Mono, g wire.Grant) {
	if g.To != p.head.From || g.Instance != p.head.Instance || p.done || p.seen.Fences(g.From) {
		return
	}
	if p.seen != g.From {
		p.seen, p.due = g.From, now
	}
	// A regional of an older release would not know that the folder may have become void since.
	p.done = g.Handshake == wire.Dead || g.Folder == wire.FolderUnknown
}
