package control

import (
	"context"
	"errors"
	"sync"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/roomstore"
)

// Rooms stores the rooms: a [roomstore.Store].
type Rooms interface {
	Read(ctx context.Context) (*roomstore.State, error)
	Change(ctx context.Context, edit func(*roomstore.Draft) error) (*roomstore.State, error)

	Known() *roomstore.State // the newest rooms that this candidate knows, nil for none
	Seen() time.Time         // when the store last confirmed them
}

// catalog maps between the stored rooms and those of the API, with its ids and pages.
type catalog struct {
	store  Rooms
	known  func(hash string) []byte // a waiting page that is known here, nil for none
	docs   wire.DocumentStore       // with all waiting pages
	origin string                   // of hosts without a known one; "": they are refused
	outage *outage

	mu    sync.Mutex
	state *roomstore.State
	names map[string]string // of the rooms of state, by id
}

// page returns a stored waiting page, nil if there is none of that name.
func (c *catalog) page(ctx context.Context, hash string) ([]byte, error) {
	if page := c.known(hash); page != nil {
		return page, nil
	}
	data, _, err := c.docs.Get(ctx, roomdoc.PageDocument(hash))
	if err != nil || data == nil {
		return nil, err
	}
	return roomdoc.DecodePage(hash, data)
}

// find returns the room with an id, nil for none. It caches the names of one state.
func (c *catalog) find(state *roomstore.State, id string) *roomstore.Room {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != state {
		c.state, c.names = state, make(map[string]string, len(state.Rooms))
		for _, r := range state.Rooms {
			c.names[room.PublicID(r.TicketName())] = r.Name
		}
	}
	return state.Room(c.names[id])
}

// named returns the room with a name or an id, nil for none.
func (c *catalog) named(state *roomstore.State, text string) *roomstore.Room {
	if r := state.Room(text); r != nil {
		return r
	}
	return c.find(state, text)
}

// current returns the rooms: those in the store, or if it does not answer and the request only reads, those that this
// candidate knows.
func (c *catalog) current(ctx context.Context) (state *roomstore.State, err error) {
	age := mayBeOld(ctx)
	if age == nil {
		return c.store.Read(ctx)
	}
	err = c.outage.read(ctx, func(ctx context.Context) error {
		state, err = c.store.Read(ctx)
		return err
	})
	if err == nil {
		return state, nil
	}
	known := c.store.Known()
	if known == nil {
		return nil, err
	}
	age.since(c.store.Seen(), noStore)
	return known, nil
}

// look returns the current room with an id.
func (c *catalog) look(ctx context.Context, id string) (*roomstore.Room, error) {
	_, r, err := c.read(ctx, id)
	return r, err
}

// read returns the current rooms, and the one with this id.
func (c *catalog) read(ctx context.Context, id string) (*roomstore.State, *roomstore.Room, error) {
	state, err := c.current(ctx)
	if err != nil {
		return nil, nil, err
	}
	if r := c.find(state, id); r != nil {
		return state, r, nil
	}
	return nil, nil, errNotFound
}

// draft returns the room of a request in a draft, if it is the one that the request expects.
func (c *catalog) draft(d *roomstore.Draft, q *request) (*roomstore.Room, error) {
	r := c.find(d.Base(), q.room())
	if r == nil {
		return nil, errNotFound
	}
	return r, q.match(r.Revision, "room "+r.Name)
}

// siteOf returns the origin of a host: that of its entry, else that of all of its rooms, else the default origin; ""
// for none.
func (c *catalog) siteOf(state *roomstore.State, host string) string {
	for _, h := range state.Hosts {
		if h.Name == host {
			return h.Origin
		}
	}
	site, known := "", false
	for _, r := range state.Rooms {
		on := r.Host == host
		for _, route := range r.AdditionalRoutes {
			on = on || route.Host == host
		}
		if on && site != "" && r.Origin != site {
			return ""
		}
		if on {
			site, known = r.Origin, true
		}
	}
	if !known {
		return c.origin
	}
	return site
}

// after returns the room called name after a change.
func after(state *roomstore.State, name string, err error) (*roomstore.Room, error) {
	if err != nil {
		return nil, refusalOf(err)
	}
	if r := state.Room(name); r != nil {
		return r, nil
	}
	return nil, errNotFound
}

// refusalOf returns the refusal of a conflict between rooms.
func refusalOf(err error) error {
	var f faults
	if list, ok := asFaults(err); ok {
		for _, r := range list {
			f.rule(r, true)
		}
		return f.err()
	}
	return err
}

func asFaults(err error) (room.Faults, bool) { return errors.AsType[room.Faults](err) }

// settingsOf returns the settings of a room, nil for none.
func settingsOf(r *roomstore.Room) *room.Settings {
	if r == nil {
		return nil
	}
	return &r.Settings
}
