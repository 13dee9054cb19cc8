package edge

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// TestIsolationAsTheRoomsSay isolates an edge: the room sale is closed then, vip admits two newcomers, and under cap
// no session is renewed.
func TestIsolationAsTheRoomsSay(t *testing.T) {
	said := &testkit.Log{}
	st := openRooms(t, func(s *stage) {
		s.params.Isolation = 100 * time.Millisecond
		s.log = slog.New(slog.NewTextHandler(said, nil))
	}, func(d *room.Document) {
		d.Rooms[0].OnIsolation, d.Rooms[0].PartitionPolicy = room.IsolationClosed, room.PolicyCap
		d.Rooms[1].OnIsolation, d.Rooms[1].IsolationLimit = room.IsolationOpen, 2
	})
	// old is a session that is due to be renewed.
	old := session(7)
	old.Until -= 200
	renewed := func(name, url string) bool {
		v := st.door.visitor()
		v.Jar = nil
		a := v.get(url, "Cookie", st.keys.seal(name, old))
		if a.body != "the site" {
			t.Errorf("who is inside of %s: %d %.60q", name, a.StatusCode, a.body)
		}
		return cookieOf(a, ticket.CookieName(name, false)) != nil
	}
	const saleURL, vipURL = "http://sale.example/", "http://shop.example/vip"
	eventually(t, "sessions are renewed under a lease",
		func() bool { return renewed("sale", saleURL) && renewed("vip", vipURL) })

	st.up.silence()
	st.bus.down.Store(true)
	st.engine(func(now fleettime.Mono, eng *admission.Engine) { eng.Lapse(now) }) // the lease is an hour
	eventually(t, "the isolation is logged", func() bool { return said.Has("level=WARN msg=\"isolated: without a lease") })
	if !st.server.Status().Isolated || !said.Has("rooms_open=1 rooms_closed=1") {
		t.Errorf("status %+v", st.server.Status().Status)
	}
	a := st.door.visitor().get(saleURL)
	retry, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if a.StatusCode != http.StatusServiceUnavailable || err != nil || retry < 1 ||
		!strings.Contains(a.body, "The line is closed") {
		t.Errorf("closed: %d, Retry-After %q, %.80q", a.StatusCode, a.Header.Get("Retry-After"), a.body)
	}
	for i, want := range []string{"the site", "the site", "You are in line"} {
		v := st.door.visitor()
		if a := v.get(vipURL); !strings.Contains(a.body, want) {
			t.Errorf("newcomer %d of an open room: %d %.80q, want %q", i, a.StatusCode, a.body, want)
		}
		if a := v.get(vipURL); !strings.Contains(a.body, want) {
			t.Errorf("newcomer %d, once more: %d %.80q, want %q", i, a.StatusCode, a.body, want)
		}
	}
	st.counts(2, "vestibule_edge_uncounted_admissions_total", "room", "vip")
	st.counts(1, "vestibule_edge_decisions_total", "reason", admission.Closed.String())
	old.ID++ // not the one that was just renewed
	if renewed("sale", saleURL) {
		t.Error("renewed without a lease under cap")
	}
	if !renewed("vip", vipURL) {
		t.Error("not renewed without a lease under serve")
	}

	st.bus.down.Store(false)
	st.up.mu.Lock()
	st.up.mute = false
	st.up.mu.Unlock()
	st.adopted()
	eventually(t, "the end is logged", func() bool {
		return said.Has("msg=\"no longer isolated\"") &&
			said.Has("let_in_without_permit=2")
	})
}

// A store restored to an older or emptier state changes nothing at an edge, and raises an alarm for the operator: the
// edge stays in the load balancer.
func TestAnOlderStoreIsAnAlarmAndChangesNothing(t *testing.T) {
	st := open(t, nil)
	d := document(st.origin.URL)
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 5, d))
	d.Rooms = d.Rooms[:1]
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 4, d))
	eventually(t, "the alarm", func() bool { return len(st.server.Ready().Alarms) == 1 })
	if r := st.server.Ready(); !r.Ready || len(st.server.Status().Rooms) != 2 {
		t.Errorf("%+v with %d rooms", r, len(st.server.Status().Rooms))
	}
	st.counts(1, "vestibule_document_alarm", "document", node.RoomsDocument)
	d = document(st.origin.URL)
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 6, d))
	eventually(t, "the alarm ends", func() bool { return len(st.server.Ready().Alarms) == 0 })
}

// TestASessionWaitsForItsRenewal: a request of a session that may end before its duration waits until the edge may
// renew it: no other request may come for that long.
func TestASessionWaitsForItsRenewal(t *testing.T) {
	st := open(t, nil)
	life := func(secs uint32) {
		st.up.mu.Lock()
		defer st.up.mu.Unlock()
		st.up.held[sale].Life = secs
		st.up.say()
	}
	was := wire.Life(5 * time.Minute)
	life(0)
	old := session(7)
	old.Until -= 200
	answered := make(chan answer)
	go func() {
		v := st.door.visitor()
		v.Jar = nil
		answered <- v.get("http://sale.example/", "Cookie", st.keys.seal("sale", old))
	}()
	eventually(t, "the ticket is read", func() bool { return metric(t, st, "vestibule_edge_tickets_total", "result", "ok") > 0 })
	life(was)
	if a := <-answered; a.body != "the site" || cookieOf(a, ticket.CookieName("sale", false)) == nil {
		t.Errorf("%d %.60q without a renewed session", a.StatusCode, a.body)
	}
}
