package sim

import (
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
)

// draws holds the stored draws of events, and the oracle's results.
type draws struct {
	board   *draw.Board
	secrets map[draw.Event]draw.Secret
	places  map[*draw.Record]*draw.Draw // of records, recomputed by the oracle
}

// eventID is the ID of every event with a draw.
const eventID = "25756b2dfe6e378a06b033b670413757"

// tendDraws does the work of every coordinator's shell for draws, twice a second. The store accepts a write only over
// the revision that the writer has read.
func (o *operator) tendDraws() {
	if o.event == nil || !o.event.Shuffle || o.removed {
		return
	}
	for i, n := range o.globals.all {
		if n.gone {
			continue
		}
		now, bound := n.core.Clock(n.clock.read(o.now), o.fleetTime().Add(n.offset))
		read, events := o.draws.board, o.drawn()
		due := read.Due(now, bound, events)
		if due.Nothing() {
			continue
		}
		o.in(time.Duration(o.chaos.Int64N(int64(20*time.Millisecond))+o.slowDisk()), func() {
			if o.event == nil || o.draws.board != read || n.gone && o.chaos.IntN(2) == 0 {
				return // a concurrent write, or the writer died before
			}
			o.writeDraws(i, now, &due)
		})
	}
}

// writeDraws stores the due step of a coordinator, and publishes it to every node.
func (o *operator) writeDraws(i int, now fleettime.Time, due *draw.Due) {
	if o.draws.secrets == nil {
		o.draws.secrets, o.draws.places = map[draw.Event]draw.Secret{}, map[*draw.Record]*draw.Draw{}
	}
	var write []*draw.Notice
	for _, e := range due.Commit {
		s, ok := o.draws.secrets[e]
		if !ok {
			s = draw.Secret{}
			for k := range s {
				s[k] = byte(o.chaos.Uint32())
			}
			o.draws.secrets[e] = s
		}
		write = append(write, draw.Announce(now, e, s, draw.BeaconNone))
		o.tracef("coordinator %d announces a draw whose entries close at %v", i+1, e.Closes().Sub(epoch))
	}
	for _, e := range due.Void {
		write = append(write, draw.Without(e, "too late"))
		o.tracef("coordinator %d: no draw, it is too late", i+1)
	}
	for _, n := range due.Publish {
		done, err := n.Publish(now, o.draws.secrets[draw.Event{Room: n.Room, ID: n.Event, Start: n.Start, End: n.End}], nil,
			uint64(o.oracle.waiting))
		if err != nil {
			o.fail("no record of the draw: %v", err)
			return
		}
		write = append(write, done)
		o.tracef("coordinator %d publishes the record of the draw whose entries closed at %v", i+1, n.Closes().Sub(epoch))
	}
	next, err := o.draws.board.With(uint64(now), now, write, due.Forget)
	if err != nil {
		o.fail("no draw registry: %v", err)
		return
	}
	for _, n := range next.Notices { // no draw is published twice
		if old := o.draws.board.Of(draw.Event{Room: n.Room, ID: n.Event, Start: n.Start}); old.Drawn() != nil &&
			*old.Drawn() != *n.Drawn() {
			o.fail("a second record of a draw")
		}
	}
	o.draws.board = next
	o.watchPhases()
	o.edited()
}

// scheduleDraw adds an event with a draw to the room's calendar. Its entries close soon after visitors begin to gather,
// and often the coordinator ends about then.
func (o *operator) scheduleDraw(f *fault) {
	now := o.fleetTime()
	if o.event != nil && int64(now) < o.event.End {
		return
	}
	gather := now.Add(time.Duration(1+5*f.x) * time.Second)
	start := gather.Add(draw.Lead + time.Duration(f.y*10*float64(time.Second)))
	e := &room.Event{
		ID: eventID, Name: "launch", Shuffle: true, Prequeue: int64(gather), Start: int64(start),
		End: int64(start.Add(10*time.Second + f.last)),
	}
	o.giveEvent(e)
	o.announce(f, "an event with a draw: people gather at %v, entries close at %v, it begins at %v and ends at %v",
		sinceEpoch(e.Prequeue), start.Add(-draw.Lead).Sub(epoch), sinceEpoch(e.Start), sinceEpoch(e.End))
	if o.cfg.Faults.CrashGlobal && f.x < 0.5 {
		about := start.Add(-draw.Lead).Sub(now) + time.Duration((f.x-0.25)*4*float64(time.Second))
		o.in(max(0, about), func() {
			if !o.calm {
				o.globals.crashLeader(f)
			}
		})
	}
}

// drawn returns the events with a draw, as nodes read them.
func (o *roomDoc) drawn() []draw.Event {
	s := room.Settings{Name: firstName}
	return []draw.Event{s.DrawOf(o.event)}
}

// undrawn reports whether a waiting visitor's place is still to be drawn, or to be counted: it is shown to nobody
// before.
func (o *roomDoc) undrawn(now fleettime.Time, t *ticket.Ticket) bool {
	e := o.event
	if e == nil || !e.Shuffle || t.Joined >= o.drawn()[0].Closes() {
		return false
	}
	return t.Place() == t.Joined || now < o.draws.board.Of(o.drawn()[0]).Counted()
}

// checkDraw checks an admission after a draw: nobody enters before the draw is settled, or by a place other than the
// drawn one, and late visitors are behind all drawn ones. Only the certain part of the event is checked.
func (j *oracle) checkDraw(e *edgeNode, t *ticket.Ticket) {
	o := j.doc
	const sure = 3 * time.Second
	if o.event == nil || !o.event.Shuffle || e.told.Shut == admission.QueuedAll {
		return
	}
	now, end := j.fleetTime(), fleettime.Time(o.event.End)
	n := o.draws.board.Of(o.drawn()[0])
	if now < fleettime.Time(o.event.Start).Add(fleettime.MaxError) || now >= end.Add(-sure-j.cfg.Faults.Vague) ||
		n != nil && n.Void != "" {
		return
	}
	r := n.Drawn()
	if r == nil || now < n.Published.Add(draw.Settle-fleettime.MaxError) {
		j.fail("%s admits a visitor %v after the start of an event before its draw is settled", e,
			now.Sub(fleettime.Time(o.event.Start)))
		return
	}
	d := o.draws.places[r]
	if d == nil {
		d = r.Draw()
		o.draws.places[r] = d
	}
	if j.seeDrawn != nil {
		j.seeDrawn(n, t)
	}
	closes, place := n.Closes(), t.Place()
	switch {
	case t.Joined >= closes && place != t.Joined:
		j.fail("%s admits a visitor by a drawn place that joined %v after entries closed", e, t.Joined.Sub(closes))
	case t.Joined < closes && place >= closes:
		j.fail("%s admits a drawn visitor by a place behind the draw", e)
	case t.Joined < closes && place != d.Place(t.ID, t.Joined, 0):
		j.fail("%s admits a drawn visitor by another place", e)
	}
}
