package control

import (
	"context"
	"net/http"
	"strings"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// hostService serves the origins of hosts.
type hostService struct{ *catalog }

func (s *hostService) list(ctx context.Context, _ *request) (any, error) {
	state, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	out := []api.Host{}
	for _, h := range state.Hosts {
		out = append(out, api.Host{Name: h.Name, Origin: h.Origin})
	}
	return complete(out), nil
}

func (s *hostService) put(ctx context.Context, q *request) (any, error) {
	var f faults
	site, _ := f.text("/origin", f.object("", q.body, "origin")["origin"])
	if f.n > 0 {
		return nil, f.err()
	}
	entry := room.Document{Hosts: []room.Host{{Name: q.PathValue("host"), Origin: site}}}.WithDefaults().Hosts[0]
	_, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		before := s.siteOf(d.Base(), entry.Name)
		d.PutHost(entry)
		for _, r := range d.Base().Rooms { // rooms that had the host's origin follow it
			if r.Host == entry.Name && r.Origin == before && before != entry.Origin {
				moved := r.Settings
				moved.Origin = entry.Origin
				if err := d.Replace(r.Name, moved); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if list, ok := asFaults(err); ok {
		for _, r := range list[:1] { // the other rooms have the same fault
			pointer := "/origin"
			if r.Field != "origin" {
				pointer = "" // the name is in the path
			}
			f.add(pointer, "%s %s", r.Field, r.Rule)
		}
		err = f.err()
	}
	return api.Host{Name: entry.Name, Origin: entry.Origin}, err
}

func (s *hostService) delete(ctx context.Context, q *request) (any, error) {
	name := strings.ToLower(q.PathValue("host"))
	_, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		if d.DeleteHost(name) {
			return nil
		}
		if d.Base().Document().PassThrough()[name] == "" {
			return errNotFound
		}
		return refusef(http.StatusBadRequest, codeInvalid,
			"host %s has no entry: its rooms name its site, and it is served until they are deleted: invalid data", short(name))
	})
	return deleted(name), refusalOf(err)
}
