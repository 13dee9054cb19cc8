package global

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// BenchmarkLook prints the cost of looking at all rooms for notices, once a second while there is a webhook.
func BenchmarkLook(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n, " rooms"), func(b *testing.B) {
			log := slog.New(slog.DiscardHandler)
			f := testkit.Must(node.NewFleet(b.TempDir(), newMemoryStore(), log, prometheus.NewRegistry(), func() {}))(b)
			var d room.Document
			for i := range n {
				d.Rooms = append(d.Rooms, room.Settings{
					Name: fmt.Sprint("r", i), Host: fmt.Sprintf("h%d.example", i), Origin: "http://10.0.0.1", TotalActiveUsers: 10,
					NewUsersPerMinute: 60,
				})
			}
			data := testkit.Must(roomdoc.EncodeRooms(1, d))(b)
			if f.Offer(b.Context(), node.RoomsDocument, data); len(f.Set().Rooms()) != n {
				b.Fatal(f.Alarm(node.RoomsDocument))
			}
			clock := node.NewClock()
			s := &Server{currentTerm: currentTerm{mono: clock, fleet: f}}
			s.Clock = clock
			now := s.Clock.Now()
			l := &leadership{
				s:     s,
				alloc: root.New(now, root.Config{Term: wire.Term{N: 1}, Centres: []string{"a", "b"}, Params: wire.DefaultParams()}),
			}
			l.alloc.SetRooms(now, node.LedgerRooms(f.Set()))
			l.alloc.SetTime(now, fleettime.TimeOf(time.Now()))
			for b.Loop() {
				if len(l.look().Rooms) != n {
					b.Fatal("rooms are missing")
				}
			}
		})
	}
}
