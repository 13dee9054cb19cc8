package region

import (
	"cmp"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
)

// maxFound bounds the sessions that Find returns.
const maxFound = 100

// Session is a session that this data centre counts.
type Session struct {
	Room  room.ID
	Edge  string         // that stamped its newest ticket
	Until fleettime.Time // unless it is renewed
}

// Find returns the valid sessions with a ticket ID that is wanted, the last to end first.
func (c *centre) Find(now fleettime.Mono, wanted func(id uint64) bool) (out []Session) {
	names := map[edgeNum]string{}
	for _, e := range c.roster.edges {
		names[e.num] = e.name
	}
	second := c.clock.Now(now).Second()
	for _, b := range c.rooms.list {
		for i := range b.ids.slots {
			if e := &b.ids.slots[i]; e.id != 0 && int64(e.until) >= second && wanted(e.id) && len(out) < maxFound {
				out = append(out, Session{b.ID, names[e.edge()], fleettime.Time(int64(e.until) * 1000)})
			}
		}
	}
	slices.SortFunc(out, func(x, y Session) int { return cmp.Compare(y.Until, x.Until) })
	return out
}
