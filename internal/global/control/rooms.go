package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// roomService serves the rooms themselves.
type roomService struct {
	*catalog
	clock
}

func (s *roomService) list(ctx context.Context, page, per *int) (out []api.Room, info api.ResultInfo, err error) {
	state, err := s.store.Read(ctx)
	if err != nil {
		return nil, info, err
	}
	from, to, info, err := paged(len(state.Rooms), page, per)
	if err != nil {
		return nil, info, err
	}
	out = []api.Room{}
	for _, r := range state.Rooms[from:to] {
		shown, err := s.show(ctx, r)
		if err != nil {
			return nil, info, err
		}
		out = append(out, shown)
	}
	return out, info, nil
}

// WaitingRoomListWaitingRooms implements [api.StrictServerInterface].
func (s *roomService) WaitingRoomListWaitingRooms(ctx context.Context, q api.WaitingRoomListWaitingRoomsRequestObject) (api.WaitingRoomListWaitingRoomsResponseObject, error) {
	if err := checkZone(q.ZoneId); err != nil {
		return nil, err
	}
	rooms, info, err := s.list(ctx, q.Params.Page, q.Params.PerPage)
	return api.WaitingRoomListWaitingRooms200JSONResponse{RoomsAnswerJSONResponse: roomsAnswer(rooms, info)}, err
}

// WaitingRoomListWaitingRoomsAccount implements [api.StrictServerInterface].
func (s *roomService) WaitingRoomListWaitingRoomsAccount(ctx context.Context, q api.WaitingRoomListWaitingRoomsAccountRequestObject) (api.WaitingRoomListWaitingRoomsAccountResponseObject, error) {
	if q.AccountId != Account {
		return nil, refusef(http.StatusNotFound, codeNoRoute, "no such account: %s; there is %s", short(q.AccountId), Account)
	}
	rooms, info, err := s.list(ctx, q.Params.Page, q.Params.PerPage)
	return api.WaitingRoomListWaitingRoomsAccount200JSONResponse{RoomsAnswerJSONResponse: roomsAnswer(rooms, info)}, err
}

func roomsAnswer(rooms []api.Room, info api.ResultInfo) api.RoomsAnswerJSONResponse {
	return api.RoomsAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}, Result: rooms, ResultInfo: info}
}

func (s *roomService) answer(ctx context.Context, r *roomstore.Room) (a api.RoomAnswerJSONResponse, err error) {
	shown, err := s.show(ctx, r)
	return api.RoomAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}, Result: shown}, err
}

// WaitingRoomWaitingRoomDetails implements [api.StrictServerInterface].
func (s *roomService) WaitingRoomWaitingRoomDetails(ctx context.Context, q api.WaitingRoomWaitingRoomDetailsRequestObject) (api.WaitingRoomWaitingRoomDetailsResponseObject, error) {
	r, err := s.look(ctx, q.ZoneId, q.WaitingRoomId)
	if err != nil {
		return nil, err
	}
	a, err := s.answer(ctx, r)
	return api.WaitingRoomWaitingRoomDetails200JSONResponse{RoomAnswerJSONResponse: a}, err
}

// WaitingRoomCreateWaitingRoom implements [api.StrictServerInterface].
func (s *roomService) WaitingRoomCreateWaitingRoom(ctx context.Context, q api.WaitingRoomCreateWaitingRoomRequestObject) (api.WaitingRoomCreateWaitingRoomResponseObject, error) {
	if err := checkZone(q.ZoneId); err != nil {
		return nil, err
	}
	spare, name := "room-"+strings.ToLower(rand.Text()), ""
	state, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		g := readRoom(*q.Body, room.Settings{})
		if d.Room(g.settings.Name) != nil && !g.bad["name"] {
			g.faults.add("/name", "name is the name of another room already")
			g.bad["name"] = true
		}
		// A renamed room may still have this id.
		if s.find(d.Base(), room.PublicID(g.settings.Name)) != nil && !g.bad["name"] {
			g.settings.Identity = spare
		}
		settings, err := s.settle(d, g)
		if name = settings.Name; err != nil {
			return err
		}
		d.Put(settings)
		return nil
	})
	a, err := s.changed(ctx, state, name, err)
	return api.WaitingRoomCreateWaitingRoom200JSONResponse{RoomAnswerJSONResponse: a}, err
}

// changed returns the answer to a change of the room called name.
func (s *roomService) changed(ctx context.Context, state *roomstore.State, name string, err error) (a api.RoomAnswerJSONResponse, _ error) {
	r, err := after(state, name, err)
	if err != nil {
		return a, err
	}
	return s.answer(ctx, r)
}

// WaitingRoomUpdateWaitingRoom implements [api.StrictServerInterface].
func (s *roomService) WaitingRoomUpdateWaitingRoom(ctx context.Context, q api.WaitingRoomUpdateWaitingRoomRequestObject) (api.WaitingRoomUpdateWaitingRoomResponseObject, error) {
	a, err := s.update(ctx, q.ZoneId, q.WaitingRoomId, *q.Body, true)
	return api.WaitingRoomUpdateWaitingRoom200JSONResponse{RoomAnswerJSONResponse: a}, err
}

// WaitingRoomPatchWaitingRoom implements [api.StrictServerInterface].
func (s *roomService) WaitingRoomPatchWaitingRoom(ctx context.Context, q api.WaitingRoomPatchWaitingRoomRequestObject) (api.WaitingRoomPatchWaitingRoomResponseObject, error) {
	a, err := s.update(ctx, q.ZoneId, q.WaitingRoomId, *q.Body, false)
	return api.WaitingRoomPatchWaitingRoom200JSONResponse{RoomAnswerJSONResponse: a}, err
}

// update changes a room. With whole set, missing fields go back to their defaults.
func (s *roomService) update(ctx context.Context, zone, id string, body json.RawMessage, whole bool) (a api.RoomAnswerJSONResponse, err error) {
	if err := checkZone(zone); err != nil {
		return a, err
	}
	name := ""
	state, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		r, err := s.draft(d, id)
		if err != nil {
			return err
		}
		over := r.Settings
		if whole {
			over = blank(over)
		}
		g := readRoom(body, over)
		if whole && !g.session {
			g.settings.SessionDuration = 0
		}
		if !g.origin && g.settings.Host != r.Host {
			if site := s.siteOf(d.Base(), g.settings.WithDefaults().Host); site != "" {
				g.settings.Origin = site
			}
		}
		settings, err := s.settle(d, g)
		if name = settings.Name; err != nil {
			return err
		}
		if name != r.Name && d.Room(name) != nil {
			var f faults
			f.add("/name", "name is the name of another room already")
			return invalid(f)
		}
		return d.Replace(r.Name, settings)
	})
	return s.changed(ctx, state, name, err)
}

// blank returns a room without the fields of the hosted product's clients: the base of a PUT.
func blank(s room.Settings) room.Settings {
	s.Name, s.Host, s.Path, s.AdditionalRoutes = "", "", "", nil
	s.TotalActiveUsers, s.NewUsersPerMinute, s.QueueingStatus = 0, 0, 0
	s.DefaultLanguage, s.WaitingPage = "", ""
	s.Description, s.QueueingMethod, s.QueueAll, s.Suspended, s.NoRenewal = "", "", false, false, false
	s.CookieSuffix, s.CookieSameSite, s.CookieSecure, s.JSONResponse, s.OriginCommands = "", "", "", false, ""
	return s
}

// WaitingRoomDeleteWaitingRoom implements [api.StrictServerInterface].
func (s *roomService) WaitingRoomDeleteWaitingRoom(ctx context.Context, q api.WaitingRoomDeleteWaitingRoomRequestObject) (api.WaitingRoomDeleteWaitingRoomResponseObject, error) {
	if err := checkZone(q.ZoneId); err != nil {
		return nil, err
	}
	_, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		r := s.find(d.Base(), q.WaitingRoomId)
		if r == nil {
			return errNotFound
		}
		return d.Delete(r.Name)
	})
	return api.WaitingRoomDeleteWaitingRoom200JSONResponse{DeletedAnswerJSONResponse: deleted(q.WaitingRoomId)}, err
}

func deleted(id string) api.DeletedAnswerJSONResponse {
	a := api.DeletedAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}}
	a.Result.Id = id
	return a
}

// settle returns the given settings with the origin of their host, or all of their faults.
func (s *roomService) settle(d *roomstore.Draft, g *given) (room.Settings, error) {
	r := g.settings.WithDefaults()
	if r.Origin == "" && !g.bad["origin"] {
		r.Origin = s.siteOf(d.Base(), r.Host)
		g.bad["origin"] = r.Origin == ""
		if r.Origin == "" && !g.bad["host"] {
			g.faults.add("/host", "host: no site is known for %q: say which with PUT %s/vestibule/hosts/HOST, or in vestibule.origin", short(r.Host), Prefix)
		}
	}
	if g.settings = r; len(g.page) > 0 {
		d.AddPage("custom_page_html", g.page)
	}
	g.judge()
	if len(g.faults) > 0 {
		return r, invalid(g.faults)
	}
	return r, nil
}
