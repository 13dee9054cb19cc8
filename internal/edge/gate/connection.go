package gate

import (
	"sync"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
)

// Connection is a long connection of a visitor, such as a websocket: it lasts as long as the sessions that admitted
// it. It is safe for concurrent use, also after the end of its outcome.
type Connection struct {
	gate *Gate

	mu    sync.Mutex
	stays []Stay
	next  fleettime.Mono // the earliest next renewal
}

// activeEvery is the shortest time between two renewals by one connection.
const activeEvery = time.Second

// Connection returns the connection of a request that enters, nil without a session.
func (o *Outcome) Connection() *Connection {
	if len(o.inside) == 0 {
		return nil
	}
	return &Connection{gate: o.gate, stays: append([]Stay(nil), o.inside...)}
}

// Left returns the rest of the shortest session, in fleet time.
func (c *Connection) Left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	until := c.stays[0].Ticket.Until
	for i := range c.stays {
		until = min(until, c.stays[i].Ticket.Until)
	}
	return fleettime.Time(int64(until) * 1000).Sub(c.gate.Engine.now())
}

// Active tells that the visitor has sent data. It renews the sessions of rooms with long_connections: renew, as a
// request would. The visitor gets no ticket; its next request at this edge is inside with the old one.
func (c *Connection) Active() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.gate.Engine.clock.Now()
	if now < c.next {
		return
	}
	c.next = now.Add(activeEvery)
	rooms := c.gate.Rooms()
	c.gate.Engine.withWake(func(now fleettime.Mono, eng *admission.Engine) {
		for i := range c.stays {
			if r := rooms.ByID(c.stays[i].Room); r != nil && r.LongConnections == room.LongRenew {
				c.stays[i].Ticket = eng.Live(now, r.ID, c.stays[i].Ticket)
			}
		}
	})
}
