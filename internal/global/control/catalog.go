package control

import (
	"context"
	"errors"

	"vestibule/internal/core/room"
	"vestibule/internal/global/roomstore"
)

// find returns the room with an id, nil for none. It caches the names of one state.
func (s *Server) find(state *roomstore.State, id string) *roomstore.Room {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != state {
		s.state, s.names = state, make(map[string]string, len(state.Rooms))
		for _, r := range state.Rooms {
			s.names[room.PublicID(r.TicketName())] = r.Name
		}
	}
	return state.Room(s.names[id])
}

// named returns the room with a name or an id, nil for none.
func (s *Server) named(state *roomstore.State, text string) *roomstore.Room {
	if r := state.Room(text); r != nil {
		return r
	}
	return s.find(state, text)
}

// current returns the rooms: those in the store, or if it does not answer and the request only reads, those that this
// candidate knows.
func (s *Server) current(ctx context.Context) (state *roomstore.State, err error) {
	age := mayBeOld(ctx)
	if age == nil {
		return s.Rooms.Read(ctx)
	}
	err = s.outage.read(ctx, func(ctx context.Context) error {
		state, err = s.Rooms.Read(ctx)
		return err
	})
	if err == nil {
		return state, nil
	}
	known := s.Rooms.Known()
	if known == nil {
		return nil, err
	}
	age.since(s.Rooms.Seen(), noStore)
	return known, nil
}

// look returns the current room with an id.
func (s *Server) look(ctx context.Context, id string) (*roomstore.Room, error) {
	_, r, err := s.read(ctx, id)
	return r, err
}

// read returns the current rooms, and the one with this id.
func (s *Server) read(ctx context.Context, id string) (*roomstore.State, *roomstore.Room, error) {
	state, err := s.current(ctx)
	if err != nil {
		return nil, nil, err
	}
	if r := s.find(state, id); r != nil {
		return state, r, nil
	}
	return nil, nil, errNotFound
}

// draft returns the room of a request in a draft, if it is the one that the request expects.
func (s *Server) draft(d *roomstore.Draft, q *request) (*roomstore.Room, error) {
	r := s.find(d.Base(), q.room())
	if r == nil {
		return nil, errNotFound
	}
	return r, q.match(r.Revision, "room "+r.Name)
}

// siteOf returns the origin of a host: that of its entry, else that of all of its rooms, else the default origin; ""
// for none.
func (s *Server) siteOf(state *roomstore.State, host string) string {
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
		return s.Origin
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
