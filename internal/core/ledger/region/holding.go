package region

import (
	"vestibule/internal/core/wire"
)

// holding is what global has lent a data centre of a room, and what of it went back.
//
// Invariant: within a generation the counters only grow; granted is written by global alone,
// returned here alone.
type holding struct {
	gen                       uint64 // raised by global when it voids the books
	reconstructed             bool   // the numbers below are an upper bound; see books.reconstruct
	granted, returned         uint64 // T: from global, back to global
	rateGranted, rateReturned uint64 // R
	keep, rateKeep            uint64 // idle rights that global lets the data centre keep
}

// held returns the rights of T in the data centre, rateHeld those of R.
func (h *holding) held() int64 { return int64(h.granted) - int64(h.returned) }

func (h *holding) rateHeld() int64 { return int64(h.rateGranted) - int64(h.rateReturned) }

// giveBack returns so many rights of T and of R to global; none where that is not positive. It
// reports whether there are any.
func (h *holding) giveBack(t, rate int64) bool {
	h.returned += uint64(max(0, t))
	h.rateReturned += uint64(max(0, rate))
	return t > 0 || rate > 0
}

// apply takes what global lends, of a generation that is not older. It reports whether global is
// to hear that we know, and whether somebody else wants what lies idle here.
func (h *holding) apply(g *wire.RoomGrant) (news, wanted bool) {
	if news = g.Gen > h.gen; news {
		// Global has given our rights to others, long after it had last heard
		// of us. Sessions that still exist are more than we hold now; nothing
		// is granted until they have gone.
		h.reconstructed, h.gen = false, g.Gen
		h.granted, h.returned, h.rateGranted, h.rateReturned = 0, 0, 0, 0
	}
	news = news || (h.reconstructed && g.Confirmed) || g.Granted > h.granted || g.RateGranted > h.rateGranted
	h.reconstructed = h.reconstructed && !g.Confirmed
	h.granted, h.rateGranted = max(h.granted, g.Granted), max(h.rateGranted, g.RateGranted)
	wanted = g.Keep < h.keep || g.RateKeep < h.rateKeep
	h.keep, h.rateKeep = g.Keep, g.RateKeep
	return news, wanted
}
