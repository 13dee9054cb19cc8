// Package stop says why nobody enters a room: the reason, since when, until when at the latest, and the command that
// ends it. Every node determines its own [Stop] and passes it on: regionals to their edges and to global, global to the
// regionals. So each of them gives the same answer, in /readyz, the API, the log and the metrics.
package stop

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
)

// Reason is the reason for which nobody enters. The set is closed: it labels metrics, and its numbers are on the wire.
type Reason uint8

// The reasons. Those of operators and of the room come first, then those of its nodes.
const (
	None             Reason = iota
	Paused                  // an operator paused the room
	QueueAll                // every visitor waits, by the room's queue_all or a control
	Rejecting               // the room's method is reject
	BeforeEvent             // visitors gather for an event
	Full                    // total_active_users is reached
	SiteDown                // the site does not answer
	Draining                // the data centre leaves the fleet
	Unlisted                // the data centre is not in the fleet's list
	Copy                    // another data centre with the same name is in the list
	AwaitsEdge              // an edge has to report its sessions first
	AwaitsAllocation        // global has not sent the permits of this data centre yet
	AwaitsCentre            // global knows no permits of a data centre, and none is free
	NoTime                  // no node has reported fleet time
	ClockUncertain          // an edge does not know fleet time well enough
	NoLease                 // an edge has no lease of its regional
	NoGlobal                // the data centre has no lease of global, and no permit of its own is free
	Silent                  // the data centre does not report to global
	NoLeader                // no global leads
	Uninitialized           // the fleet has never admitted anybody, and nobody has said that it may
	reasons
)

var names = [reasons]string{
	"none", "paused", "queue_all", "rejecting", "before_event", "full", "site_down", "draining", "unlisted", "copy",
	"awaits_edge", "awaits_allocation", "awaits_data_center", "no_time", "clock_uncertain", "no_lease", "no_global",
	"silent", "no_leader", "uninitialized",
}

// String returns the name of the reason; "unknown" for one of a newer build.
func (r Reason) String() string {
	if r >= reasons {
		return "unknown"
	}
	return names[r]
}

// Stop is why nobody enters a room, or any room of a data centre. The zero value means that visitors enter.
type Stop struct {
	Reason Reason
	Since  fleettime.Time `json:",omitempty"` // 0 for unknown
	Until  fleettime.Time `json:",omitempty"` // latest end; 0 for unknown
	Centre string         `json:",omitempty"` // data centre concerned; "" for all
	// the edge, or for AwaitsCentre the data centre, that is waited for; "" for any
	Edge     string `json:",omitempty"`
	Instance uint64 `json:",omitempty,string"` // of the edge; 0 for unknown
	// the edge has ended; or the data centre was removed, reports, or is the only one: nothing is left to declare
	Ended  bool   `json:",omitempty"`
	Edges  int    `json:",omitempty"` // number of edges at which the site does not answer
	Of     int    `json:",omitempty"` // edges of the data centre; 0 for unknown
	First  string `json:",omitempty"` // the names of the first of Edges, with commas; "" for unknown
	Room   string `json:",omitempty"` // the room; "" for all
	Text   string `json:",omitempty"` // the operator's reason, or the name of an event
	ForNow bool   `json:",omitempty"` // of QueueAll: by a control, which a change of the room does not end
	Draw   bool   `json:",omitempty"` // of BeforeEvent: the event begins with a draw, which has its time
}

// View is a stop as /readyz shows it.
type View struct {
	Reason     string     `json:"reason"`
	Room       string     `json:"room,omitempty"`
	DataCenter string     `json:"data_center,omitempty"`
	Since      *time.Time `json:"since,omitempty"`
	Until      *time.Time `json:"until,omitempty"`
	Text       string     `json:"text"`
	Command    string     `json:"command,omitempty"`
}

// View returns the stop for display.
func (s Stop) View() View {
	return View{s.Reason.String(), s.Room, s.Centre, moment(s.Since), moment(s.Until), s.String(), s.Command()}
}

// moment returns fleet time, nil for unknown.
func moment(t fleettime.Time) *time.Time {
	if t == 0 {
		return nil
	}
	at := time.UnixMilli(int64(t)).UTC()
	return &at
}

// Operated reports whether operators or the room itself stop admissions, and no node is at fault.
func (s Stop) Operated() bool { return s.Reason >= Paused && s.Reason <= Full }

// Of returns why an operator's settings and controls stop admissions to a room, as of fleet time now: r is the room
// under its controls in force, and phase the phase of its events. A room that is suspended or lets everybody pass has
// none.
func Of(r *room.Settings, in *room.Control, phase room.Phase, now fleettime.Time) Stop {
	in = in.At(int64(now))
	s := Stop{Room: r.Name}
	mark := func(why Reason, m *room.Mark) Stop {
		s.Reason, s.Since, s.Until, s.Text = why, fleettime.Time(m.Since), fleettime.Time(m.Until), m.Reason
		return s
	}
	switch {
	case r.Suspended:
		return Stop{}
	case in != nil && in.Pause != nil:
		return mark(Paused, &in.Pause.Mark)
	case in != nil && in.QueueAll != nil:
		s.ForNow = true
		return mark(QueueAll, in.QueueAll)
	case r.QueueAll:
		s.Reason = QueueAll
	case phase.Kind == room.Prequeue && phase.Event != nil:
		s.Reason, s.Text, s.Draw = BeforeEvent, phase.Event.Name, phase.Event.Shuffle
		s.Since, s.Until = fleettime.Time(phase.Event.Prequeue), fleettime.Time(phase.Event.Start)
	case r.QueueingMethod == room.MethodReject:
		s.Reason = Rejecting
		if phase.Event != nil && phase.Event.Overrides["queueing_method"] != nil {
			s.Text = phase.Event.Name
		}
	default:
		return Stop{}
	}
	return s
}

// OK reports whether visitors enter.
func (s Stop) OK() bool { return s.Reason == None }

// UnknownEdge stands in Edge for any edge that the store of the data centre has lost.
const UnknownEdge = "(unknown past)"

func (s Stop) place() string {
	if s.Centre == "" {
		return "here"
	}
	return "in " + s.Centre
}

// String says in one sentence why nobody enters, and until when.
func (s Stop) String() string {
	until := ""
	if s.Until != 0 {
		until = " until " + Clock(s.Until) + " UTC at most, or"
	}
	nobody := "no visitor is admitted " + s.place()
	switch s.Reason {
	case None:
		return "visitors are admitted"
	case Paused:
		return withText("the room is paused", s.Text) + end(s.Until)
	case QueueAll:
		return withText("every visitor waits (queue_all)", s.Text) + end(s.Until)
	case Rejecting:
		if s.Text != "" {
			return fmt.Sprintf("event %s rejects newcomers (queueing_method: reject)", s.Text)
		}
		return "the room rejects newcomers (queueing_method: reject)"
	case BeforeEvent:
		if s.Draw {
			return fmt.Sprintf("visitors gather for event %s, which begins with a draw", s.Text) + end(s.Until)
		}
		return fmt.Sprintf("visitors gather for event %s", s.Text) + end(s.Until)
	case Full:
		return "total_active_users is reached: a visitor enters when a session ends"
	case SiteDown:
		switch n := max(1, s.Edges); {
		case s.Centre == "":
			return "the site does not answer: nobody is admitted until it does"
		case n == 1 && s.First != "":
			return fmt.Sprintf("the site does not answer edge %s %s: it admits nobody until the site does", s.First, s.place())
		case s.Of >= n && s.Of > 1:
			return fmt.Sprintf("the site does not answer %d of %d edges %s%s: they admit nobody until it does", n, s.Of, s.place(), s.which())
		case n > 1:
			return fmt.Sprintf("the site does not answer %d edges %s%s: they admit nobody until it does", n, s.place(), s.which())
		}
		return "the site does not answer 1 edge " + s.place() + ": it admits nobody until the site does"
	case Draining:
		return nobody + ": the data centre is draining"
	case Unlisted:
		return nobody + ": the data centre is not in the fleet's list"
	case Copy:
		return nobody +
			": another data centre of this name is in the fleet's list; rename one of them, unless nothing of the listed one lives"
	case AwaitsEdge:
		switch {
		case s.Ended && s.Edge == UnknownEdge:
			return fmt.Sprintf("%s%s until the admissions of edges that the store has lost have expired", nobody, until)
		case s.Ended:
			return fmt.Sprintf("%s%s until the admissions of edge %s, which has ended, have expired", nobody, until, s.Edge)
		}
		who, first := s.Awaited()
		return fmt.Sprintf("%s%s until %s: only it knows its counts%s", nobody, until, who, first)
	case AwaitsAllocation:
		return nobody + ": global has not sent the allocation of this data centre yet, see the alarms of its /readyz"
	case AwaitsCentre:
		who := "data centre " + s.Edge + " reports its"
		if s.Edge == "" {
			who = "every data centre reports its"
		}
		text := fmt.Sprintf("%s%s until %s permits: global lends at most returned ones", nobody, until, who)
		switch {
		case !s.Ended:
			text += away
		case s.Edge != "" && s.Until == 0:
			text += "; it waits itself, see the alarms of its regional's /readyz"
		}
		return text
	case NoTime:
		return nobody + ": neither global nor an edge has reported fleet time"
	case ClockUncertain:
		return nobody + ": fleet time is not known well enough, check that the regional answers"
	case NoLease:
		return nobody +
			": the edge has no lease, its regional does not answer: check that a regional leads and that NATS of the data centre is connected"
	case NoGlobal:
		return nobody +
			": the data centre has no free permit, and global does not answer: check that a global leads and that its NATS is connected"
	case Silent:
		text := fmt.Sprintf("data centre %s does not report: check that its regional runs and reaches NATS", s.Centre)
		if !s.Ended {
			text += away
		}
		return text
	case Uninitialized:
		return nobody + ": this fleet has never admitted anybody, and must be initialized once"
	case NoLeader:
		return "no global leads: check that a global runs and that its NATS is connected"
	default:
	}
	return nobody + ", for a reason that this build does not know"
}

// Awaited returns the edge that must report to end AwaitsEdge, and the check to make before that edge is forgotten.
func (s Stop) Awaited() (who, first string) {
	switch {
	case s.Edge == UnknownEdge:
		return "any edge that the store has lost reports", "; first make sure that every running edge reports"
	case s.Ended:
		first = "; it has ended; this is for its earlier admissions"
	default:
		first = "; first look on its machine or in its scheduler whether its process has ended"
	}
	return fmt.Sprintf("edge %s (instance %d) reports", s.Edge, s.Instance), first
}

func withText(what, text string) string {
	if text == "" {
		return what
	}
	return what + ": " + text
}

func end(until fleettime.Time) string {
	if until == 0 {
		return ""
	}
	return ", until " + Clock(until) + " UTC"
}

// away names the check before a data centre is removed.
const away = "; first make sure that its edges are lost, not cut off"

// Command returns the command that ends the stop; "" if there is none. Where it declares a loss, String says what to
// find out first.
func (s Stop) Command() string {
	switch s.Reason {
	case Paused:
		return "vestibule resume " + s.Room
	case QueueAll:
		if s.ForNow {
			return "vestibule resume " + s.Room
		}
		return fmt.Sprintf("vestibule rooms set %s queue_all=false", s.Room)
	case Rejecting:
		if s.Text != "" {
			return fmt.Sprintf("vestibule events set %s %s queueing_method=fifo", s.Room, s.Text)
		}
		return fmt.Sprintf("vestibule rooms set %s queueing_method=fifo", s.Room)
	case BeforeEvent:
		if s.Draw {
			return ""
		}
		return fmt.Sprintf("vestibule events start %s %s", s.Room, s.Text)
	case Full:
		// It works where limits for now or an event override the room's, and where the rooms come from a file.
		return fmt.Sprintf("vestibule limits %s --total N --for 30m", s.Room)
	case Draining, Unlisted:
		return "vestibule fleet add " + s.Centre
	case Copy:
		return "vestibule fleet rejoin " + s.Centre
	case AwaitsEdge:
		switch {
		case s.Ended:
			return ""
		case s.Edge == UnknownEdge:
			return "vestibule fleet forget --all --dc " + s.Centre
		}
		return fmt.Sprintf("vestibule fleet forget %s --dc %s", s.Edge, s.Centre)
	case AwaitsCentre, Silent:
		if lost := cmp.Or(s.Edge, s.Centre); !s.Ended {
			return fmt.Sprintf("vestibule fleet remove %s --force", lost)
		}
	case Uninitialized:
		return "vestibule init"
	default:
	}
	return ""
}

// Memory adds the time since when to stops that lack it: when a caller first noted them. The zero value is empty.
type Memory map[memoryKey]fleettime.Time

type memoryKey struct {
	room, centre, edge string
	reason             Reason
}

// which names the edges at which the site does not answer, in brackets after a space; "" for unknown.
func (s Stop) which() string {
	if s.First == "" {
		return ""
	}
	if more := s.Edges - strings.Count(s.First, ",") - 1; more > 0 {
		return fmt.Sprintf(" (%s and %d more)", s.First, more)
	}
	return fmt.Sprintf(" (%s)", s.First)
}

// Note fills in Since of all current stops, and forgets the others.
func (m *Memory) Note(now fleettime.Time, all []Stop) {
	next := Memory{}
	for i := range all {
		s := &all[i]
		key := memoryKey{s.Room, s.Centre, s.Edge, s.Reason}
		if s.Since == 0 {
			if s.Since = (*m)[key]; s.Since == 0 {
				s.Since = now
			}
		}
		next[key] = s.Since
	}
	*m = next
}

// Advice returns the sentence with the command, for alarms.
func (s Stop) Advice() string {
	if c := s.Command(); c != "" {
		return s.String() + ": " + c
	}
	return s.String()
}

// Clock returns the time with its day: a pause or an event may end days from now.
func Clock(t fleettime.Time) string { return time.UnixMilli(int64(t)).UTC().Format(time.DateTime) }
