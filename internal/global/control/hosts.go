package control

import (
	"context"
	"strings"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// hostService serves the origins of hosts.
type hostService struct{ *catalog }

// ListHosts implements [api.StrictServerInterface].
func (s *hostService) ListHosts(ctx context.Context, _ api.ListHostsRequestObject) (api.ListHostsResponseObject, error) {
	state, err := s.store.Read(ctx)
	if err != nil {
		return nil, err
	}
	out := []api.Host{}
	for _, h := range state.Hosts {
		out = append(out, api.Host{Name: h.Name, Origin: h.Origin})
	}
	info := api.ResultInfo{Page: 1, PerPage: len(out), Count: len(out), TotalCount: len(out), TotalPages: 1}
	return api.ListHosts200JSONResponse{HostsAnswerJSONResponse: api.HostsAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}, Result: out, ResultInfo: info}}, nil
}

// PutHost implements [api.StrictServerInterface].
func (s *hostService) PutHost(ctx context.Context, q api.PutHostRequestObject) (api.PutHostResponseObject, error) {
	var f faults
	m := f.object("", *q.Body)
	site, _ := f.text("/origin", m["origin"])
	if len(f) > 0 {
		return nil, invalid(f)
	}
	entry := room.Document{Hosts: []room.Host{{Name: q.Host, Origin: site}}}.WithDefaults().Hosts[0]
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
		err = invalid(f)
	}
	a := api.HostAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}}
	a.Result = api.Host{Name: entry.Name, Origin: entry.Origin}
	return api.PutHost200JSONResponse{HostAnswerJSONResponse: a}, err
}

// DeleteHost implements [api.StrictServerInterface].
func (s *hostService) DeleteHost(ctx context.Context, q api.DeleteHostRequestObject) (api.DeleteHostResponseObject, error) {
	name := strings.ToLower(q.Host)
	_, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		if !d.DeleteHost(name) {
			return errNotFound
		}
		return nil
	})
	return api.DeleteHost200JSONResponse{DeletedAnswerJSONResponse: deleted(name)}, between(err)
}
