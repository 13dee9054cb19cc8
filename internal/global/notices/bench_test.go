package notices

import (
	"fmt"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

// BenchmarkStep prints the cost of one second of 10,000 rooms, a tenth of which queue, and of their document.
func BenchmarkStep(b *testing.B) {
	w, seen := &Watch{}, &Seen{}
	for i := range 10_000 {
		r := quietRoom()
		r.ID = room.PublicID(fmt.Sprint(i))
		if i%10 == 0 {
			r.Waiting = i
		}
		seen.Rooms = append(seen.Rooms, r)
	}
	b.Run("step", func(b *testing.B) {
		for i := range b.N {
			w.Step(at(float64(i)), seen)
		}
	})
	b.Run("encode", func(b *testing.B) {
		d := &document{Watch: *w}
		for range b.N {
			data := testkit.Must(d.encode())(b)
			b.ReportMetric(float64(len(data)), "bytes")
		}
	})
}
