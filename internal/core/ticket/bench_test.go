package ticket

import "testing"

// BenchmarkOpenSeal measures one cookie in and one out, without the decision between them.
func BenchmarkOpenSeal(b *testing.B) {
	c, s := testCodec(b, testRing(b, 3), "tickets"), scratch(9)
	tk := Ticket{ID: 7, Joined: day, Seen: 1, Admitted: 2, Until: 3}
	value := string(c.Seal(nil, day, &tk, s))
	dst := make([]byte, 0, ValueSize)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Open(&tk, value, s); err != nil {
			b.Fatal(err)
		}
		dst = c.Seal(dst[:0], day, &tk, s)
	}
}
