package edge

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge/gate"
	"vestibule/internal/node"
)

// uplink is the edge's session with its regional: it sends reports and applies grants.
type uplink struct {
	certificates *node.CertificateEnds
	listens      string // of this process, for operators' changes of sites

	cfg      *Config
	interval time.Duration // of reports without an answer
	bus      wire.Bus
	gate     *gate.Gate
	folder   *node.Folder
	keeper   *keeper
	before   *settling
	metrics  *metrics
	log      *slog.Logger
	kick     chan struct{} // wakes the pump

	lives  []uint64 // instance IDs in the folder; the pump's, after New
	unkept bool     // the last write of the folder failed; the pump's, after New
}

// wake makes the pump and the keeper check the engine.
func (u *uplink) wake() {
	for _, kick := range []chan struct{}{u.kick, u.keeper.kick} {
		select {
		case kick <- struct{}{}:
		default:
		}
	}
}

// pump reports to the regional when the engine says that a report is due. An unanswered report is soon followed by
// another, so that a new regional hears of an idle edge before the lease lapses.
func (u *uplink) pump(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	isolated, twin := false, false
	var reported fleettime.Mono // the time of the newest report
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-u.kick:
		}
		was, hadTwin := isolated, twin
		var due, present fleettime.Mono
		var reports []wire.Report
		instances := u.lives
		u.gate.Engine.With(func(now fleettime.Mono, eng *admission.Engine) {
			again, silent := reported.Add(u.interval), u.gate.Engine.LastGrant() < reported
			if eng.Due() <= now || silent && again <= now {
				reports = eng.Report(now)
				reported, silent = now, true
				again = now.Add(u.interval)
			}
			present, due = now, eng.Due()
			if silent {
				due = min(due, again)
			}
			st := eng.Status(now)
			isolated, twin = st.Isolated, st.Twin
			if len(reports) > 0 {
				instances = eng.Instances()
			}
		})
		u.storeInstances(instances)
		last, next := u.before.reports(present)
		reports, due = append(last, reports...), min(due, next) // the last reports before a report that proves the end
		if isolated != was {
			u.logIsolation(isolated)
		}
		if twin && !hadTwin {
			u.log.Error(twinAlarm)
		} else if hadTwin && !twin {
			u.log.Info("no other process reports under this edge's name any more")
		}
		u.send(reports)
		timer.Reset(max(time.Millisecond, due.Sub(present)))
	}
}

// logIsolation logs the beginning or the end of an isolation, and its effect on newcomers.
func (u *uplink) logIsolation(isolated bool) {
	st := u.gate.Status()
	policies, letIn := u.gate.Policies(), uint64(0)
	for _, r := range st.Rooms {
		letIn += r.LetIn
	}
	log := u.log.With(
		slog.Int("rooms_hold", policies[room.IsolationHold]), slog.Int("rooms_open", policies[room.IsolationOpen]),
		slog.Int("rooms_closed", policies[room.IsolationClosed]), slog.Uint64("let_in_without_permit", letIn))
	if isolated {
		log.Warn("isolated: without a lease for longer than a moment")
	} else {
		log.Info("no longer isolated")
	}
}

func (u *uplink) send(reports []wire.Report) {
	for i := range reports {
		if i == 0 {
			reports[i].Build, reports[i].CertificateEnd = node.ShortBuild(), u.certificates.First()
			reports[i].Listens = u.listens
		}
		err := u.bus.Publish(wire.ReportSubject(u.cfg.DataCenter, u.cfg.Name), wire.EncodeReport(&reports[i]))
		result := node.Result(err)
		u.metrics.reports.WithLabelValues(result).Inc()
		if result == node.Failed {
			u.log.Warn("report not sent", slog.Any("error", err))
		}
	}
}

// onGrant applies a grant of the regional, and answers the long-polled visitors that it admits.
func (u *uplink) onGrant(_ string, data []byte) {
	g, err := wire.DecodeGrant(data)
	if err != nil {
		u.metrics.grants.WithLabelValues("invalid").Inc()
		u.log.Warn("grant refused", slog.Any("error", err))
		return
	}
	u.metrics.grants.WithLabelValues("applied").Inc()
	now := u.gate.Engine.Apply(g)
	u.before.apply(now, g)
	if g.Echo != 0 && now >= g.Echo {
		u.metrics.sync.Observe((now.Sub(g.Echo) - g.Dwell).Seconds())
	}
	u.wake()
}

// finalReportTime bounds the sending of the final report, on a machine that stops everything and may be very busy.
const finalReportTime = 3 * time.Second

// sendFinalReport gives all permits back, so that nothing has to be reserved for this edge.
func (u *uplink) sendFinalReport() {
	var reports []wire.Report
	var ended admission.Ended
	u.gate.Engine.With(func(now fleettime.Mono, eng *admission.Engine) { reports, ended = eng.Leave(now), eng.Rooms.AllEnded() })
	ctx, cancel := context.WithTimeout(context.Background(), finalReportTime)
	defer cancel()
	u.keeper.snapshot(ctx)
	u.send(reports)
	if err := u.folder.KeepEnded(ended); err != nil {
		u.log.Warn("which sessions have ended is not stored: if the regional is started again too, they count until their tickets expire",
			slog.Any("error", err))
	}
	// A shutdown of everything stops the regional next.
	if err := u.bus.Flush(ctx); err != nil {
		u.log.Warn("the goodbye may be lost: the regional reserves the permits of this edge for a while",
			slog.Any("error", err))
	}
	u.log.Info("edge down")
}

// storeInstances stores the folder's instance IDs before the regional hears of the newest. After a failure the next
// process proves nothing about this one, and the next report tries again.
func (u *uplink) storeInstances(instances []uint64) {
	if slices.Equal(u.lives, instances) {
		return
	}
	err := u.folder.Keep(instances)
	switch {
	case err == nil:
		u.lives = instances
		if u.unkept {
			u.log.Info("the data_dir can be written again")
		}
	case !u.unkept:
		u.log.Warn("what this process holds when it is killed will count until lost_after: its data_dir cannot be written",
			slog.Any("error", err))
	}
	u.unkept = err != nil
}
