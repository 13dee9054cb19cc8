package edge

import (
	"context"
	"log/slog"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// wake makes the pump check the engine.
func (s *Server) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// pump reports to the regional when the engine says that a report is due. An unanswered report is soon followed by
// another, so that a new regional hears of an idle edge before the lease lapses.
func (s *Server) pump(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	isolated, twin := false, false
	var reported fleettime.Mono // the time of the newest report
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.kick:
		}
		was, hadTwin := isolated, twin
		var due, present fleettime.Mono
		var reports []wire.Report
		instances := s.lives
		s.gate.With(func(now fleettime.Mono, eng *admission.Engine) {
			again, silent := reported.Add(s.params.ReportFast), s.gate.LastGrant() < reported
			if eng.Due() <= now || silent && again <= now {
				reports = eng.Report(now)
				reported, silent = now, true
				again = now.Add(s.params.ReportFast)
			}
			present, due = now, eng.Due()
			if silent {
				due = min(due, again)
			}
			isolated, twin = eng.Isolated(now), eng.Status(now).Twin
			if len(reports) > 0 {
				instances = eng.Instances()
			}
		})
		s.keepLives(instances)
		if isolated != was {
			s.logIsolation(isolated)
		}
		if twin && !hadTwin {
			s.log.Error(twinAlarm)
		} else if hadTwin && !twin {
			s.log.Info("no other process reports under this edge's name any more")
		}
		s.send(reports)
		timer.Reset(max(time.Millisecond, due.Sub(present)))
	}
}

// logIsolation logs the beginning or the end of an isolation, and its effect on newcomers.
func (s *Server) logIsolation(isolated bool) {
	st := s.Status()
	policies, letIn := s.gate.Policies(), uint64(0)
	for _, r := range st.Rooms {
		letIn += r.LetIn
	}
	log := s.log.With(
		slog.Int("rooms_hold", policies[room.IsolationHold]), slog.Int("rooms_open", policies[room.IsolationOpen]),
		slog.Int("rooms_closed", policies[room.IsolationClosed]), slog.Uint64("let_in_without_a_right", letIn))
	if isolated {
		log.Warn("isolated: without a lease for longer than a moment")
	} else {
		log.Info("no longer isolated")
	}
}

func (s *Server) send(reports []wire.Report) {
	for i := range reports {
		if i == 0 {
			reports[i].Build = node.BuildVersion()
		}
		data, err := wire.EncodeReport(&reports[i])
		if err == nil {
			err = s.bus.Publish(wire.ReportSubject(s.cfg.DataCenter, s.cfg.Name), data)
		}
		result := node.Result(err)
		s.metrics.reports.WithLabelValues(result).Inc()
		if result == node.Failed {
			s.log.Warn("report not sent", slog.Any("error", err))
		}
	}
}

// onGrant applies a grant of the regional, and answers the long-polled visitors that it admits.
func (s *Server) onGrant(_ string, data []byte) {
	g, err := wire.DecodeGrant(data)
	if err != nil {
		s.metrics.grants.WithLabelValues("invalid").Inc()
		s.log.Warn("grant refused", slog.Any("error", err))
		return
	}
	s.metrics.grants.WithLabelValues("applied").Inc()
	now := s.gate.Apply(g)
	if g.Echo != 0 && now >= g.Echo {
		s.metrics.sync.Observe((now.Sub(g.Echo) - g.Dwell).Seconds())
	}
	s.wake()
}

// goodbyeTime bounds the sending of a goodbye, on a machine that stops everything and may be very busy.
const goodbyeTime = 3 * time.Second

// sayGoodbye gives all permits back, so that nothing has to be reserved for this edge.
func (s *Server) sayGoodbye() {
	var reports []wire.Report
	var ended admission.Ended
	s.gate.With(func(now fleettime.Mono, eng *admission.Engine) { reports, ended = eng.Leave(now), eng.AllEnded() })
	s.send(reports)
	if err := s.folder.KeepEnded(ended); err != nil {
		s.log.Warn("which sessions have ended is not stored: if the regional is started again too, they count until their tickets expire", slog.Any("error", err))
	}
	// A shutdown of everything stops the regional next.
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeTime)
	defer cancel()
	if err := s.bus.Flush(ctx); err != nil {
		s.log.Warn("the goodbye may be lost: the regional presumes for a while what this edge held", slog.Any("error", err))
	}
	s.log.Info("edge down")
}
