package edge

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"vestibule/internal/admission"
	"vestibule/internal/fleet"
	"vestibule/internal/room"
	"vestibule/internal/ticket"
)

// Nothing that a visitor sends can open a room (rule 10 of the hard limit): what
// is not a ticket of this room and epoch is no ticket. That a panic is no pass
// either is TestAPanicIsOneRequestsAlone.
func TestRule10NothingAVisitorSendsOpensARoom(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	now := fleet.TimeOf(time.Now())
	sealed := func(id room.ID, t ticket.Ticket) string {
		codec, err := ticket.NewCodec(st.ring, id, ticket.CookieName("sale", false))
		if err != nil {
			st.t.Fatal(err)
		}
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
		a := st.visitor().get("http://sale.example/", "Cookie", "vestibule-sale="+value)
		if a.StatusCode != http.StatusOK || !strings.Contains(a.body, "You are in line") {
			t.Errorf("%s: %d %.40q", what, a.StatusCode, a.body)
		}
	}
	if n := st.origin.requests(); n > 0 {
		t.Errorf("%d of them reached the origin", n)
	}
	if a := st.visitor().get("http://sale.example/", "Cookie", "vestibule-sale="+good); a.body != "the site" {
		t.Errorf("a good ticket: %d %.40q", a.StatusCode, a.body)
	}
}

// TestANetworkAddsSoManyToTheLine: further visitors of one neighbourhood of addresses
// keep their places and are not counted; others are.
func TestANetworkAddsSoManyToTheLine(t *testing.T) {
	st := open(t, func(st *stage) { st.cfg.Proxies, st.cfg.Waiting.Prefix = []string{"127.0.0.1"}, 3 })
	st.up.queue(sale, 10, 1)
	come := func(address string) {
		v := st.visitor()
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
	st.engine(func(now fleet.Mono, eng *admission.Engine) {
		if n := eng.Ledger(now, sale).Waiting; n != 4 {
			t.Errorf("%d are counted, want 3 of the one network and 1 of the other", n)
		}
	})
}
