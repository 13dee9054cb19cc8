package room

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/lab/testkit"
)

var base = time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC)

func at(minutes float64) int64 {
	return base.Add(time.Duration(minutes * float64(time.Minute))).UnixMilli()
}

func sale(events ...Event) Settings {
	return Settings{
		Name: "sale", Host: "shop.example", Origin: "http://10.0.0.1", TotalActiveUsers: 100,
		NewUsersPerMinute: 50, Events: events,
	}
}

func launch() Event {
	return Event{
		Name: "launch", Prequeue: at(-10), Start: at(0), End: at(30),
		Overrides: Overrides{"total_active_users": 1000, "new_users_per_minute": 400},
	}
}

// TestEventsAreRefusedWithTheField: each fault of an event is reported with its place in the list and its rule.
func TestEventsAreRefusedWithTheField(t *testing.T) {
	edit := func(f func(*Event)) []Event {
		e := launch()
		f(&e)
		return []Event{e}
	}
	second := func(from, to float64) Event { return Event{Name: "second", Start: at(from), End: at(to)} }
	many := []Event{}
	for i := range MaxEvents + 1 {
		many = append(many, Event{Name: string(rune('a' + i)), Start: at(float64(10 * i)), End: at(float64(10*i + 1))})
	}
	for _, c := range []struct {
		events []Event
		want   string // "" where it is right
	}{
		{[]Event{launch()}, ""},
		{many[:MaxEvents], ""},
		{[]Event{launch(), second(30, 31)}, ""}, // as the first one ends
		{many, "events: must be at most 25, got 26"},
		{edit(func(e *Event) { e.Name = "" }), "events[0].name: is required"},
		{edit(func(e *Event) { e.Name = "a b" }), "events[0].name: must be 1 to 64 of"},
		{edit(func(e *Event) { e.Start = 0 }), "events[0].event_start_time: is required"},
		{edit(func(e *Event) { e.End = 0 }), "events[0].event_end_time: is required"},
		{edit(func(e *Event) { e.End = maxMoment + 1 }), "events[0].event_end_time: must be a time before the year 2100"},
		{edit(func(e *Event) { e.End = at(0.9) }), "events[0].event_end_time: must be 1m or more after event_start_time"},
		{
			edit(func(e *Event) { e.Prequeue = at(-4) }),
			"events[0].prequeue_start_time: must be 5m or more before event_start_time",
		},
		{edit(func(e *Event) { e.Prequeue = at(5) }), "events[0].prequeue_start_time: must be 5m or more before"},
		{edit(func(e *Event) { e.Shuffle = true }), ""},
		{
			edit(func(e *Event) { e.Shuffle, e.Prequeue = true, 0 }),
			"events[0].shuffle_at_event_start: must be false without prequeue_start_time",
		},
		{
			edit(func(e *Event) { e.Overrides["new_users_per_minute"] = 0 }),
			"events[0].new_users_per_minute: must be given with total_active_users",
		},
		{
			edit(func(e *Event) { delete(e.Overrides, "total_active_users") }),
			"events[0].total_active_users: must be given with new_users_per_minute",
		},
		{
			edit(func(e *Event) { e.Overrides["total_active_users"] = -1 }),
			"events[0].total_active_users: must be 1 to 2147483647, got -1",
		},
		{
			edit(func(e *Event) { e.Overrides["session_duration"] = time.Second }),
			"events[0].session_duration: must be 5s to 1h",
		},
		{
			edit(func(e *Event) { e.Overrides["queueing_method"] = "lottery" }),
			"events[0].queueing_method: must be fifo, random, passthrough or reject",
		},
		{edit(func(e *Event) { e.Overrides["waiting_page"] = "../x" }), "events[0].waiting_page: must be a file name"},
		{
			edit(func(e *Event) { e.Overrides["session_duration"] = 60 }),
			"events[0].session_duration: is not a setting that an event may override, or not of its type",
		},
		{
			edit(func(e *Event) { e.Overrides["host"] = "a.example" }),
			"events[0].host: is not a setting that an event may override",
		},
		{
			edit(func(e *Event) { e.Overrides["lottery"] = true }),
			"events[0].lottery: is not a setting that an event may override",
		},
		{edit(func(e *Event) { e.ID = "x" }), "events[0].id: must be 32 hexadecimal"},
		{
			edit(func(e *Event) { e.Description = strings.Repeat("x", MaxMessage+1) }),
			"events[0].description: must be at most",
		},
		{
			[]Event{launch(), second(29, 40)},
			`events[1].event_start_time: must not lie so that the event overlaps another one of the room: "launch" is from 2026-11-22T19:50:00Z to 2026-11-22T20:30:00Z`,
		},
		{[]Event{launch(), second(-20, -9)}, "events[1].event_start_time: must not lie so"},
		{[]Event{launch(), launch()}, "events[1].name: is the name of events[0] already"},
	} {
		s := sale(c.events...)
		err := s.Validate().Err()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// TestAPlanIsAFunctionOfTime: phases follow each other by the times of the events; what is suspended is in none.
func TestAPlanIsAFunctionOfTime(t *testing.T) {
	off := Event{
		Name: "off", Start: at(100), End: at(110), Suspended: true,
		Overrides: Overrides{"total_active_users": 1, "new_users_per_minute": 1},
	}
	next := Event{Name: "next", Start: at(30), End: at(31), Overrides: Overrides{
		"queueing_method": MethodReject, "disable_session_renewal": true, "session_duration": 20 * time.Second,
		"waiting_page": "page",
	}}
	s := sale(next, off, launch()).WithDefaults()
	p := s.Plan()
	got := []string{}
	for _, q := range p {
		name := ""
		if q.Event != nil {
			name = q.Event.Name
		}
		got = append(got, []string{"base", "prequeue", "active"}[q.Kind]+" "+name)
	}
	if diff := cmp.Diff([]string{"base ", "prequeue launch", "active launch", "active next", "base "}, got); diff != "" {
		t.Fatal(diff)
	}
	for _, c := range []struct {
		now    int64
		kind   Kind
		total  int
		method string
		next   int64
	}{
		{math.MinInt64 + 1, Base, 100, MethodFIFO, at(-10)},
		{at(-10) - 1, Base, 100, MethodFIFO, at(-10)},
		{at(-10), Prequeue, 1000, MethodFIFO, at(0)},
		{at(0) - 1, Prequeue, 1000, MethodFIFO, at(0)},
		{at(0), Active, 1000, MethodFIFO, at(30)},
		{at(30), Active, 100, MethodReject, at(31)},
		{at(31), Base, 100, MethodFIFO, 0},
	} {
		in := s.In(p.At(c.now))
		if p.At(c.now).Kind != c.kind || in.TotalActiveUsers != c.total || in.QueueingMethod != c.method ||
			p.Next(c.now) != c.next {
			t.Errorf("at %v: kind %d, T %d, %s, next %d", time.UnixMilli(c.now), p.At(c.now).Kind, in.TotalActiveUsers,
				in.QueueingMethod, p.Next(c.now))
		}
	}
	if in := s.In(p.At(at(30))); !in.NoRenewal || in.SessionDuration != 20*time.Second || in.WaitingPage != "page" ||
		in.NewUsersPerMinute != 50 {
		t.Errorf("overrides of next: %+v", in)
	}
	if diff := cmp.Diff([][2]int64{{at(-10), at(0)}}, p.Gathers()); diff != "" {
		t.Error(diff)
	}
}

// TestTheSmallerLimitWhileAPhaseIsUncertain: by a clock that may be off, limits that an event raises are in force once
// it has certainly begun, and those that it lowers as soon as it may have; the same for limits for now.
func TestTheSmallerLimitWhileAPhaseIsUncertain(t *testing.T) {
	e := launch()
	e.Prequeue = 0
	set := testkit.Must(NewSet(Document{Rooms: []Settings{sale(e)}}, 1))(t)
	const off = 10 * time.Second
	ms := off.Milliseconds()
	id := PublicID("sale")
	raised := &Controls{
		Version: 1,
		Rooms:   map[string]*Control{id: {Limits: &Limits{Mark: Mark{Since: 1, Until: at(100)}, TotalActiveUsers: 5000}}},
	}
	for _, c := range []struct {
		controls *Controls
		now      int64
		total    int
		next     int64
	}{
		{nil, at(0) - ms - 1, 100, at(0) - ms},
		{nil, at(0) - ms, 100, at(0)},
		{nil, at(0), 100, at(0) + ms},
		{nil, at(0) + ms - 1, 100, at(0) + ms},
		{nil, at(0) + ms, 1000, at(30) - ms},
		{nil, at(30) - ms, 100, at(30)},
		{nil, at(30), 100, at(30) + ms},
		{raised, at(100) - ms - 1, 5000, at(100) - ms},
		{raised, at(100) - ms, 100, at(100)},
		{raised, at(100) + ms, 100, 0},
	} {
		r := set.Under(c.controls, c.now, off).ByName("sale")
		if next := set.Next(c.controls, c.now, off); r.TotalActiveUsers != c.total || next != c.next {
			t.Errorf("at %v: T %d, want %d; next at %v, want %v", time.UnixMilli(c.now).UTC(), r.TotalActiveUsers, c.total,
				time.UnixMilli(next).UTC(), time.UnixMilli(c.next).UTC())
		}
	}
	early := launch()
	set = testkit.Must(NewSet(Document{Rooms: []Settings{sale(early)}}, 1))(t)
	for now, closed := range map[int64]bool{
		at(-10) - ms - 1: false, at(-10) - ms: true, at(-5): true, at(0): true,
		at(0) + ms - 1: true, at(0) + ms: false,
	} {
		if r := set.Under(nil, now, off).ByName("sale"); r.Closed != closed {
			t.Errorf("at %v people may be gathering: %v", time.UnixMilli(now).UTC(), r.Closed)
		}
	}
	if got := set.Under(nil, at(-60), off); got != set {
		t.Error("a set without anything in force is another one")
	}
	in := set.Under(nil, at(5), 0)
	if m := in.Match("shop.example", "/x"); len(m.Rooms()) != 1 || m.Rooms()[0] != in.ByName("sale") ||
		m.Rooms()[0].Phase.Kind != Active {
		t.Errorf("five minutes in, the room is matched as %+v", m.Rooms())
	}
}

// TestControlsGoBeforeEvents: a pause and limits for now bind in an event, and it goes on after them.
func TestControlsGoBeforeEvents(t *testing.T) {
	set := testkit.Must(NewSet(Document{Rooms: []Settings{sale(launch())}}, 1))(t)
	c := &Controls{Version: 1, Rooms: map[string]*Control{PublicID("sale"): {
		Pause: &Pause{Mark: Mark{Since: 1, Until: at(5)}}, Limits: &Limits{
			Mark:             Mark{Since: 1, Until: at(6)},
			TotalActiveUsers: 7,
		},
	}}}
	if r := set.Under(c, at(4), 0).ByName("sale"); !r.QueueAll || r.TotalActiveUsers != 7 || r.NewUsersPerMinute != 400 ||
		r.Phase.Kind != Active {
		t.Errorf("under controls: %+v", r)
	}
	if r := set.Under(c, at(6), 0).ByName("sale"); r.QueueAll || r.TotalActiveUsers != 1000 {
		t.Errorf("after them: T %d, shut %v", r.TotalActiveUsers, r.QueueAll)
	}
}

// TestEventsInDocuments: what is stored reads back, and names no events where there are none.
func TestEventsInDocuments(t *testing.T) {
	e := launch()
	e.Description, e.Suspended, e.Shuffle, e.Created, e.Changed = "x", true, true, 5, 6
	e.Overrides = Overrides{
		"session_duration": time.Minute, "disable_session_renewal": false,
		"queueing_method": MethodReject, "waiting_page": "p",
	}
	doc := Document{Rooms: []Settings{sale(e, Event{Name: "b", Start: at(60), End: at(61)})}}.WithDefaults()
	data, err := EncodeDocument(doc)
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	got, err := DecodeDocument(data)
	if diff := cmp.Diff(doc, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, bad := range []string{`"disable_session_renewal":3`, `"start":"x"`, `"shuffle":1`} {
		key := bad[:strings.Index(bad, ":")+1]
		broken := string(data)
		if i := strings.Index(broken, key); i >= 0 {
			broken = broken[:i] + bad + "," + `"x` + broken[i+1:]
		} else {
			broken = strings.Replace(broken, `"created":`, bad+`,"created":`, 1)
		}
		if _, err := DecodeDocument([]byte(broken)); err == nil || !strings.Contains(err.Error(), "events[0]") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if without, err := EncodeDocument(Document{Rooms: []Settings{sale()}}.WithDefaults()); err != nil ||
		strings.Contains(string(without), "events") {
		t.Errorf("%s: %v", without, err)
	}
}

// TestAnEventWithADraw: people go on gathering until the record of the draw has been public for long enough, and to the
// end of the event where there is none. Who was drawn keeps the place when the event is gone.
func TestAnEventWithADraw(t *testing.T) {
	e := launch()
	e.Shuffle = true
	set := testkit.Must(NewSet(Document{Rooms: []Settings{sale(e)}}, 1))(t)
	events := set.Draws()
	if len(events) != 1 || events[0].Room != PublicID("sale") || int64(events[0].Closes()) != at(-0.5) {
		t.Fatalf("draws %+v", events)
	}
	board := func(n *draw.Notice) *draw.Board { return &draw.Board{Version: 1, Notices: []*draw.Notice{n}} }
	published := func(after float64) *draw.Board {
		n := testkit.Must(draw.Announce(fleettime.Time(at(-60)), events[0], draw.Secret{1},
			draw.BeaconNone).Publish(fleettime.Time(at(after)), draw.Secret{1}, nil, 5))(t)
		return board(n)
	}
	settle := draw.Settle.Minutes()
	for _, c := range []struct {
		name  string
		board *draw.Board
		now   float64
		kind  Kind
		next  float64 // -1 for never
	}{
		{"nothing is published", nil, -1, Prequeue, 30},
		{"nothing is published at the start", nil, 0.1, Prequeue, 30},
		{"announced", board(draw.Announce(1, events[0], draw.Secret{1}, draw.BeaconNone)), 0.1, Prequeue, 30},
		{"published in time, before the start", published(-0.49), -0.01, Prequeue, 0},
		{"published in time", published(-0.49), 0, Active, 30},
		{"published late, unsettled", published(2), 2 + settle - 0.01, Prequeue, 2 + settle},
		{"published late", published(2), 2 + settle, Active, 30},
		{"published when it is over", published(29.9), 29.95, Prequeue, 30},
		{"no draw", board(draw.Without(events[0], "late")), 0, Active, 30},
		{"over without a record", nil, 31, Base, -1},
	} {
		drawn := set.WithDraws(c.board)
		r := drawn.Under(nil, at(c.now), 0).ByName("sale")
		next := int64(0)
		if c.next >= 0 {
			next = at(c.next)
		}
		if got := drawn.Next(nil, at(c.now), 0); r.Phase.Kind != c.kind || r.Closed != (c.kind == Prequeue) || got != next {
			t.Errorf("%s: kind %d, closed %v, next %s, want %s", c.name, r.Phase.Kind, r.Closed, showMoment(got),
				showMoment(next))
		}
		if spans := r.Plan.Gathers(); c.kind == Prequeue && (len(spans) != 1 || spans[0][1] <= at(c.now)) {
			t.Errorf("%s: edges let in from %v", c.name, spans)
		}
	}
	plain := testkit.Must(NewSet(Document{Rooms: []Settings{sale()}}, 2))(t)
	if r := plain.WithDraws(published(-0.49)).Under(nil, at(1), 0).ByName("sale"); r.Drawn == nil || r.Draw != nil {
		t.Errorf("the event went, and who was drawn has the place no more: %+v", r)
	}
	if got := set.WithDraws(published(-0.49)).Under(nil, at(1), 0).ByName("sale"); got.Draw == nil ||
		got.Draw != got.Drawn {
		t.Errorf("while it is on: %+v", got)
	}
}
