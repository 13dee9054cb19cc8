package control

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"time"

	"vestibule/internal/control/api"
	"vestibule/internal/draw"
	"vestibule/internal/fleet"
)

// GetDraw implements [api.StrictServerInterface].
func (s *Server) GetDraw(_ context.Context, q api.GetDrawRequestObject) (api.GetDrawResponseObject, error) {
	n := s.Board().Latest(q.WaitingRoomId, q.EventId)
	if n == nil {
		return nil, errNotFound
	}
	shown, err := showDraw(n)
	return api.GetDraw200JSONResponse{DrawAnswerJSONResponse: api.DrawAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}, Result: shown}}, err
}

// showDraw returns what is public of a draw as the API shows it.
func showDraw(n *draw.Notice) (out api.Draw, err error) {
	at := func(t fleet.Time) *time.Time {
		if t == 0 || t == draw.Never {
			return nil
		}
		m := moment(int64(t))
		return &m
	}
	out = api.Draw{
		RoomId: n.Room, EventId: n.Event, EventStartTime: moment(int64(n.Start)), ClosesOn: moment(int64(n.Closes())), CommittedOn: at(n.Committed),
		Beacon: n.Beacon, Void: n.Void, PublishedOn: at(n.Published), OpensOn: at(max(n.Start, n.Opens())),
	}
	if n.Committed != 0 {
		out.Commit = hex.EncodeToString(n.Commit[:])
	}
	if n.Drawn() != nil {
		out.Record = &map[string]any{}
		err = json.Unmarshal(n.Record, out.Record)
	}
	return out, err
}
