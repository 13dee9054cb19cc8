package regional

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// Ready reports whether this regional leads or stands by.
func (s *Server) Ready() node.Readiness {
	var st region.Status
	var twins []string
	var waits []region.Wait
	var why stop.Stop
	s.mu.Lock()
	leading := s.leading != nil
	if leading {
		st = s.leading.agg.Status(s.Clock.Now())
		twins = s.leading.agg.Edges().Twins
		waits = s.leading.agg.Waits(s.Clock.Now())
		why = s.leading.stopped(s.Clock.Now())
	}
	s.mu.Unlock()
	r := node.Readiness{Isolated: st.Isolated, Alarms: append(node.LeaseAlarms(s.Lease), s.fleet.Alarms()...)}
	r.Add(why)
	if why.Reason == stop.AwaitsCentre || why.Reason == stop.NoGlobal { // the others have alarms of their own
		r.Alarms = append(r.Alarms, why.Advice())
	}
	for _, name := range twins {
		r.Alarms = append(r.Alarms,
			fmt.Sprintf("two processes are named edge %s: rename one of them, and remove its data_dir if that was copied", name))
	}
	if s.fleet.Set() == nil {
		r.Reasons = append(r.Reasons, "no room set yet")
	}
	standing, uninitialized := st.Standing, why.Reason == stop.Uninitialized
	if m := s.fleet.Members(); !leading && m != nil {
		list := m.Ledger()
		standing = list.Standing(s.Config.DataCenter, 0)
	}
	switch {
	case st.Copy != 0:
		r.Reasons = append(r.Reasons,
			fmt.Sprintf("another data centre is named %s (cluster ID %016x, this one is %016x), no visitor is admitted here: rename one of them; if this is the listed one and its store was lost: vestibule fleet rejoin %s",
				s.Config.DataCenter, st.Copy, st.ClusterID, s.Config.DataCenter))
	case uninitialized: // global lists it then
		r.Reasons = append(r.Reasons, why.Advice())
	case standing == wire.Listed:
	case standing == wire.Draining:
		r.Alarms = append(r.Alarms, "the data centre is draining: no visitor is admitted here")
	default:
		r.Reasons = append(r.Reasons,
			fmt.Sprintf("data centre %s is not in the fleet's list, no visitor is admitted here: vestibule fleet add %s",
				s.Config.DataCenter, s.Config.DataCenter))
	}
	for _, w := range waits {
		if !uninitialized {
			r.Alarms = append(r.Alarms, s.waitAlarm(&w))
		}
	}
	if d, why := s.unsaved.now(); d > time.Second {
		r.Alarms = append(r.Alarms,
			fmt.Sprintf("promises have not been stored for %v, new edges get no lease: %s", d.Round(time.Second), why))
	}
	r.Ready = len(r.Reasons) == 0
	return r
}

// waitAlarm describes a wait, its end, and how an operator can end it earlier.
func (s *Server) waitAlarm(w *region.Wait) string {
	switch w.Why {
	case region.WaitTime, region.WaitBooks, region.WaitEdge:
		return w.Stop(s.Config.DataCenter).Advice()
	case region.WaitRate:
		return fmt.Sprintf("%d admissions a minute stay unused, fewer every second, until %s UTC: silent edges may have made these admissions",
			w.Rate, stop.Clock(w.Until))
	case region.WaitGuess:
		return fmt.Sprintf("none of the %d session permits in use becomes free until %s UTC: no node knew fleet time at the start, so permits stay reserved until all earlier tickets expire; keep data_dir across restarts",
			w.Sessions, stop.Clock(w.Until))
	case region.WaitFleet:
		return fmt.Sprintf("only the %d session permits are used that this data centre certainly held before: global does not know those of all data centres, see the alarms of its /readyz",
			w.Sessions)
	case region.WaitSessions:
		until := ""
		if w.Until != 0 {
			until = stop.Clock(w.Until) + " UTC at most, or until "
		}
		why := w.Stop(s.Config.DataCenter)
		who, first := why.Awaited()
		text := fmt.Sprintf("%d session permits stay unused until %s%s: it may still renew sessions%s", w.Sessions, until,
			who, first)
		if c := why.Command(); c != "" {
			text += ": " + c
		}
		return text
	}
	return fmt.Sprintf("permits stay unused for reason %d", w.Why)
}

// alarmEvery is the interval of checks for new waits.
const alarmEvery = time.Second

// logWaits logs changes of the waits.
func (l *leadership) logWaits(now fleettime.Mono) {
	if l.waitsChecked != 0 && now.Sub(l.waitsChecked) < alarmEvery {
		return
	}
	l.waitsChecked = now
	waits := l.agg.Waits(now)
	if own := l.own(now); own.Reason == stop.Uninitialized {
		if !l.uninit {
			l.uninit = true
			l.s.log.Warn("waiting", slog.String("alarm", own.Advice()))
		}
		return
	}
	keys := make([]region.Wait, len(waits))
	for i, w := range waits {
		keys[i] = region.Wait{Why: w.Why, Edge: w.Edge, Instance: w.Instance, Ended: w.Ended}
	}
	begin, over := l.waits.Note(now, keys)
	for _, key := range begin {
		if i := slices.Index(keys, key); i >= 0 {
			l.s.log.Warn("waiting", slog.String("alarm", l.s.waitAlarm(&waits[i])))
		}
	}
	if over {
		l.s.log.Info("no longer waiting")
	}
}
