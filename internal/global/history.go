package global

import (
	"context"
	"log/slog"
	"sync"
	"time"

	core "vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// hearHistory keeps the newest seconds of the history until ctx ends.
func (s *Server) hearHistory(ctx context.Context) error {
	if s.history == nil {
		return nil
	}
	receive := func(data []byte, _ time.Time) error { return s.history.Receive(data) }
	unsubscribe, err := s.hear(wire.HistorySubject(wire.HistoryLog, "*"), receive)
	if err != nil {
		return err
	}
	defer unsubscribe()
	for {
		known, err := s.history.Catch(ctx, time.Now())
		if known {
			break
		}
		s.log.Debug("the log of the history is not read", slog.Any("error", err))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Second):
		}
	}
	<-ctx.Done()
	return nil
}

// recordHistory records every second of the term until stop returns.
func (l *leadership) recordHistory(ctx context.Context) (stop func()) {
	s := l.s
	if s.history == nil {
		return func() {}
	}
	l.history = s.history.Lead()
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { l.history.Run(ctx, func() []room.ID { return ids(s.fleet.Set().Rooms()) }) })
	running.Go(func() {
		for {
			left := s.time().NextSecond().Sub(s.time())
			select {
			case <-ctx.Done():
				return
			case <-time.After(left):
				l.recordSecond()
			}
		}
	})
	return func() {
		end()
		running.Wait()
	}
}

func ids(rooms []*room.Room) []room.ID {
	out := make([]room.ID, len(rooms))
	for i, r := range rooms {
		out[i] = r.ID
	}
	return out
}

// wholeAfter is how long a new leader waits for the ledgers of all data centres before it records those of some.
const wholeAfter = 2 * time.Second

// recordSecond records the second of fleet time that has just ended.
func (l *leadership) recordSecond() {
	rooms, controls := l.s.fleet.Set().Rooms(), l.s.fleet.Controls()
	now := l.s.time()
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	young := l.s.Clock.Now().Sub(l.began) < wholeAfter
	l.history.Record(now.Second(), rooms, func(r *room.Room) *core.Gauges {
		all := l.alloc.Ledger(r.ID)
		if young && !all.Complete {
			return nil
		}
		n := numbersOf(all)
		g := &core.Gauges{}
		v := &g.Values
		v[core.Inside], v[core.Limit], v[core.Rate] = int64(n.Active), int64(all.Total), int64(all.Rate)
		v[core.Wait], v[core.Free], v[core.Overcommit], v[core.Beyond] = int64(n.Longest), all.Free, all.Overcommit,
			int64(n.Beyond)
		if controls != nil {
			if in := controls.Rooms[room.PublicID(r.TicketName())].At(int64(now)); in != nil && in.Pause != nil {
				v[core.Paused] = 1
			}
		}
		for _, c := range all.Centres {
			g.Centres = append(g.Centres, core.CentreGauges{Name: c.Name, Inside: int64(c.Active), Held: c.Held, Idle: c.Idle})
		}
		return g
	})
}

// lastMinute returns the last minute of a room; false if nothing is known.
func (s *Server) lastMinute(id room.ID) (core.Minute, bool) {
	if s.history == nil {
		return core.Minute{}, false
	}
	return s.history.Minute(id, s.time().Second())
}
