package room

import (
	"maps"
	"slices"
	"time"

	"vestibule/internal/core/draw"
)

// This file derives the rooms in force: under their events and under the controls of operators.

// Planned reports whether any room has an event with an effect.
func (s *Set) Planned() bool { return s != nil && len(s.planned) > 0 }

// Next returns the first time after now at which, with a clock uncertainty of bound, a phase of a room begins or may
// begin, or a control of c ends; 0 for never.
func (s *Set) Next(c *Controls, now int64, bound time.Duration) (next int64) {
	next = about(c.Next, now, bound)
	if s == nil {
		return next
	}
	for _, r := range s.planned {
		next = sooner(next, about(s.plan(r).Next, now, bound))
	}
	return next
}

// about returns the first time after now at which, with a clock uncertainty of bound, an event reported by next
// happens or may happen; 0 for never.
func about(next func(now int64) int64, now int64, bound time.Duration) (first int64) {
	off := bound.Milliseconds()
	for _, at := range []int64{next(now+off) - off, next(now), next(now-off) + off} {
		if at > now {
			first = sooner(first, at)
		}
	}
	return first
}

// sooner returns the earlier of two times; 0 is never.
func sooner(a, b int64) int64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// Under returns the set in force at now with a clock uncertainty of bound: with the phases of events, and under c, nil
// for none, which has precedence. Unchanged rooms are shared with s; if all are, it returns s.
func (s *Set) Under(c *Controls, now int64, bound time.Duration) *Set {
	if s == nil {
		return s
	}
	changed := map[*Room]*Room{}
	for _, r := range s.planned {
		plan, drawn := s.plan(r), s.board.Drawn(PublicID(r.TicketName()))
		if in, on, closed := r.During(plan, now, bound); on.Kind != Base || closed || drawn != nil ||
			len(plan) != len(r.Plan) || !in.Equal(r.Settings) {
			changed[r] = &Room{ID: r.ID, Settings: in, Index: r.Index, Plan: plan, Phase: on, Closed: closed, Drawn: drawn}
			if e := on.Event; e != nil && e.Shuffle {
				changed[r].Draw = s.board.Of(r.DrawOf(e))
			}
		}
	}
	if c != nil {
		s.control(c, now, bound, changed)
	}
	if len(changed) == 0 {
		return s
	}
	out := *s
	out.rooms, out.byID, out.byName = slices.Clone(s.rooms), maps.Clone(s.byID), maps.Clone(s.byName)
	for _, r := range changed {
		out.rooms[r.Index], out.byID[r.ID], out.byName[r.Name] = r, r, r
	}
	return &out
}

// control applies c to the rooms of s, or to their versions in changed.
func (s *Set) control(c *Controls, now int64, bound time.Duration, changed map[*Room]*Room) {
	for id, control := range c.Rooms {
		known, err := controlledID(id)
		if err != nil {
			continue // DecodeControls refuses it
		}
		in, before := control.At(now), control.At(now-bound.Milliseconds())
		r := s.ByID(known)
		if r == nil || before == nil || PublicID(r.TicketName()) != id {
			continue
		}
		out := *r
		if phase := changed[r]; phase != nil {
			out = *phase
		}
		out.Settings, out.Control = out.Surely(control, now, bound), in
		if in != nil || !out.Equal(r.Settings) {
			changed[r] = &out
		}
	}
}

// WithDraws returns the set with the public state of draws, used by [Set.Under] and [Set.Next]. The nil set returns
// nil.
func (s *Set) WithDraws(board *draw.Board) *Set {
	if s == nil || board == nil {
		return s
	}
	out := *s
	out.board, out.planned = board, slices.Clone(s.planned)
	for _, n := range board.Notices {
		if id, err := controlledID(n.Room); err == nil && n.Drawn() != nil {
			if r := s.ByID(id); r != nil && PublicID(r.TicketName()) == n.Room && !slices.Contains(out.planned, r) {
				out.planned = append(out.planned, r) // drawn positions outlive the event
			}
		}
	}
	return &out
}

// plan returns the plan of a room with the known draws.
func (s *Set) plan(r *Room) Plan {
	if s.board == nil || !slices.ContainsFunc(r.Events, func(e Event) bool { return e.Shuffle }) {
		return r.Plan
	}
	return r.PlanBy(s.board)
}

// Draws returns the events that begin with a draw. The nil set has none.
func (s *Set) Draws() (events []draw.Event) {
	if s == nil {
		return nil
	}
	for _, r := range s.planned {
		for i := range r.Events {
			if e := &r.Events[i]; e.Shuffle && !e.Suspended {
				events = append(events, r.DrawOf(e))
			}
		}
	}
	return events
}
