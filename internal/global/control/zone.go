package control

import (
	"context"
	"math"
	"net/http"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
)

// getZone returns the settings of the zone: only the default is supported.
func getZone(context.Context, *request) (any, error) {
	return map[string]bool{"search_engine_crawler_bypass": false}, nil
}

func putZone(ctx context.Context, q *request) (any, error) {
	var f faults
	on, ok := f.flag("/search_engine_crawler_bypass", f.object("", q.body)["search_engine_crawler_bypass"])
	if ok && on {
		f.add("/search_engine_crawler_bypass", "search_engine_crawler_bypass is not served yet and must be false")
	}
	if len(f) > 0 {
		return nil, invalid(f)
	}
	return getZone(ctx, q)
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

func (s *statusService) get(ctx context.Context, q *request) (any, error) {
	r, err := s.look(ctx, q.room())
	if err != nil {
		return nil, err
	}
	n, ok := s.numbers(ctx, room.IDOf(r.Known()))
	if !ok {
		return nil, refusef(http.StatusServiceUnavailable, codeNotNow, "no leading global has published numbers lately")
	}
	out := api.Status{Status: api.NotQueueing, EstimatedQueuedUsers: n.Waiting, EstimatedTotalActiveUsers: n.Active}
	if n.Waiting > 0 {
		out.Status = api.Queueing
	}
	if n.Longest > 0 {
		longest := min(n.Longest, float64(1000*time.Hour/time.Second))
		out.MaxEstimatedTimeMinutes = int(math.Ceil(longest / 60))
	}
	on := r.PlanBy(s.board()).At(s.clock.fleet())
	if on.Event != nil {
		out.EventId = on.Event.ID
	}
	if on.Kind == room.Prequeue {
		out.Status = api.EventPrequeueing
	}
	if r.Suspended {
		out.Status, out.EventId = api.Suspended, ""
	}
	own := &out.Vestibule
	own.AsOf, own.Complete, own.BeyondLimit = n.At.UTC(), n.Complete, n.Beyond
	c, _, err := s.controls.read(ctx)
	if err != nil {
		return nil, err
	}
	own.Controls = controlNames(c.Rooms[room.PublicID(r.Known())].At(s.clock.fleet()))
	return out, nil
}

func (s *statusService) fleet(context.Context, *request) (any, error) { return s.nodes(), nil }
