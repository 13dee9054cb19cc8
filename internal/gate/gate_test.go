package gate

import (
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/admission"
	"vestibule/internal/fleet"
	"vestibule/internal/live"
	"vestibule/internal/node"
	"vestibule/internal/room"
	"vestibule/internal/ticket"
	"vestibule/internal/wire"
)

// Beyond so many busy rooms the rest are counted together, also once they went.
func TestSeriesAreBounded(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	for i := range node.MaxRoomSeries + 10 {
		m.room(fmt.Sprint("r", i)).count(&admission.Decision{Verdict: admission.Serve, Reason: admission.Session})
	}
	all := m.counted()
	if n := len(all); n != node.MaxRoomSeries+1 {
		t.Errorf("%d labels", n)
	}
	if n := m.other.decisions[admission.Serve][admission.Session].Load(); n != 10 {
		t.Errorf("%d requests of other rooms", n)
	}
	late := m.room("r0")
	m.keep(nil)
	late.count(&admission.Decision{Verdict: admission.Serve, Reason: admission.Session}) // a request that was in flight
	if n := len(m.counted()); n != 1 || m.other.decisions[admission.Serve][admission.Session].Load() != 10 {
		t.Errorf("%d labels once all rooms went", n)
	}
}

// TestASlowAnswerBringsALateTicket: the browser may have gone on with newer ones.
func TestASlowAnswerBringsALateTicket(t *testing.T) {
	g, err := New(Options{
		Engine:        admission.Config{Edge: "edge-1", DC: "nairobi", Params: wire.DefaultParams(), Rand: rand.New(rand.NewPCG(1, 2))},
		HeldPerPrefix: 1, Clock: node.NewClock(), Wake: func() {}, Finish: func(live.Place) {}, Reg: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ring, err := ticket.Keyring{}.Rotate(fleet.TimeOf(time.Now().Add(-time.Hour)), 24*time.Hour, crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, name := room.IDOf("sale"), ticket.CookieName("sale", false)
	codec, err := ticket.NewCodec(ring, id, name)
	if err != nil {
		t.Fatal(err)
	}
	rm := &roomState{Room: &room.Room{Settings: room.Settings{Name: "sale"}, ID: id}, cookie: [2]string{name}, codec: [2]*ticket.Codec{codec}}
	for _, late := range []bool{false, true} {
		o := g.Begin()
		o.Kind = Enters
		o.seal(rm, g.now(), ticket.Ticket{ID: 7, Admitted: 1, Until: 1 << 31, Stamp: 5, Parent: 4, Root: 3}, true)
		if late {
			o.asked = o.asked.Add(-inFlight - time.Second)
		}
		fields := o.Tickets()
		value, _, _ := strings.Cut(strings.TrimPrefix(fields[0].Value, name+"="), ";")
		var got ticket.Ticket
		if err := codec.Open(&got, value, ticket.NewScratch([32]byte{1})); err != nil {
			t.Fatal(err)
		}
		if late != (got.Parent == 0 && got.Root == 0) || got.ID != 7 || got.Stamp != 5 {
			t.Errorf("late %v: %+v", late, got)
		}
		if len(fields) != 2 || fields[1] != (Field{TicketHeader, "sale=" + value}) {
			t.Errorf("late %v: %q", late, fields)
		}
		o.End()
	}
}
