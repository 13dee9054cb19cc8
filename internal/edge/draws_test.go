package edge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// toldDraw is the JSON form of a draw.
type drawAnswer struct {
	Vestibule struct {
		State, Place, Before, Queued string
		PeopleAhead                  int
		Draw                         struct {
			Stage, Commit string
			Receipt       *draw.Receipt
		}
	}
}

// TestADrawIsShown: a visitor sees the commit from the first answer on, then that the draw is being made, then the
// place with a receipt that can be checked. A late visitor learns that it is late. Nobody enters without the record
// of the draw.
func TestADrawIsShown(t *testing.T) {
	st := openWith(t, 10, func(*room.Settings) {})
	now := st.server.gate.Engine.Time()
	event := func(start time.Duration) room.Event {
		return room.Event{
			ID: "25756b2dfe6e378a06b033b670413757", Name: "launch", Prequeue: int64(now.Add(-time.Hour)),
			Start: int64(now.Add(start)), End: int64(now.Add(2 * time.Hour)), Shuffle: true,
		}
	}
	version := uint64(0)
	tell := func(n *draw.Notice) {
		t.Helper()
		version++
		data := testkit.Must(draw.EncodeBoard(&draw.Board{Version: version, Notices: []*draw.Notice{n}}))(t)
		st.docs.offer(node.DrawsDocument, data)
		testkit.Eventually(t, "what is public of the draw is known", func() bool {
			n := st.server.gate.Rooms().ByName("sale").Draw
			return n != nil && (n.Drawn() != nil) == strings.Contains(string(data), `"record"`)
		})
	}
	ask := func(cookie string) (out drawAnswer) {
		t.Helper()
		a := st.door.visitor().get(saleURL, "Cookie", cookie, "Accept", "application/json")
		if a.body == "the site" {
			t.Fatalf("%s was let in", cookie)
		}
		if err := json.Unmarshal([]byte(a.body), &out); err != nil {
			t.Fatalf("%s: %v", a.body, err)
		}
		return out
	}
	waits := func(id uint64, ago time.Duration) string {
		return st.keys.seal("sale", ticket.Ticket{
			ID: id, Joined: now.Add(-ago), Seen: uint32(now.Second()),
			Flags: ticket.Returned, Answer: 1,
		})
	}
	e := event(10 * time.Minute)
	st.change(2, func(r *room.Settings) { r.Events = []room.Event{e} })
	of := func(e room.Event) draw.Event {
		return draw.Event{Room: room.PublicID("sale"), ID: e.ID, Start: fleettime.Time(e.Start), End: fleettime.Time(e.End)}
	}
	tell(draw.Announce(now.Add(-time.Hour), of(e), draw.Secret{1}, draw.BeaconNone))
	a := st.door.visitor().get(saleURL)
	commit := draw.Secret{1}.Commit()
	if shown := fmt.Sprintf("%x", commit); !strings.Contains(a.body, shown) ||
		!strings.Contains(a.body, "gets a place by lot") {
		t.Errorf("the first visitor is not shown the draw: %s", a.body)
	}
	if j := ask(waits(7, time.Minute)).Vestibule; j.State != "before" || j.Draw.Stage != "open" || j.PeopleAhead != -1 ||
		j.Draw.Receipt != nil || j.Before == "" || j.Draw.Commit == "" {
		t.Errorf("before entries close: %+v", j)
	}

	// The event has begun, and the record is not there.
	e = event(-10 * time.Second)
	st.change(3, func(r *room.Settings) { r.Events = []room.Event{e} })
	announced := draw.Announce(now.Add(-time.Hour), of(e), draw.Secret{1}, draw.BeaconNone)
	tell(announced)
	if j := ask(waits(7, time.Minute)).Vestibule; j.State != "before" || j.Draw.Stage != "making" || j.PeopleAhead != -1 {
		t.Errorf("while the draw is made: %+v", j)
	}
	if j := ask(waits(8, 30*time.Second)).Vestibule; j.Draw.Stage != "late" || j.PeopleAhead != -1 ||
		!strings.Contains(j.Before, "behind everyone") {
		t.Errorf("somebody who came late: %+v", j)
	}
	st.hasAdmitted(0)

	// It is published so late that it will not settle in the time that this test has.
	published := testkit.Must(announced.Publish(now.Add(time.Hour), draw.Secret{1}, nil, 2))(t)
	tell(published)
	j := ask(waits(7, time.Minute)).Vestibule
	if j.State != "before" || j.Draw.Stage != "placed" || j.PeopleAhead != -1 || j.Draw.Receipt == nil ||
		j.Draw.Receipt.Ticket != 7 || !strings.Contains(j.Before, "drawn by lot") {
		t.Fatalf("once it is made: %+v", j)
	}
	if err := published.Drawn().Draw().Check(j.Draw.Receipt); err != nil {
		t.Errorf("the receipt %+v: %v", j.Draw.Receipt, err)
	}
	if place := j.Draw.Receipt.Place.UTC().Format(draw.TimeFormat); place != j.Place {
		t.Errorf("the receipt tells %s, and the page stands at %s", place, j.Place)
	}
	if a := st.door.visitor().get(saleURL, "Cookie", waits(7, time.Minute)); !strings.Contains(a.body,
		`&#34;ticket&#34;:&#34;0000000000000007&#34;`) {
		t.Errorf("the page: %s", a.body)
	}
	st.hasAdmitted(0)

	if m, ok := st.server.gate.Message(sale, 0); !ok ||
		!strings.Contains(string(m.Text), fmt.Sprintf(`"drawn":%d`, announced.Closes())) {
		t.Errorf("the stream tells %s", m.Text)
	}

	// Anybody may have the record.
	const path = "http://sale.example/.well-known/vestibule/draw"
	record := st.door.visitor().get(path + "?room=sale")
	if r, err := draw.DecodeRecord([]byte(record.body)); err != nil || record.StatusCode != 200 ||
		record.Header.Get("Access-Control-Allow-Origin") != "*" || len(r.Check(nil)) > 0 ||
		r.Draw().Check(j.Draw.Receipt) != nil {
		t.Errorf("the record: %d %v %s, %v", record.StatusCode, record.Header, record.body, err)
	}
	for _, other := range []string{"", "?room=nobody", "?room=%zz"} {
		st.door.visitor().get(path+other).has(t, 404, "%q", other)
	}

	page := st.door.visitor().get("http://sale.example/.well-known/vestibule/check-draw?room=sale")
	if page.StatusCode != 200 || !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") ||
		!strings.Contains(page.body, "Check a draw") || !strings.Contains(page.Header.Get("Content-Security-Policy"),
		"script-src 'sha256-") {
		t.Errorf("the page that checks it: %d %v", page.StatusCode, page.Header)
	}
	if a := st.door.visitor().get("http://sale.example/.well-known/vestibule/check-draw?room=sale", "Accept-Language",
		"de"); !strings.Contains(a.body, `<html lang="de-DE"`) || !strings.Contains(a.body, "<h1>Verlosung prüfen</h1>") ||
		strings.Contains(a.body, "Check a draw") {
		t.Errorf("the page that checks it, in German: %v %s", a.Header, a.body)
	}
	st.door.visitor().ask("POST", "http://sale.example/.well-known/vestibule/check-draw",
		"").has(t, 405, "a POST to it")

	// It has settled.
	published = testkit.Must(announced.Publish(now.Add(-40*time.Second), draw.Secret{1}, nil, 2))(t)
	version++
	data := testkit.Must(draw.EncodeBoard(&draw.Board{Version: version, Notices: []*draw.Notice{published}}))(t)
	st.docs.offer(node.DrawsDocument, data)
	st.up.grant(sale, 10, 10)
	testkit.Eventually(t, "who was drawn enters",
		func() bool { return st.door.visitor().get(saleURL, "Cookie", waits(7, time.Minute)).body == "the site" })
}
