package regional

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// Ready reports whether this regional leads or stands by.
func (s *Server) Ready() node.Readiness {
	var st region.Status
	var twins []string
	var waits []region.Wait
	s.mu.Lock()
	leading := s.agg != nil
	if leading {
		st = s.agg.Status(s.Clock.Now())
		twins = s.agg.Edges().Twins
		waits = s.agg.Waits(s.Clock.Now())
	}
	s.mu.Unlock()
	r := node.Readiness{Isolated: st.Isolated, Alarms: append(node.LeaseAlarms(s.Lease), s.fleet.Alarms()...)}
	for _, name := range twins {
		r.Alarms = append(r.Alarms, fmt.Sprintf("two processes bear the name of edge %s: give one of them another name, and remove its data_dir if that was copied", name))
	}
	if s.fleet.Set() == nil {
		r.Reasons = append(r.Reasons, "no room set yet")
	}
	standing := st.Standing
	if m := s.fleet.Members(); !leading && m != nil {
		list := m.Ledger()
		standing = list.Find(s.Config.DataCenter)
	}
	switch {
	case st.Copy != 0:
		r.Reasons = append(r.Reasons, fmt.Sprintf("another data centre bears the name %s (site %016x, this one is %016x), nobody is let in here: give one of them another name; if this is the one of the list and its store was lost: vestibule fleet rejoin %s",
			s.Config.DataCenter, st.Copy, st.Site, s.Config.DataCenter))
	case standing == wire.Listed:
	case standing == wire.Draining:
		r.Alarms = append(r.Alarms, "the data centre drains: nobody is let in here")
	default:
		r.Reasons = append(r.Reasons, fmt.Sprintf("data centre %s is not in the fleet's list, nobody is let in here: vestibule fleet add %s", s.Config.DataCenter, s.Config.DataCenter))
	}
	for _, w := range waits {
		r.Alarms = append(r.Alarms, s.waitAlarm(&w))
	}
	if d, why := s.unsaved.now(); d > time.Second {
		r.Alarms = append(r.Alarms, fmt.Sprintf("promises have not been stored for %v, edges that are new get no lease: %s", d.Round(time.Second), why))
	}
	r.Ready = len(r.Reasons) == 0
	return r
}

// waitAlarm describes a wait, its end, and how an operator can end it earlier.
func (s *Server) waitAlarm(w *region.Wait) string {
	dc := s.Config.DataCenter
	until := "until "
	if w.Until != 0 {
		until += clock(w.Until) + " UTC at most, or until "
	}
	what := "nobody is let in here"
	switch {
	case w.Why == region.WaitRate:
		what = fmt.Sprintf("%d admissions a minute stay unused", w.Rate)
	case w.Why == region.WaitGuess:
		what = fmt.Sprintf("no slot of the %d that are taken comes free", w.Sessions)
	case !w.Closed:
		what = fmt.Sprintf("%d slots stay unused", w.Sessions)
	}
	edge := fmt.Sprintf("edge %s (incarnation %d)", w.Edge, w.Inc)
	end := fmt.Sprintf("; if it has ended: vestibule fleet forget %s --dc %s", w.Edge, dc)
	if w.Edge == wire.UnknownPast {
		edge, end = "any edge that the store has lost", fmt.Sprintf("; if every edge that lives is heard: vestibule fleet forget --all --dc %s", dc)
	}
	if w.Ended {
		end = "; it has ended, and this is for what it let in before"
	}
	switch w.Why {
	case region.WaitTime:
		return what + ": neither global nor an edge has told fleet time"
	case region.WaitBooks:
		return what + ": global has not told yet what this data centre holds, see the alarms of its /readyz"
	case region.WaitEdge:
		return fmt.Sprintf("%s %s%s is heard: nobody else knows what it counted%s", what, until, edge, end)
	case region.WaitRate:
		return fmt.Sprintf("%s, fewer every second, the last until %s UTC: edges that are not heard any more may have let in so many", what, clock(w.Until))
	case region.WaitGuess:
		return fmt.Sprintf("%s until %s UTC: nobody in the fleet knew the time when it was started, so every ticket of before is waited for; see that the processes keep their data_dir", what, clock(w.Until))
	case region.WaitSessions:
		return fmt.Sprintf("%s %s%s is heard: it may go on renewing sessions%s", what, until, edge, end)
	}
	return fmt.Sprintf("%s, for reason %d", what, w.Why)
}

// clock formats fleet time as time of day.
func clock(t fleettime.Time) string { return time.UnixMilli(int64(t)).UTC().Format(time.TimeOnly) }

// alarmEvery is the interval of checks for new waits.
const alarmEvery = time.Second

// tellWaits logs changes of the waits.
func (s *Server) tellWaits(now fleettime.Mono, agg *region.Aggregator) {
	if s.looked != 0 && now.Sub(s.looked) < alarmEvery {
		return
	}
	s.looked = now
	waits := agg.Waits(now)
	keys := make([]region.Wait, len(waits))
	for i, w := range waits {
		keys[i] = region.Wait{Why: w.Why, Edge: w.Edge, Inc: w.Inc, Ended: w.Ended}
	}
	begin, over := s.waits.Note(now, keys)
	for _, key := range begin {
		if i := slices.Index(keys, key); i >= 0 {
			s.log.Warn("waiting", slog.String("alarm", s.waitAlarm(&waits[i])))
		}
	}
	if over {
		s.log.Info("nothing is waited for any more")
	}
}
