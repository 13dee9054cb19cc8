package global

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/history"
	"vestibule/internal/global/notices"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/node"
)

// New returns a server. It can lead once it Runs.
func New(o Options) (*Server, error) {
	s := &Server{
		Options: o, log: o.Log.With(slog.String("global", o.Config.Name)), currentTerm: currentTerm{mono: o.Clock},
	}
	if s.Listeners == nil {
		s.Listeners = &node.Listeners{}
	}
	s.metrics = newMetrics(o.Reg, s)
	if o.Config.Rooms == "" {
		s.metrics.roomsValid.Set(1) // nothing is refused
	}
	s.rooms = roomstore.New(roomstore.Options{
		Docs: o.Docs, Copy: filepath.Join(o.Config.DataDir, roomstore.OwnedDocument+".json"), File: o.Config.Rooms,
		Log: s.log, Floor: s.newestRooms, Restoring: s.restoring.Load, Keep: node.WriteFile, Journal: o.Audit,
	})
	s.candidate = node.NewCandidate(node.CandidateOptions{
		Lease: o.Lease, Clock: o.Clock, Log: s.log, Dropped: s.metrics.dropped,
		Regressions: s.metrics.regressions,
	})
	var err error
	s.fleet, err = node.NewFleet(o.Config.DataDir, watched{o.Docs, s.rooms}, s.log, o.Reg, s.candidate.Changed)
	if err != nil {
		return nil, err
	}
	s.fleet.Tell(s.clock)
	s.Orders = &Orders{bus: o.Bus, log: s.log, waiting: map[string]chan wire.OrderDone{}}
	if o.History != nil {
		s.history = history.New(o.History, s.log)
	}
	networks, err := o.Config.Notices.networks()
	if err != nil {
		return nil, err
	}
	s.poster = notices.NewPoster(networks)
	s.times = node.NewTimekeeper(o.Config.DataDir, o.Clock, s.log)
	return s, nil
}

// Run campaigns for leadership, and leads when elected, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	own := &node.OwnCopy{Document: ownedCopy, Version: s.rooms.KnownVersion, Encode: s.rooms.EncodeKnown}
	stop, err := s.fleet.Hand(s.Bus, node.Holder{DC: wire.Root, Name: s.Config.Name, Own: own},
		node.KeysDocument, node.MembersDocument, node.RoomsDocument, node.ControlsDocument, node.DrawsDocument)
	if err != nil {
		return err
	}
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return node.IgnoreEnd(ctx, s.fleet.Run(ctx)) })
	g.Go(func() error { return node.IgnoreEnd(ctx, s.rooms.Run(ctx)) })
	g.Go(func() error {
		s.Certificates.Run(ctx)
		return nil
	})
	g.Go(func() error { return s.numbers.run(ctx, s) })
	g.Go(func() error { return s.candidates.run(ctx, s) })
	g.Go(func() error { return s.Orders.run(ctx) })
	g.Go(func() error { return s.tellCalls(ctx) })
	g.Go(func() error { return s.hearHistory(ctx) })
	g.Go(func() error {
		s.watchLoss(ctx)
		return nil
	})
	g.Go(func() error {
		s.times.Run(ctx, s.known)
		return nil
	})
	g.Go(func() error { return s.candidate.Run(ctx, s.fleet, s.lead) })
	return g.Wait()
}

// Ready reports whether this candidate leads or is a healthy standby.
func (s *Server) Ready() node.Readiness {
	c := s.census()
	r := node.Readiness{
		Ready: true,
		Alarms: slices.Concat(node.LeaseAlarms(s.Lease), s.fleet.Alarms(), s.metrics.trouble.alarms(), c.alarms(), c.waits(),
			s.ofRooms(s.Clock.Now())),
	}
	var down []string
	for _, why := range s.stops() {
		if why.Reason == stop.SiteDown {
			down = append(down, "room "+why.Room+": "+why.Advice())
		}
		if r.Add(why); why.Reason == stop.Uninitialized {
			r.Ready, r.Reasons = false, append(r.Reasons, why.Advice())
		}
	}
	if more := len(down) - maxSiteAlarms; more > 0 {
		down = append(down[:maxSiteAlarms], fmt.Sprintf("%d more sites do not answer: see vestibule status", more))
	}
	r.Alarms = append(down, r.Alarms...)
	if m := s.fleet.Members(); m != nil {
		for _, name := range s.Config.DataCenters {
			if m.Find(name) < 0 {
				r.Alarms = append(r.Alarms,
					fmt.Sprintf("data_centers of this global names %s, which the fleet's list does not: correct it", name))
			}
		}
	}
	if why := s.rooms.Alarm(); why != "" {
		r.Alarms = append(r.Alarms, "the store's rooms.owned is not used: "+why)
	}
	if why := s.rooms.AuditFault(); why != "" {
		r.Alarms = append(r.Alarms, "the audit entry of a change of rooms is not in the stream yet: "+why)
	}
	r.Alarms = append(r.Alarms, s.lateDraws()...)
	if late := s.late.Load(); late != nil && *late != "" {
		r.Alarms = append(r.Alarms, *late)
	}
	if loss := s.loss.Load(); loss != nil && *loss != "" {
		r.Alarms = append(r.Alarms, *loss)
	}
	if e := s.expiry.Load(); e.Soon(time.Now()) {
		r.Alarms = append(r.Alarms,
			fmt.Sprintf("API token %s (%s) ends on %s: create another with: vestibule tokens create", e.Name, e.ID,
				e.At.Format(time.DateOnly)))
	}
	if sender := s.sender.Load(); sender != nil {
		r.Alarms = append(r.Alarms, sender.Alarms()...)
	}
	if s.fleet.Set() == nil {
		r.Ready, r.Reasons = false, append(r.Reasons, "no room set published yet")
	}
	return r
}

// maxSiteAlarms bounds the alarms about sites: a data centre may have lost the way to thousands.
const maxSiteAlarms = 10
