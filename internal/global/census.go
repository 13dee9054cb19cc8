package global

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
)

// census is the publisher's view of the allocator.
type census struct {
	leads bool
	root.Census
	centres []root.CentreTotals
	unknown []root.Unknown
	uninit  []string // data centres that never admitted anybody, as they report
}

func (s *Server) census() census {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading == nil {
		return census{}
	}
	now, alloc := s.Clock.Now(), s.leading.alloc
	c := census{leads: true, Census: alloc.Census(now), centres: alloc.Centres(now), unknown: alloc.Unknown(now)}
	for name, r := range s.leading.reports {
		if r.stop.Reason == stop.Uninitialized {
			c.uninit = append(c.uninit, name)
		}
	}
	slices.Sort(c.uninit)
	c.unknown = slices.DeleteFunc(c.unknown, func(u root.Unknown) bool { return slices.Contains(c.uninit, u.Name) })
	return c
}

// changes reports whether the leader has to change the list.
func (c *census) changes() bool {
	return len(c.Drained)+len(c.Released) > 0 || (c.Members > 0 && len(c.Enrolled) > 0)
}

func (c *census) outdated() bool { return c.Newest > c.Members }

// alarms returns the faults of the list of data centres as texts for operators.
func (c *census) alarms() []string {
	var out []string
	if len(c.uninit) > 0 && c.Members == 0 {
		out = append(out, stop.Stop{Reason: stop.Uninitialized, Centre: strings.Join(c.uninit, ", ")}.Advice())
	}
	if c.outdated() {
		out = append(out, fmt.Sprintf("%s knows version %d of the list of data centres, this global version %d: nothing is lent until it is known here", c.By, c.Newest, c.Members))
	}
	for _, d := range c.Unlisted {
		if d.Copy {
			out = append(out, fmt.Sprintf("another data centre is named %s (cluster ID %016x), it admits no visitor: rename it; "+
				"if it is the listed one and its store was lost: vestibule fleet rejoin %s at its NATS", d.Name, d.ClusterID, d.Name))
			continue
		}
		out = append(out, fmt.Sprintf("data centre %s reports but is not listed, it admits no visitor: vestibule fleet add %s",
			d.Name, d.Name))
	}
	for _, d := range c.centres {
		waited := slices.ContainsFunc(c.unknown, func(u root.Unknown) bool { return u.Name == d.Name }) // reported by waits
		if d.Heard > silentFor && d.Standing != wire.Unlisted && !waited {
			out = append(out, fmt.Sprintf("data centre %s is listed and has not reported for over a minute: check that its regional runs, has this name and reaches NATS; if it is lost: vestibule fleet remove %s --force", d.Name, d.Name))
		}
	}
	return out
}

// silentFor is how long a listed data centre may be silent before an alarm.
const silentFor = time.Minute

// waits describes, for operators, the missing ledgers.
func (c *census) waits() []string {
	var out []string
	for _, u := range c.unknown {
		why := "reports but waits itself: see the alarms of its regional's /readyz"
		if !u.Alive {
			until := ""
			if u.Until != 0 {
				until = ", at most until " + time.UnixMilli(int64(u.Until)).UTC().Format("15:04:05") + " UTC while others are"
			}
			why = fmt.Sprintf("does not report%s; if it is lost: vestibule fleet remove %s --force", until, u.Name)
		}
		out = append(out, fmt.Sprintf("at most returned permits are lent, and each data centre uses those that it has, because the permits of data centre %s are unknown: it %s", u.Name, why))
	}
	return out
}

// logWaits logs the missing ledgers when they change.
func (l *leadership) logWaits(c *census) {
	names := make([]string, len(c.unknown))
	for i, u := range c.unknown {
		names[i] = u.Name
	}
	begin, over := l.waits.Note(l.s.Clock.Now(), names)
	for _, name := range begin {
		l.s.log.Warn("waiting", slog.String("alarm", c.waits()[slices.Index(names, name)]))
	}
	if over && c.leads {
		l.s.log.Info("the permits of all data centres are known")
	}
}

// logMembers logs the faults of the list of data centres, once.
func (l *leadership) logMembers() {
	c := l.s.census()
	l.logWaits(&c)
	alarms := c.alarms()
	for _, a := range alarms {
		if !slices.Contains(l.alarms, a) {
			l.s.log.Error("the list of data centres", slog.String("alarm", a))
		}
	}
	if len(alarms) == 0 && len(l.alarms) > 0 {
		l.s.log.Info("the list of data centres has no faults any more")
	}
	l.alarms = alarms
}
