package stop

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
)

const day = fleettime.Time(1795353281000) // 13:14:41 UTC

// TestEveryReasonIsExplained: each has a name of its own, a sentence, and if a command ends it, one with the object's
// name.
func TestEveryReasonIsExplained(t *testing.T) {
	seen := map[string]bool{}
	for r := range reasons {
		s := Stop{Reason: r, Room: "shop", Centre: "dublin", Edge: "edge-1", Instance: 7, Until: day, Text: "sale"}
		if name := r.String(); name == "" || seen[name] || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("%d: name %q", r, name)
		} else {
			seen[name] = true
		}
		if text := s.String(); text == "" || strings.Contains(text, "does not know") || strings.Contains(text, "%!") {
			t.Errorf("%v: %s", r, text)
		}
		if c := s.Command(); c != "" && (!strings.HasPrefix(c, "vestibule ") || r != Uninitialized &&
			!strings.Contains(c, "shop") && !strings.Contains(c, "dublin") && !strings.Contains(c, "edge-1")) {
			t.Errorf("%v: %s", r, c)
		}
		if !strings.HasPrefix(s.Advice(), s.String()) || !strings.HasSuffix(s.Advice(), s.Command()) {
			t.Errorf("%v: %s", r, s.Advice())
		}
	}
	newer := Stop{Reason: 200}
	if newer.OK() || newer.Reason.String() != "unknown" ||
		!strings.Contains(newer.String(), "a reason that this build does not know") {
		t.Errorf("a reason of a newer build: %v", newer)
	}
}

func TestAdvice(t *testing.T) {
	for want, s := range map[string]Stop{
		"no visitor is admitted in dublin until 2026-11-22 13:14:41 UTC at most, or until edge e2 (instance 7) reports: " +
			"only it knows its counts; " +
			"first look on its machine or in its scheduler whether its process has ended: vestibule fleet forget e2 --dc dublin": {
			Reason: AwaitsEdge, Centre: "dublin", Edge: "e2", Instance: 7, Until: day,
		},
		"no visitor is admitted in dublin until any edge that the store has lost reports: only it knows its counts; " +
			"first make sure that every running edge reports: vestibule fleet forget --all --dc dublin": {
			Reason: AwaitsEdge, Centre: "dublin", Edge: UnknownEdge,
		},
		"no visitor is admitted in dublin until the admissions of edges that the store has lost have expired": {
			Reason: AwaitsEdge, Centre: "dublin", Edge: UnknownEdge, Ended: true,
		},
		"no visitor is admitted in dublin until the admissions of edge e2, which has ended, have expired": {
			Reason: AwaitsEdge, Centre: "dublin", Edge: "e2", Ended: true,
		},
		"no visitor is admitted in dublin until data centre lima reports its permits: global lends at most returned ones; " +
			"first make sure that its edges are lost, not cut off: vestibule fleet remove lima --force": {
			Reason: AwaitsCentre,
			Centre: "dublin", Edge: "lima",
		},
		"no visitor is admitted in dublin until data centre lima reports its permits: global lends at most returned ones; " +
			"it waits itself, see the alarms of its regional's /readyz": {
			Reason: AwaitsCentre, Centre: "dublin", Edge: "lima",
			Ended: true,
		},
		"data centre dublin does not report: check that its regional runs and reaches NATS": {
			Reason: Silent,
			Centre: "dublin", Ended: true,
		},
		"the room is paused: till is down, until 2026-11-22 13:14:41 UTC: vestibule resume shop": {
			Reason: Paused,
			Room:   "shop", Text: "till is down", Until: day,
		},
		"visitors gather for event sale: vestibule events start shop sale": {Reason: BeforeEvent, Room: "shop", Text: "sale"},
		"visitors gather for event sale, which begins with a draw, until 2026-11-22 13:14:41 UTC": {
			Reason: BeforeEvent, Room: "shop", Text: "sale", Draw: true, Until: day,
		},
		"every visitor waits (queue_all): vestibule rooms set shop queue_all=false": {Reason: QueueAll, Room: "shop"},
		"every visitor waits (queue_all): slow: vestibule resume shop": {
			Reason: QueueAll, Room: "shop",
			Text: "slow", ForNow: true,
		},
		"event sale rejects newcomers (queueing_method: reject): vestibule events set shop sale queueing_method=fifo": {
			Reason: Rejecting, Room: "shop", Text: "sale",
		},
		"total_active_users is reached: a visitor enters when a session ends: vestibule limits shop --total N --for 30m": {
			Reason: Full, Room: "shop",
		},
		"the site does not answer 3 edges in dublin: they admit nobody until it does": {
			Reason: SiteDown, Room: "shop",
			Centre: "dublin", Edges: 3,
		},
		"the site does not answer 2 of 3 edges in dublin: they admit nobody until it does": {
			Reason: SiteDown, Room: "shop", Centre: "dublin", Edges: 2, Of: 3,
		},
		"the site does not answer 1 edge in dublin: it admits nobody until the site does": {
			Reason: SiteDown, Room: "shop", Centre: "dublin", Edges: 1, Of: 1,
		},
		"the site does not answer edge edge-3 in dublin: it admits nobody until the site does": {
			Reason: SiteDown, Room: "shop", Centre: "dublin", Edges: 1, Of: 4, First: "edge-3",
		},
		"the site does not answer 2 of 4 edges in dublin (edge-3, edge-4): they admit nobody until it does": {
			Reason: SiteDown, Room: "shop", Centre: "dublin", Edges: 2, Of: 4, First: "edge-3, edge-4",
		},
		"the site does not answer 5 edges in dublin (edge-1, edge-2, edge-3 and 2 more): they admit nobody until it does": {
			Reason: SiteDown, Room: "shop", Centre: "dublin", Edges: 5, First: "edge-1, edge-2, edge-3",
		},
		"the site does not answer: nobody is admitted until it does": {Reason: SiteDown, Room: "shop", Edges: 5},
	} {
		if got := s.Advice(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestStopsOfOperators: the first control or setting that keeps visitors out, and none where they pass.
func TestStopsOfOperators(t *testing.T) {
	now := day
	mark := room.Mark{Since: int64(day) - 1000, Until: int64(day) + 1000, Reason: "why"}
	sale := &room.Event{Name: "sale", Prequeue: int64(day) - 5000, Start: int64(day) + 5000}
	for name, c := range map[string]struct {
		edit  func(*room.Settings)
		in    *room.Control
		phase room.Phase
		want  Stop
	}{
		"open": {},
		"paused": {
			in:   &room.Control{Pause: &room.Pause{Mark: mark}},
			want: Stop{Reason: Paused, Since: day - 1000, Until: day + 1000, Text: "why"},
		},
		"a pause's end": {in: &room.Control{Pause: &room.Pause{Mark: room.Mark{Until: int64(day)}}}},
		"all wait": {
			in:   &room.Control{QueueAll: &mark},
			want: Stop{Reason: QueueAll, Since: day - 1000, Until: day + 1000, Text: "why", ForNow: true},
		},
		"queue_all": {edit: func(s *room.Settings) { s.QueueAll = true }, want: Stop{Reason: QueueAll}},
		"reject": {
			edit: func(s *room.Settings) { s.QueueingMethod = room.MethodReject },
			want: Stop{Reason: Rejecting},
		},
		"before a sale": {
			phase: room.Phase{Kind: room.Prequeue, Event: sale},
			want:  Stop{Reason: BeforeEvent, Since: day - 5000, Until: day + 5000, Text: "sale"},
		},
		"a sale rejects": {
			edit: func(s *room.Settings) { s.QueueingMethod = room.MethodReject },
			phase: room.Phase{
				Kind:  room.Active,
				Event: &room.Event{Name: "last", Overrides: room.Overrides{"queueing_method": room.MethodReject}},
			},
			want: Stop{Reason: Rejecting, Text: "last"},
		},
		"before a draw": {
			phase: room.Phase{Kind: room.Prequeue, Event: &room.Event{Name: "lot", Shuffle: true}},
			want:  Stop{Reason: BeforeEvent, Text: "lot", Draw: true},
		},
		"during a sale": {phase: room.Phase{Kind: room.Active, Event: sale}},
		"suspended": {
			edit: func(s *room.Settings) { s.Suspended = true },
			in:   &room.Control{Pause: &room.Pause{Mark: mark}},
		},
		"other controls": {in: &room.Control{Message: &room.Message{Mark: mark, Text: "x"}}},
	} {
		r := room.Settings{Name: "shop"}
		if c.edit != nil {
			c.edit(&r)
		}
		if !c.want.OK() {
			c.want.Room = "shop"
		}
		if got := Of(&r, c.in, c.phase, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestMemory: a stop has the time when it was first noted, until it ends; one that knows its beginning keeps it.
func TestMemory(t *testing.T) {
	var m Memory
	full, known := Stop{Reason: Full, Room: "shop"}, Stop{Reason: Silent, Centre: "dublin", Since: day - 9}
	note := func(now fleettime.Time, all ...Stop) []Stop {
		m.Note(now, all)
		return all
	}
	note(day, full, known)
	got := note(day+5, full, known, Stop{Reason: Full, Room: "news"})
	if got[0].Since != day || got[1].Since != day-9 || got[2].Since != day+5 {
		t.Errorf("%+v", got)
	}
	note(day + 6)
	if len(m) != 0 {
		t.Errorf("%d ended stops are remembered", len(m))
	}
	if got := note(day+7, full); got[0].Since != day+7 {
		t.Errorf("a stop that begins again: %+v", got)
	}
}

// TestAStopOnTheWire: it survives JSON, as globals exchange it.
func TestAStopOnTheWire(t *testing.T) {
	want := Stop{
		Reason: AwaitsEdge, Since: day, Until: day + 1, Centre: "dublin", Edge: "e", Instance: 1<<63 + 1,
		Ended: true, Edges: 3, Room: "shop", Text: "x",
	}
	data, err := json.Marshal(want)
	var got Stop
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil || got != want {
		t.Errorf("%s: %+v, %v", data, got, err)
	}
	v := want.View()
	if v.Reason != "awaits_edge" || v.Since == nil || !v.Since.Equal(time.UnixMilli(int64(day))) ||
		v.DataCenter != "dublin" {
		t.Errorf("%+v", v)
	}
}
