package global

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// census is the publisher's view of the allocator.
type census struct {
	leads bool
	root.Census
	centres []root.CentreTotals
	unknown []root.Unknown
	uninit  []string // data centres that never admitted anybody, as they report
}

func (cur *currentTerm) census() census {
	return whileLeading(cur, func(l *leadership) census {
		now, alloc := cur.mono.Now(), l.alloc
		c := census{leads: true, Census: alloc.Census(now), centres: alloc.Centres(now), unknown: alloc.Unknown(now)}
		for name, r := range l.reports {
			if r.stop.Reason == stop.Uninitialized {
				c.uninit = append(c.uninit, name)
			}
		}
		slices.Sort(c.uninit)
		c.unknown = slices.DeleteFunc(c.unknown, func(u root.Unknown) bool { return slices.Contains(c.uninit, u.Name) })
		return c
	})
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
		out = append(out,
			fmt.Sprintf("%s knows version %d of the list of data centres, this global version %d: nothing is lent until it is known here",
				c.By, c.Newest, c.Members))
	}
	for _, d := range c.Unlisted {
		switch {
		case d.Copy:
			out = append(out,
				fmt.Sprintf("another data centre is named %s (cluster ID %016x), it admits no visitor: rename it; "+
					"if it is the listed one and its store was lost: vestibule fleet rejoin %s at its NATS", d.Name, d.ClusterID,
					d.Name))
		case d.Gone:
			out = append(out,
				fmt.Sprintf("data centre %s was removed and reports, its sessions may exceed the limits until they end: stop it, or take it back: vestibule fleet add %s",
					d.Name, d.Name))
		default:
			out = append(out,
				fmt.Sprintf("data centre %s reports but is not listed, it admits no visitor: vestibule fleet add %s", d.Name,
					d.Name))
		}
	}
	for _, d := range c.centres {
		waited := slices.ContainsFunc(c.unknown, func(u root.Unknown) bool { return u.Name == d.Name }) // reported by waits
		if d.Heard > silentFor && d.Standing != wire.Unlisted && !d.Gone && !waited {
			out = append(out,
				fmt.Sprintf("data centre %s is listed and has not reported for over a minute: check that its regional runs, has this name and reaches NATS",
					d.Name)+c.remove(d.Name))
		}
	}
	return out
}

// remove returns the advice to remove a data centre that does not report; "" for the only one of the list.
func (c *census) remove(name string) string {
	if !slices.ContainsFunc(c.centres,
		func(d root.CentreTotals) bool { return d.Name != name && d.Standing != wire.Unlisted && !d.Gone }) {
		return ""
	}
	return fmt.Sprintf("; only if its edges are lost too, not cut off: vestibule fleet remove %s --force", name)
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
				until = ", at most until " + stop.Clock(u.Until) + " UTC while others are"
			}
			if why = "does not report" + until; u.Gone {
				why += "; it was removed"
			} else {
				why += c.remove(u.Name)
			}
		}
		out = append(out,
			fmt.Sprintf("at most returned permits are lent, and each data centre uses those that it has, because the permits of data centre %s are unknown: it %s",
				u.Name, why))
	}
	return out
}

// ofRooms returns alarms for rooms that may have more sessions than they have permits, or whose visitors wait to move
// their sessions; none if this candidate does not lead.
func (cur *currentTerm) ofRooms(now fleettime.Mono) []string {
	rooms := cur.fleet.Set().Rooms()
	return whileLeading(cur, func(l *leadership) (out []string) {
		silent := map[string]bool{}
		for _, d := range l.alloc.Centres(now) {
			silent[d.Name] = !d.Reporting
		}
		for _, r := range rooms {
			if all := l.alloc.Ledger(r.ID); len(out) < node.MaxStops {
				out = append(append(out, beyondOf(r.Name, &all)...), moversOf(r.Name, &all, silent)...)
			}
		}
		return out
	})
}

// moversOf returns alarms for the data centres where visitors of a room wait to move their sessions there. What silent
// ones reported is old.
func moversOf(name string, l *root.Ledger, silent map[string]bool) (out []string) {
	for _, d := range l.Centres {
		if d.Movers > 0 && !silent[d.Name] {
			out = append(out, fmt.Sprintf("%d visitors inside room %s wait in data centre %s for a free permit: the data centre that they "+
				"came from does not answer; connect it or its silent edges, see vestibule fleet status, or raise total_active_users "+
				"for the time, otherwise their visits end with their tickets", d.Movers, name, d.Name))
		}
	}
	return out
}

// beyondOf returns the alarm for a room with sessions beyond its permits, as after a wrong declaration of a loss; none
// otherwise.
func beyondOf(name string, l *root.Ledger) []string {
	n, counted := int64(0), false
	for _, d := range l.Centres {
		more := int64(d.Active) - max(0, d.Held)
		n, counted = n+max(0, more, d.Overcommit), counted || more > 0
	}
	switch {
	case l.Unbound || n == 0:
		return nil
	case counted:
		return []string{fmt.Sprintf("room %s counts %d sessions beyond its permits: after a loss or a takeover, sessions that "+
			"moved count twice until their earlier tickets expire, or an edge or a data centre that was counted as lost lives; nobody enters there until they end", name, n)}
	}
	return []string{fmt.Sprintf("room %s may have %d sessions beyond its permits, at nodes that are cut off or count as lost: connect them; "+
		"once an edge has ended for certain, vestibule fleet forget", name, n)}
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
