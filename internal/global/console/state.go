package console

import (
	"fmt"
	"slices"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/global/control/api"
)

// state is the state of a room in words. Its key selects a colour.
type state struct{ Key, Word, Meaning string }

// facts are the inputs of a room's state.
type facts struct {
	suspended bool
	method    string // of queueing, in force
	queueAll  bool   // in force, by the settings or by an operator
	controls  []string
	limit     int         // of sessions, in force
	status    *api.Status // nil without a leading global
}

// factsOf returns the facts that a status has.
func factsOf(s *api.Status) facts {
	own := &s.Vestibule
	return facts{s.Status == api.Suspended, own.QueueingMethod, own.QueueAll, own.Controls, own.TotalActiveUsers, s}
}

// facts returns the facts of a reading.
func (rd *reading) facts() facts {
	if rd.status != nil {
		return factsOf(rd.status)
	}
	f := facts{
		suspended: rd.room.Suspended, method: rd.room.QueueingMethod, queueAll: rd.controls.InForce.QueueAll,
		limit: rd.controls.InForce.TotalActiveUsers,
	}
	if rd.controls.Pause != nil {
		f.controls = []string{"pause"}
	}
	return f
}

// stateOf returns the state of a room. The first that applies is shown.
func stateOf(f facts) state {
	switch {
	case f.suspended:
		return state{"off", "Suspended", "All visitors go straight to the site."}
	case slices.ContainsFunc(f.stops(), func(s api.Stop) bool { return siteDown(s) && s.DataCenter == "" }):
		return state{"trouble", "Site down", "The site does not answer. Nobody is let in until it does."}
	case slices.ContainsFunc(f.stops(), siteDown):
		return state{"trouble", "Site down in part", "Some edges do not reach the site. They let nobody in, the others go on."}
	case slices.Contains(f.controls, "pause"):
		return state{"paused", "Paused", "Nobody is let in. People inside stay."}
	case f.queueAll:
		return state{"paused", "All wait", "All visitors without a session wait. Nobody is let in."}
	case f.status == nil:
		return state{
			"trouble", "Unknown",
			"No leading global publishes numbers. Edges go on with the permits that they have.",
		}
	case f.status.Status == api.EventPrequeueing:
		return state{"before", "Pre-queue", "Visitors gather for an event. Nobody is let in before its start."}
	case slices.ContainsFunc(f.stops(), isFault):
		return state{"trouble", "Stopped", "Nobody is let in where a fault stops it. People inside stay."}
	case f.method == room.MethodReject:
		return state{"busy", "Rejecting", "The line is closed. New visitors are turned away."}
	case f.method == room.MethodPassthrough:
		return state{"open", "Passthrough", "All visitors enter; sessions are counted."}
	case f.status.EstimatedQueuedUsers > 0 || f.status.Status == api.Queueing:
		return state{"busy", "Queueing", "Visitors wait and are let in within the limits."}
	case f.status.EstimatedTotalActiveUsers >= f.limit:
		return state{"busy", "Full", "All places are taken. The next visitor waits."}
	default:
		return state{"open", "Open", "Visitors enter without waiting."}
	}
}

// noFaults are the reasons that operators or the room want. Without a leader, edges go on with the permits that they
// have.
var noFaults = []stop.Reason{
	stop.Paused, stop.QueueAll, stop.Rejecting, stop.BeforeEvent, stop.Full, stop.Draining, stop.NoLeader,
}

// isFault reports whether a reason for which nobody enters is a fault.
func isFault(s api.Stop) bool {
	return !slices.ContainsFunc(noFaults, func(r stop.Reason) bool { return r.String() == s.Reason })
}

// siteDown reports whether the site does not answer, everywhere or in a data centre.
func siteDown(s api.Stop) bool { return s.Reason == stop.SiteDown.String() }

// stops returns why nobody enters, the most important first.
func (f *facts) stops() []api.Stop {
	if f.status == nil {
		return nil
	}
	return f.status.Vestibule.Stops
}

// why names the fields of a reason for which nobody enters, and of the command that ends it.
type why struct{ Text, How string }

// whyFields are those of the reasons that a page shows.
var whyFields = [...]why{{"why.0", "why.0.how"}, {"why.1", "why.1.how"}, {"why.2", "why.2.how"}, {"why.3", "why.3.how"}}

// addWhy adds why nobody enters: the first reasons, each since when, and the command that ends it.
func (v values) addWhy(now time.Time, stops []api.Stop) {
	for i, f := range whyFields {
		v[f.Text], v[f.How] = "", ""
		if i < len(stops) {
			v[f.Text], v[f.How] = stopWords(now, &stops[i]), stops[i].Command
		}
	}
	if n := len(stops) - len(whyFields); n > 0 {
		v[whyFields[len(whyFields)-1].Text] += fmt.Sprintf(" (%s)", plural(n, "more reason", "more reasons"))
	}
}

// stopWords says why nobody enters, and since when.
func stopWords(now time.Time, s *api.Stop) string {
	text := title(s.Text)
	if s.Since != nil {
		text += ", since " + clock(now, *s.Since)
	}
	return text
}
