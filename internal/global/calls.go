package global

import (
	"context"
	"fmt"
	"time"

	"vestibule/internal/core/push"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

const (
	callsEvery = time.Second
	callsRooms = 2000 // in one message

	lookEvery = 10 * time.Second
	lateAfter = 6 * time.Minute // a push service may ask for five
	noneAfter = time.Minute     // no notifier is heard
)

// tellCalls tells the notifiers, while this candidate leads, how far each room has called its visitors.
func (s *Server) tellCalls(ctx context.Context) error {
	heard := time.Now() // when a notifier was last heard
	looked := heard
	node.Every(ctx, callsEvery, func() {
		calls := s.calls()
		if now := time.Now(); now.Sub(looked) >= lookEvery {
			looked = now
			s.lookAtOutbox(ctx, now, &heard, calls != nil)
		}
		for _, c := range calls {
			s.tell(wire.CallSubject, c)
		}
	})
	return nil
}

// lookAtOutbox looks, while this candidate leads and calls visitors, whether notifications are delivered.
func (s *Server) lookAtOutbox(ctx context.Context, now time.Time, heard *time.Time, calls bool) {
	late := ""
	if s.Outbox == nil || !calls {
		*heard = now
		s.late.Store(&late)
		return
	}
	if at, _ := s.candidates.notified(0); at.After(*heard) {
		*heard = at
	}
	ctx, cancel := context.WithTimeout(ctx, lookEvery/2)
	defer cancel()
	oldest, err := s.Outbox(ctx)
	failing := s.candidates.failing(now)
	switch {
	case now.Sub(*heard) >= noneAfter:
		late = "notifications are late: no notifier works"
	case len(failing) > 0:
		late = failing[0]
	case err != nil:
		return // of the store others tell
	case !oldest.IsZero() && now.Sub(oldest) >= lateAfter:
		late = fmt.Sprintf("notifications are late: the oldest has waited for %v", now.Sub(oldest).Round(time.Second))
	}
	s.late.Store(&late)
}

// calls returns the messages to publish; none unless this candidate leads.
func (cur *currentTerm) calls() []push.Calls {
	set := cur.fleet.Set()
	if !set.Notifies() {
		return nil
	}
	return whileLeading(cur, func(l *leadership) (out []push.Calls) {
		now := l.alloc.Time(cur.mono.Now())
		for _, r := range set.Rooms() {
			if !r.Notifies() || r.Suspended || !stop.Of(&r.Settings, r.Control, r.Phase, now).OK() {
				continue
			}
			t := l.alloc.Totals(r.ID)
			if t.View == nil || !t.Complete {
				continue
			}
			if len(out) == 0 || len(out[len(out)-1].Rooms) == callsRooms {
				out = append(out, push.Calls{At: now})
			}
			last := &out[len(out)-1]
			last.Rooms = append(last.Rooms, push.CallOf(r.ID, t.View, r.Claim, now))
		}
		return out
	})
}
