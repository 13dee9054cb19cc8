package edge

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
)

// Nothing that a visitor sends can open a room (rule 10 of the hard limit): only a ticket of this room and epoch
// counts. TestAPanicIsOneRequestsAlone checks that a panic admits nobody.
func TestRule10NothingAVisitorSendsOpensARoom(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	now := fleettime.TimeOf(time.Now())
	sealed := func(id room.ID, t ticket.Ticket) string {
		codec := testkit.Must(ticket.NewCodec(st.keys.ring, id, ticket.CookieName("sale", false)))(st.t)
		return string(codec.Seal(nil, now, &t, ticket.NewScratch([32]byte{1})))
	}
	good := sealed(sale, session(7))
	altered := []byte(good)
	altered[40] ^= 1
	void := session(8)
	void.Epoch++
	for what, value := range map[string]string{
		"text":                              "admin",
		"a ticket, altered":                 string(altered),
		"a ticket of another room":          sealed(vip, session(7)),
		"a ticket of an epoch that is over": sealed(sale, void),
	} {
		a := st.door.visitor().get("http://sale.example/", "Cookie", "vestibule-sale="+value)
		if a.StatusCode != http.StatusOK || !strings.Contains(a.body, "You are in line") {
			t.Errorf("%s: %d %.40q", what, a.StatusCode, a.body)
		}
	}
	st.origin.untouched()
	st.door.visitor().get("http://sale.example/", "Cookie", "vestibule-sale="+good).enters(t, "a good ticket")
}

// TestANetworkAddsSoManyToTheLine: further visitors of one neighbourhood of addresses
// keep their places and are not counted; others are.
func TestANetworkAddsSoManyToTheLine(t *testing.T) {
	st := open(t, func(st *stage) { st.cfg.Proxies, st.cfg.Waiting.Prefix = []string{"127.0.0.1"}, 3 })
	st.up.queue(sale, 10, 1)
	come := func(address string) {
		v := st.door.visitor()
		for range 3 {
			if a := v.get("http://sale.example/", "X-Forwarded-For", address); !strings.Contains(a.body, "You are in line") {
				t.Fatalf("%s: %d %.40q", address, a.StatusCode, a.body)
			}
		}
	}
	for i := range 10 {
		come(fmt.Sprintf("203.0.113.%d", i))
	}
	come("198.51.100.1")
	st.engine(func(now fleettime.Mono, eng *admission.Engine) {
		if n := eng.Ledger(now, sale).Waiting; n != 4 {
			t.Errorf("%d are counted, want 3 of the one network and 1 of the other", n)
		}
	})
}

// TestTicketBinding: a session's ticket is bound to the address that a trusted proxy sends. With the room's setting
// no visitor loses the session by staying at its address.
func TestTicketBinding(t *testing.T) {
	const v4, v6 = "203.0.113.1", "2001:db8:1:200::1"
	for _, tc := range []struct {
		binding, began, shown string
		good                  bool
	}{
		{room.BindingNone, v4, "198.51.100.1", true},
		{room.BindingNetwork, v4, v4, true},
		{room.BindingNetwork, v4, "203.0.113.99", true},
		{room.BindingNetwork, v4, "203.0.114.1", false},
		{room.BindingNetwork, v4, v6, false},
		{room.BindingNetwork, v4, "::ffff:203.0.113.7", true},
		{room.BindingNetwork, v6, "2001:db8:1:2ff::9", true},
		{room.BindingNetwork, v6, "2001:db8:1:300::9", false},
		{room.BindingStrict, v4, v4, true},
		{room.BindingStrict, v4, "203.0.113.2", false},
		{room.BindingStrict, v6, v6, true},
		{room.BindingStrict, v6, "2001:db8:1:200::2", false},
	} {
		name := fmt.Sprintf("%s %s %s", tc.binding, tc.began, tc.shown)
		st := openRooms(t, func(st *stage) { st.cfg.Proxies = []string{"127.0.0.1"} },
			func(d *room.Document) { d.Rooms[0].TicketBinding = tc.binding })
		st.up.grant(sale, 1, 10)
		st.covered(0, sale)
		v := st.door.visitor()
		var first answer
		eventually(t, "the visitor is let in", func() bool {
			first = v.get("http://sale.example/", "X-Forwarded-For", tc.began)
			return first.body == "the site"
		})
		cookie := ticket.CookieName("sale", false)
		pass := ""
		for _, c := range v.Jar.Cookies(first.Request.URL) {
			if c.Name == cookie {
				pass = c.Name + "=" + c.Value
			}
		}
		v.Jar = nil
		for range 3 { // no permit is left, so other visitors wait
			a := v.get("http://sale.example/", "X-Forwarded-For", tc.shown, "Cookie", pass)
			if good := a.body == "the site"; good != tc.good {
				t.Errorf("%s: %d %.40q", name, a.StatusCode, a.body)
			}
			if a := v.get("http://sale.example/", "X-Forwarded-For", tc.began, "Cookie", pass); a.body != "the site" {
				t.Errorf("%s: who stays where the session began: %d %.40q", name, a.StatusCode, a.body)
			}
		}
		if n := metric(t, st, "vestibule_edge_elsewhere_tickets_total", "room", "sale"); (n == 3) == tc.good {
			t.Errorf("%s: %v tickets from elsewhere", name, n)
		}
		testkit.NoError(t, st.stop())
	}
}
