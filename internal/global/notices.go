package global

import (
	"context"
	"strings"
	"sync"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	corehistory "vestibule/internal/core/history"
	"vestibule/internal/core/push"
	"vestibule/internal/core/room"
	"vestibule/internal/global/notices"
)

// tellOperators sends notices during the term until stop returns.
func (l *leadership) tellOperators(ctx context.Context) (stop func()) {
	s := l.s
	if s.Own == nil {
		return func() {}
	}
	o := notices.Options{
		Name: s.Config.Name, Docs: s.Own, Journal: s.Audit, Time: s.time, Look: l.look, Post: s.poster.Post,
		Count: func(result string, n int) { s.metrics.notices.WithLabelValues(result).Add(float64(n)) }, Log: s.log,
	}
	sender := notices.NewSender(o)
	s.sender.Store(sender)
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { sender.Run(ctx) })
	return func() {
		end()
		running.Wait()
		s.sender.Store(nil)
	}
}

// look returns the state whose changes operators get notices of, nil while the rooms are unknown.
func (l *leadership) look() *notices.Seen {
	s := l.s
	set, controls, board := s.fleet.Set(), s.fleet.Controls(), s.fleet.Board()
	if set == nil {
		return nil
	}
	now := s.time()
	seen := &notices.Seen{Rooms: make([]notices.Room, 0, len(set.Rooms()))}
	for _, c := range s.candidates.view().Candidates {
		seen.Alarms = append(seen.Alarms, c.Alarms...)
	}
	called := map[room.ID]push.Call{}
	for _, c := range s.calls() {
		for _, k := range c.Rooms {
			called[k.Room] = k
		}
	}
	for _, r := range set.Rooms() {
		x := notices.Room{
			ID: room.PublicID(r.TicketName()), Name: r.Name,
			Limits: notices.Limits{Total: r.TotalActiveUsers, Rate: r.NewUsersPerMinute},
			Origin: l.originOf(now, r.ID), Events: eventsOf(r, board), Called: called[r.ID].Called, Soon: called[r.ID].Soon,
		}
		l.fill(&x, r.ID, controls, now)
		seen.Rooms = append(seen.Rooms, x)
	}
	return seen
}

// fill adds the numbers of a room from the ledger and the controls.
func (l *leadership) fill(x *notices.Room, id room.ID, controls *room.Controls, now fleettime.Time) {
	l.s.mu.Lock()
	ledger := l.alloc.Ledger(id)
	down := l.siteDown(id, x.Name)
	l.s.mu.Unlock()
	var where []string
	for i := range down {
		x.SiteDown += down[i].Edges
		x.SiteGone = x.SiteGone || down[i].Centre == ""
		where = append(where, down[i].String())
	}
	x.Site = strings.Join(where[:min(len(where), maxSiteAlarms)], "; ")
	n := numbersOf(ledger)
	x.Complete, x.Waiting, x.Wait, x.Overcommit = n.Complete, n.Waiting, n.Longest, ledger.Overcommit
	if controls == nil {
		return
	}
	x.Controlled = true
	c := controls.Rooms[x.ID].At(int64(now))
	if c == nil || c.Pause == nil {
		return
	}
	x.Pause = &notices.Pause{Since: fleettime.Time(c.Pause.Since), By: c.Pause.By, Reason: c.Pause.Reason}
	if k := c.Pause.Release; k != nil {
		x.Release = &notices.Release{ID: k.ID, People: k.N, LetIn: -1}
		switch {
		case k.Lender == nil: // not begun
		case *k.Lender != l.lender():
			x.Release.Over = true // no other leader lends it
		case n.Release == k.ID:
			x.Release.LetIn, x.Release.Over = n.LetIn, n.LetIn >= k.N
		}
	}
}

// originOf returns the traffic of a room's site in the last minute.
func (l *leadership) originOf(now fleettime.Time, id room.ID) (o notices.Origin) {
	if l.s.history == nil {
		return o
	}
	if m, ok := l.s.history.Minute(id, now.Second()); ok {
		o.Requests, o.Errors, o.P95 = corehistory.Origin(&m.Point, &m.Since)
	}
	return o
}

// eventsOf returns the events of a room that are not suspended.
func eventsOf(r *room.Room, board *draw.Board) []notices.Event {
	var out []notices.Event
	for i := range r.Events {
		e := &r.Events[i]
		if e.Suspended {
			continue
		}
		x := notices.Event{
			ID: e.ID, Name: e.Name, Prequeue: fleettime.Time(e.Prequeue), Start: fleettime.Time(e.Start),
			Opens: fleettime.Time(e.Start), End: fleettime.Time(e.End),
		}
		if e.Shuffle {
			n := board.Of(r.DrawOf(e))
			if x.Opens = max(x.Start, n.Opens()); n.Drawn() != nil {
				x.Drawn = n.Published
			}
		}
		out = append(out, x)
	}
	return out
}
