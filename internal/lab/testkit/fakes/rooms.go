// Package fakes has stores in memory and made-up rooms for the tests of several packages.
package fakes

import (
	"fmt"
	"math/rand/v2"

	"vestibule/internal/core/room"
)

// Rooms returns n realistic rooms, always the same, with hosts that do not compress well.
func Rooms(n int) room.Document {
	rng := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[rng.IntN(36)]
		}
		return string(b)
	}
	var d room.Document
	for i := range n {
		d.Rooms = append(d.Rooms, room.Settings{
			Name: fmt.Sprintf("shop-%d-%s", i, text(6)), Host: text(12) + "." + text(8) + ".example",
			Path:             "/" + text(5) + "/tickets",
			TotalActiveUsers: 1 + rng.IntN(100_000), NewUsersPerMinute: 1 + rng.IntN(10_000),
			Origin: fmt.Sprintf("http://10.%d.%d.%d:8080", rng.IntN(200), rng.IntN(200), rng.IntN(200)),
		}.WithDefaults())
	}
	return d
}
