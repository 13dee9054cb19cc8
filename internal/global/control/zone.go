package control

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
)

// zoneService serves the zone.
type zoneService struct{}

// zoneSettings returns the settings of the zone: only the default is supported.
func zoneSettings(zone string, body json.RawMessage) (a api.ZoneSettingsAnswerJSONResponse, err error) {
	if err := checkZone(zone); err != nil {
		return a, err
	}
	var f faults
	if body != nil {
		on, ok := f.flag("/search_engine_crawler_bypass", f.object("", body)["search_engine_crawler_bypass"])
		if ok && on {
			f.add("/search_engine_crawler_bypass", "search_engine_crawler_bypass is not served yet and must be false")
		}
	}
	if len(f) > 0 {
		return a, invalid(f)
	}
	return api.ZoneSettingsAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}}, nil
}

// WaitingRoomGetZoneSettings implements [api.StrictServerInterface].
func (zoneService) WaitingRoomGetZoneSettings(_ context.Context, q api.WaitingRoomGetZoneSettingsRequestObject) (api.WaitingRoomGetZoneSettingsResponseObject, error) {
	a, err := zoneSettings(q.ZoneId, nil)
	return api.WaitingRoomGetZoneSettings200JSONResponse{ZoneSettingsAnswerJSONResponse: a}, err
}

// WaitingRoomUpdateZoneSettings implements [api.StrictServerInterface].
func (zoneService) WaitingRoomUpdateZoneSettings(_ context.Context, q api.WaitingRoomUpdateZoneSettingsRequestObject) (api.WaitingRoomUpdateZoneSettingsResponseObject, error) {
	a, err := zoneSettings(q.ZoneId, *q.Body)
	return api.WaitingRoomUpdateZoneSettings200JSONResponse{ZoneSettingsAnswerJSONResponse: a}, err
}

// WaitingRoomPatchZoneSettings implements [api.StrictServerInterface].
func (zoneService) WaitingRoomPatchZoneSettings(_ context.Context, q api.WaitingRoomPatchZoneSettingsRequestObject) (api.WaitingRoomPatchZoneSettingsResponseObject, error) {
	a, err := zoneSettings(q.ZoneId, *q.Body)
	return api.WaitingRoomPatchZoneSettings200JSONResponse{ZoneSettingsAnswerJSONResponse: a}, err
}

// statusService serves the state of rooms and of the fleet.
type statusService struct {
	*catalog
	clock
	controls *controls
	numbers  func(ctx context.Context, id room.ID) (n Numbers, ok bool)
	board    func() *draw.Board
	nodes    func() api.Fleet
}

// WaitingRoomGetWaitingRoomStatus implements [api.StrictServerInterface].
func (s *statusService) WaitingRoomGetWaitingRoomStatus(ctx context.Context, q api.WaitingRoomGetWaitingRoomStatusRequestObject) (api.WaitingRoomGetWaitingRoomStatusResponseObject, error) {
	r, err := s.look(ctx, q.ZoneId, q.WaitingRoomId)
	if err != nil {
		return nil, err
	}
	n, ok := s.numbers(ctx, room.IDOf(r.Known()))
	if !ok {
		return nil, refusef(http.StatusServiceUnavailable, codeNotNow, "no global that leads has told numbers of late")
	}
	a := api.StatusAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}}
	a.Result.Status = api.NotQueueing
	if n.Waiting > 0 {
		a.Result.Status = api.Queueing
	}
	a.Result.EstimatedQueuedUsers, a.Result.EstimatedTotalActiveUsers = n.Waiting, n.Active
	if n.Longest > 0 {
		a.Result.MaxEstimatedTimeMinutes = int(math.Ceil(min(n.Longest, float64(1000*time.Hour/time.Second)) / 60))
	}
	on := r.PlanBy(s.board()).At(s.fleet())
	if on.Event != nil {
		a.Result.EventId = on.Event.ID
	}
	if on.Kind == room.Prequeue {
		a.Result.Status = api.EventPrequeueing
	}
	if r.Suspended {
		a.Result.Status, a.Result.EventId = api.Suspended, ""
	}
	a.Result.Vestibule.AsOf, a.Result.Vestibule.Complete, a.Result.Vestibule.BeyondLimit = n.At.UTC(), n.Complete, n.Beyond
	c, _, err := s.controls.read(ctx)
	if err != nil {
		return nil, err
	}
	a.Result.Vestibule.Controls = sayings(c.Rooms[room.PublicID(r.Known())].At(s.fleet()))
	return api.WaitingRoomGetWaitingRoomStatus200JSONResponse{StatusAnswerJSONResponse: a}, nil
}

// GetFleet implements [api.StrictServerInterface].
func (s *statusService) GetFleet(context.Context, api.GetFleetRequestObject) (api.GetFleetResponseObject, error) {
	return api.GetFleet200JSONResponse{FleetAnswerJSONResponse: api.FleetAnswerJSONResponse{
		Success: true, Errors: []api.Note{}, Messages: []api.Note{}, Result: s.nodes(),
	}}, nil
}
