package global

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/push"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
)

const (
	callsEvery = time.Second
	callsRooms = 2000 // in one message
	callSoon   = 5 * time.Minute
)

// tellCalls tells the notifiers, while this candidate leads, how far each room has called its visitors.
func (s *Server) tellCalls(ctx context.Context) error {
	tick := time.NewTicker(callsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, c := range s.calls() {
			data, err := json.Marshal(c)
			if err == nil {
				err = s.Bus.Publish(wire.CallSubject, data)
			}
			if err != nil && !errors.Is(err, wire.ErrDown) {
				s.log.Warn("calls not published", slog.Any("error", err))
			}
		}
	}
}

// calls returns the messages to publish; none unless this candidate leads.
func (s *Server) calls() (out []push.Calls) {
	set := s.fleet.Set()
	if !set.Notifies() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading == nil {
		return nil
	}
	now := s.leading.alloc.Time(s.Clock.Now())
	for _, r := range set.Rooms() {
		if !r.Notifies() || r.Suspended || !stop.Of(&r.Settings, r.Control, r.Phase, now).OK() {
			continue
		}
		l := s.leading.alloc.Totals(r.ID)
		if l.View == nil || !l.Complete {
			continue
		}
		if len(out) == 0 || len(out[len(out)-1].Rooms) == callsRooms {
			out = append(out, push.Calls{At: now})
		}
		last := &out[len(out)-1]
		last.Rooms = append(last.Rooms, callOf(r.ID, l.View, now))
	}
	return out
}

// callOf returns how far a room has called its visitors.
func callOf(id room.ID, v *wire.View, now fleettime.Time) push.Call {
	c := push.Call{Room: id, Called: v.Cutoff}
	if !v.Queues() {
		c.Called, c.Soon = now, now
		return c
	}
	// Places are ordered: the last one with so many in front.
	soon := estimate.Entered(v.Paces, callSoon)
	low, high := v.Cutoff, max(v.Cutoff, now)
	for high-low > 250 {
		if mid := low + (high-low)/2; v.Place(mid, true) <= soon {
			low = mid
		} else {
			high = mid
		}
	}
	c.Soon = low
	return c
}
