package edge

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// change offers the edge other settings of the room sale, and waits until they are in force.
func (st *stage) change(version uint64, change func(*room.Settings)) {
	st.t.Helper()
	d := document(st.origin.URL)
	change(&d.Rooms[0])
	st.docs.offer(node.RoomsDocument, roomsDocument(st.t, version, d))
	testkit.Eventually(st.t, "the new settings are used",
		func() bool { return st.server.gate.Rooms().Version() == version })
}

// TestASuspendedRoomIsNotThere: every request passes, no ticket is read or given, a waiting page gets the hint to
// enter, and other rooms are unaffected.
func TestASuspendedRoomIsNotThere(t *testing.T) {
	st := openWith(t, 0, func(r *room.Settings) { r.Suspended = true })
	in := st.keys.seal("sale", session(7))
	for _, header := range [][]string{nil, {"Cookie", in}} {
		a := st.door.visitor().get(saleURL, header...)
		if a.StatusCode != http.StatusOK || a.body != "the site" || a.Header["Set-Cookie"] != nil ||
			a.Header.Get("Vestibule-Decision") != "" {
			t.Fatalf("%d %v %q", a.StatusCode, a.Header, a.body)
		}
	}
	if a := st.door.visitor().get(saleURL, "Vestibule-Poll", "1", "Accept", "application/json"); !strings.Contains(a.body,
		`"state":"entering"`) {
		t.Errorf("a page that waits gets %s", a.body)
	}
	st.hasAdmitted(0)
	st.change(2, func(*room.Settings) {})
	if a := st.door.visitor().get(saleURL); a.body == "the site" || cookieOf(a, ticket.CookieName("sale", false)) == nil {
		t.Errorf("once it is back: %d %q", a.StatusCode, a.body)
	}
}

// TestARoomThatRejects: its page and its JSON say that it is full, ask for no return within a minute and give no
// ticket; an event stream reports when that changes. Sessions stay. While all visitors are queued it rejects none.
func TestARoomThatRejects(t *testing.T) {
	st := openWith(t, 10, func(r *room.Settings) { r.QueueingMethod, r.QueueingStatus = room.MethodReject, 429 })
	a := st.door.visitor().get(saleURL)
	if a.StatusCode != 429 || !strings.Contains(a.body, "The line is closed") || a.Header["Set-Cookie"] != nil ||
		len(a.Header.Get("Retry-After")) != 2 || a.Header.Get("Retry-After") < "60" ||
		a.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%d %v %q", a.StatusCode, a.Header, a.body)
	}
	a = st.door.visitor().get(saleURL, "Accept", "application/json")
	for _, says := range []string{
		`"queueIsFull":true`, `"isRejectQueue":true`, `"queueingMethod":"reject"`,
		`"state":"closed"`,
	} {
		if !strings.Contains(a.body, says) {
			t.Errorf("no %s in %s", says, a.body)
		}
	}
	l := st.door.visitor().listen(streamURL)
	l.until("the room is closed", func(_ string, fields map[string]any) bool { return fields["closed"] == true })
	st.door.visitor().get(saleURL, "Cookie", st.keys.seal("sale", session(7))).enters(t, "who is inside")
	st.change(2, func(r *room.Settings) { r.QueueingMethod, r.QueueAll = room.MethodReject, true })
	v := st.door.visitor()
	a = v.get(saleURL, "Accept", "application/json")
	for _, says := range []string{
		`"queueIsFull":false`, `"queueAll":true`, `"waitTimeKnown":false`, `"state":"paused"`,
		`"pausedBy":"operator"`,
	} {
		if !strings.Contains(a.body, says) {
			t.Errorf("all are queued: no %s in %s", says, a.body)
		}
	}
	st.change(3, func(r *room.Settings) { r.QueueingMethod = room.MethodPassthrough })
	st.up.grant(sale, 10, 10)
	testkit.Eventually(t, "who waited enters", func() bool { return v.get(saleURL).body == "the site" })
}

// TestARoomThatRejectsKeepsPlaces: a visitor of the line is asked back in time, as in a pause, whatever the grace period
// is, and reads that the place is kept.
func TestARoomThatRejectsKeepsPlaces(t *testing.T) {
	for grace, most := range map[time.Duration]int{10 * time.Second: 4, 5 * time.Minute: 25} {
		st := openWith(t, 0, func(r *room.Settings) { r.Grace = grace })
		v := st.door.visitor()
		v.get(saleURL)
		st.change(2, func(r *room.Settings) { r.QueueingMethod, r.Grace = room.MethodReject, grace })
		a := v.get(saleURL)
		if retry, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || retry < 1 || retry > most {
			t.Errorf("grace %v: Retry-After %q", grace, a.Header.Get("Retry-After"))
		}
		if !strings.Contains(a.body, "The organiser has paused the line. Your place is kept.") {
			t.Errorf("grace %v: %s", grace, a.body)
		}
		a = v.get(saleURL, "Accept", "application/json")
		for _, says := range []string{`"isRejectQueue":true`, `"state":"paused"`, `"pausedBy":"operator"`} {
			if !strings.Contains(a.body, says) {
				t.Errorf("grace %v: no %s in %s", grace, says, a.body)
			}
		}
		if a := st.door.visitor().get(saleURL); !strings.Contains(a.body, "The line is closed") ||
			a.Header.Get("Retry-After") < "60" {
			t.Errorf("a newcomer: %v %s", a.Header, a.body)
		}
	}
}

// TestPeopleGatherForAnEvent: before the start every visitor without a session gets a place and a countdown, with any
// method. At the start those visitors enter with their place. A pause hides the countdown, and a suspended event has
// no effect.
func TestPeopleGatherForAnEvent(t *testing.T) {
	st := openWith(t, 10, func(*room.Settings) {})
	now := int64(st.server.gate.Engine.Time())
	event := func(start time.Duration) room.Event {
		return room.Event{
			Name: "launch", Prequeue: now - 3_600_000, Start: now + start.Milliseconds(), End: now + 7_200_000,
			Overrides: room.Overrides{"queueing_method": room.MethodFIFO},
		}
	}
	st.change(2, func(r *room.Settings) {
		r.QueueingMethod, r.Events = room.MethodReject, []room.Event{event(30 * time.Minute)}
	})
	v := st.door.visitor()
	a := v.get(saleURL)
	place := cookieOf(a, ticket.CookieName("sale", false))
	if a.StatusCode != 200 || place == nil || !strings.Contains(a.body, "It has not started yet") ||
		!strings.Contains(a.body, `<dd id=starts>29 min`) && !strings.Contains(a.body, `<dd id=starts>30 min`) {
		t.Fatalf("%d %v %q", a.StatusCode, a.Header, a.body)
	}
	a = v.get(saleURL, "Accept", "application/json")
	for _, says := range []string{
		`"isEventActive":true`, `"isEventPrequeueing":true`, `"timeUntilEventStart":30`,
		`"waitTimeKnown":false`, `"queueAll":false`, `"queueingMethod":"fifo"`, `"shuffleAtEventStart":false`,
		`"state":"before"`, `"startsAt":"`,
	} {
		if !strings.Contains(a.body, says) {
			t.Errorf("no %s in %s", says, a.body)
		}
	}
	st.door.visitor().get(saleURL, "Cookie", st.keys.seal("sale", session(7))).enters(t, "who is inside")
	st.change(3, func(r *room.Settings) { r.QueueAll, r.Events = true, []room.Event{event(30 * time.Minute)} })
	if a := v.get(saleURL, "Accept", "application/json"); !strings.Contains(a.body, `"state":"paused"`) ||
		strings.Contains(a.body, "startsAt") {
		t.Errorf("queue_all: %s", a.body)
	}
	st.hasAdmitted(0)
	st.change(4, func(r *room.Settings) {
		r.QueueingMethod, r.Events = room.MethodReject, []room.Event{event(-time.Minute)}
	})
	st.up.grant(sale, 10, 10)
	testkit.Eventually(t, "who gathered enters", func() bool { return v.get(saleURL).body == "the site" })
	off := event(30 * time.Minute)
	off.Suspended = true
	st.change(5, func(r *room.Settings) { r.Events = []room.Event{off} })
	testkit.Eventually(t, "a newcomer enters", func() bool { return st.door.visitor().get(saleURL).body == "the site" })
}

// TestCookiesAreAsTheRoomSays: the name with its suffix, SameSite and Secure; and the cookie is read again.
func TestCookiesAreAsTheRoomSays(t *testing.T) {
	st := openWith(t, 10, func(*room.Settings) {})
	for i, tc := range []struct {
		change func(*room.Settings)
		name   string
		ends   string
	}{
		{func(r *room.Settings) { r.CookieSuffix = "2026" }, "vestibule-sale.2026", "; HttpOnly; SameSite=Lax"},
		{func(r *room.Settings) { r.CookieSameSite = "strict" }, "vestibule-sale", "; HttpOnly; SameSite=Strict"},
		{func(r *room.Settings) { r.CookieSameSite = "none" }, "vestibule-sale", "; HttpOnly; SameSite=Lax"},
		{
			func(r *room.Settings) { r.CookieSameSite, r.CookieSecure = "none", "always" }, "__Host-vestibule-sale",
			"; HttpOnly; SameSite=None; Secure",
		},
		{
			func(r *room.Settings) { r.CookieSameSite, r.CookiePartitioned = "none", true }, "vestibule-sale",
			"; HttpOnly; SameSite=Lax",
		},
		{
			func(r *room.Settings) { r.CookieSameSite, r.CookieSecure, r.CookiePartitioned = "none", "always", true },
			"__Host-vestibule-sale", "; HttpOnly; SameSite=None; Secure; Partitioned",
		},
	} {
		st.change(uint64(2+i), tc.change)
		before := st.admittedNow()
		a := st.door.visitor().get(saleURL)
		line := a.Header.Get("Set-Cookie")
		if !strings.HasPrefix(line, tc.name+"=") || !strings.HasSuffix(line, tc.ends) {
			t.Errorf("%s: want %s…%s", line, tc.name, tc.ends)
		}
		value, _, _ := strings.Cut(line, ";")
		if b := st.door.visitor().get(saleURL, "Cookie", value); a.body != "the site" || b.body != "the site" ||
			st.admittedNow() != before+1 {
			t.Errorf("%s: %q, then %q, %d admitted", tc.name, a.body, b.body, st.admittedNow()-before)
		}
	}
}

// TestTheHostedCommandPutsOutWhereTheRoomSaysSo.
func TestTheHostedCommandPutsOutWhereTheRoomSaysSo(t *testing.T) {
	st := openWith(t, 10, func(*room.Settings) {})
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/out" {
			w.Header().Set("Cf-Waiting-Room-Command", "revoke")
		}
		io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
	})
	in := []string{"Cookie", st.keys.seal("sale", session(7))}
	st.door.visitor().get("http://sale.example/out", in...)
	if a := st.door.visitor().get(saleURL, in...); a.body != "the site" {
		t.Fatalf("put out, and the room does not say so: %q", a.body)
	}
	st.up.grant(sale, 0, 0)
	st.change(2, func(r *room.Settings) { r.OriginCommands, r.QueueAll = room.CommandRevoke, true })
	st.door.visitor().get("http://sale.example/out", in...)
	st.door.visitor().get(saleURL, in...).stays(t, "who was put out")
}

// TestAPauseIsShown: waiting visitors see the author and the reason of a pause, as text, and enter once it ends. A
// change of the rooms document meanwhile does not end it.
func TestAPauseIsShown(t *testing.T) {
	st := openWith(t, 10, func(*room.Settings) {})
	pause := func(version uint64, c *room.Control) {
		t.Helper()
		data := testkit.Must(room.EncodeControls(&room.Controls{
			Version: version,
			Rooms:   map[string]*room.Control{room.PublicID("sale"): c},
		}))(t)
		st.docs.offer(node.ControlsDocument, data)
	}
	paused := func() bool { return st.server.gate.Rooms().ByName("sale").QueueAll }
	pause(5, &room.Control{Pause: &room.Pause{Mark: room.Mark{Since: 1}, Message: "Back <soon> & \"better\"."}})
	testkit.Eventually(t, "the room is paused", paused)
	st.change(2, func(r *room.Settings) { r.QueueMessage = "Hello." })
	v := st.door.visitor()
	a := v.get(saleURL)
	if !strings.Contains(a.body, "The organiser has paused the line.") ||
		!strings.Contains(a.body, "Back &lt;soon&gt; &amp; &#34;better&#34;.") || strings.Contains(a.body, "<soon>") {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	if a := v.get(saleURL, "Accept", "application/json"); !strings.Contains(a.body,
		`"message":"Back \u003csoon\u003e \u0026 \"better\"."`) || !strings.Contains(a.body, `"pausedBy":"operator"`) {
		t.Errorf("%s", a.body)
	}
	pause(6, &room.Control{Message: &room.Message{Mark: room.Mark{Since: 1}, Text: "Go on."}})
	testkit.Eventually(t, "the room is open", func() bool { return !paused() })
	testkit.Eventually(t, "who waited enters", func() bool { return v.get(saleURL).body == "the site" })
}
