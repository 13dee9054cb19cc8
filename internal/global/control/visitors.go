package control

import (
	"context"
	"sync"

	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/global/control/api"
)

// visitorService finds visitors by the reference number of the waiting page.
type visitorService struct {
	*catalog
	nodes func() api.Fleet
	find  FindFunc
}

// get asks every data centre for sessions with a number. Of those that wait nobody keeps a list.
func (s *visitorService) get(ctx context.Context, q *request) (any, error) {
	number := q.PathValue("number")
	if _, err := ticket.ParseNumber(number); err != nil {
		var f faults
		f.add("/number", "number %v", err)
		return nil, f.err()
	}
	state, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	out := &api.Visitor{Number: number, Sessions: []api.VisitorSession{}, Silent: []string{}}
	who := principal(q.Context())
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, d := range s.nodes().DataCenters {
		asked.Go(func() {
			found, err := s.find(ctx, d.Name, number)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.Silent = append(out.Silent, d.Name)
			}
			for _, f := range found {
				if r := state.Room(f.Room); r != nil && who.mayIn(room.PublicID(r.TicketName()), "get-visitor") {
					out.Sessions = append(out.Sessions, api.VisitorSession{
						Room: f.Room, DataCenter: d.Name, Edge: f.Edge, Until: f.Until,
					})
				}
			}
		})
	}
	asked.Wait()
	return out, nil
}
