package control

import (
	"context"
	"sync"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// Rooms is where rooms are kept: a [roomstore.Store].
type Rooms interface {
	Read(ctx context.Context) (*roomstore.State, error)
	Change(ctx context.Context, edit func(*roomstore.Draft) error) (*roomstore.State, error)
}

// catalog are the rooms as the API knows them: by ids of its own, with their pages.
type catalog struct {
	store  Rooms
	page   func(ctx context.Context, hash string) ([]byte, error) // a waiting page, nil for none
	origin string                                                 // the site of rooms on hosts of which none is known; "": such rooms are refused

	mu    sync.Mutex
	state *roomstore.State
	names map[string]string // of the rooms of state, by id
}

// find returns the room with an id, nil for none. The names of one state are kept.
func (c *catalog) find(state *roomstore.State, id string) *roomstore.Room {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != state {
		c.state, c.names = state, make(map[string]string, len(state.Rooms))
		for _, r := range state.Rooms {
			c.names[room.PublicID(r.Known())] = r.Name
		}
	}
	return state.Room(c.names[id])
}

// look returns a room of a zone as it is now.
func (c *catalog) look(ctx context.Context, zone, id string) (*roomstore.Room, error) {
	if err := checkZone(zone); err != nil {
		return nil, err
	}
	_, r, err := c.read(ctx, id)
	return r, err
}

// read returns the rooms as they are now, and the one with this id.
func (c *catalog) read(ctx context.Context, id string) (*roomstore.State, *roomstore.Room, error) {
	state, err := c.store.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	if r := c.find(state, id); r != nil {
		return state, r, nil
	}
	return nil, nil, errNotFound
}

// draft returns the room with this id that a draft is to change.
func (c *catalog) draft(d *roomstore.Draft, id string) (*roomstore.Room, error) {
	if r := c.find(d.Base(), id); r != nil {
		return r, nil
	}
	return nil, errNotFound
}

// siteOf returns what is behind a host: what its entry says, or all of its rooms, or where
// nothing is known of it the site of such hosts; "" for neither.
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

// after returns the room called name as a change left it.
func after(state *roomstore.State, name string, err error) (*roomstore.Room, error) {
	if err != nil {
		return nil, between(err)
	}
	if r := state.Room(name); r != nil {
		return r, nil
	}
	return nil, errNotFound
}

// between makes a refusal of what is wrong between rooms.
func between(err error) error {
	var f faults
	if list, ok := asFaults(err); ok {
		for _, r := range list {
			f.rule(r, true)
		}
		return invalid(f)
	}
	return err
}

const perPage = 100

// paged returns which of so many entries a page has: none past the last one.
func paged(total int, page, per *int) (from, to int, info api.ResultInfo, err error) {
	info = api.ResultInfo{Page: 1, PerPage: perPage, TotalCount: total}
	var f faults
	if page != nil {
		info.Page = *page
	}
	if per != nil {
		info.PerPage = *per
	}
	if info.Page < 1 {
		f.add("/page", "page must be at least 1, got %d", info.Page)
	}
	if info.PerPage < 1 || info.PerPage > 1000 {
		f.add("/per_page", "per_page must be 1 to 1000, got %d", info.PerPage)
	}
	if len(f) > 0 {
		return 0, 0, info, invalid(f)
	}
	info.TotalPages = (total + info.PerPage - 1) / info.PerPage
	from = total
	if info.Page <= info.TotalPages {
		from = (info.Page - 1) * info.PerPage
	}
	to = min(total, from+info.PerPage)
	info.Count = to - from
	return from, to, info, nil
}
