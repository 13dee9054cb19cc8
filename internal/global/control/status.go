package control

import (
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/page"
)

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
	r, c, err := s.controls.look(ctx, q.room())
	if err != nil {
		return nil, err
	}
	return s.show(ctx, r, c)
}

// list shows the state of all rooms, or of those that the query names.
func (s *statusService) list(ctx context.Context, q *request) (any, error) {
	state, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	who := principal(q.Context())
	rooms := who.only(state.Rooms)
	if names := q.URL.Query()["room"]; len(names) > 0 {
		if rooms, err = s.named(who, state, names); err != nil {
			return nil, err
		}
	}
	c, err := s.controls.current(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]*api.Status, len(rooms))
	for i, r := range rooms {
		if out[i], err = s.show(ctx, r, c); err != nil {
			return nil, err
		}
	}
	return complete(out), nil
}

// named returns the rooms of names or IDs, or all that the principal has not.
func (s *statusService) named(
	who Principal, state *roomstore.State, names []string,
) (rooms []*roomstore.Room, err error) {
	missing := &RefusalError{Status: http.StatusNotFound}
	for _, name := range names {
		r := s.catalog.named(state, name)
		if r != nil && !who.mayIn(room.PublicID(r.TicketName()), "list-status") {
			r = nil
		}
		if rooms = append(rooms, r); r == nil {
			var known []string
			for _, r := range who.only(state.Rooms) {
				known = append(known, r.Name)
			}
			missing.Notes = append(missing.Notes,
				refusef(0, codeNotFound, "no room %q%s", short(name), room.Meant(name, known)).Notes...)
		}
	}
	if len(missing.Notes) > 0 {
		return nil, missing
	}
	return rooms, nil
}

func (s *statusService) show(ctx context.Context, r *roomstore.Room, c *room.Controls) (*api.Status, error) {
	n, ok := s.numbers(ctx, room.IDOf(r.TicketName()))
	age := mayBeOld(ctx)
	if !ok && (n.At.IsZero() || age == nil) {
		return nil, refusef(http.StatusServiceUnavailable, codeNotNow, "no leading global has published numbers lately")
	}
	if !ok {
		age.since(n.At, noLeader)
	}
	out := &api.Status{
		Status: api.NotQueueing, EstimatedQueuedUsers: n.Waiting, EstimatedTotalActiveUsers: n.Active,
	}
	now, id, own := s.clock.fleet(), room.PublicID(r.TicketName()), &out.Vestibule
	plan := r.PlanBy(s.board())
	on := plan.At(now)
	if on.Event != nil {
		out.EventId, own.Event = on.Event.ID, on.Event.Name
	}
	if on.Kind == room.Prequeue {
		out.Status = api.EventPrequeueing
	}
	own.Next = nextPhase(plan, now)
	if r.Suspended {
		out.Status, out.EventId, own.Event, own.Next = api.Suspended, "", "", nil
	}
	own.Room, own.RoomId, own.Host, own.Path = r.Name, id, r.Host, r.Path
	own.AsOf, own.Complete, own.BeyondLimit = n.At.UTC(), n.Complete, n.Beyond
	own.AdmittedPerMinute, own.Subscribed = n.PerMinute, n.Subscribed
	in := c.Rooms[id].At(now)
	own.Controls = controlNames(in)
	force := r.In(on).Under(in, now)
	own.TotalActiveUsers, own.NewUsersPerMinute = force.TotalActiveUsers, force.NewUsersPerMinute
	own.Message, own.QueueingMethod, own.QueueAll = force.QueueMessage, force.QueueingMethod, force.QueueAll
	stops := stopsIn(&force, in, on, fleettime.Time(now), &n, ok)
	if out.Status == api.NotQueueing && (n.Waiting > 0 || slices.ContainsFunc(stops, func(s stop.Stop) bool { return s.Centre == "" })) {
		out.Status = api.Queueing
	}
	own.Stops = make([]api.Stop, len(stops))
	for i := range stops {
		v := stops[i].View()
		own.Stops[i] = api.Stop{
			Reason: v.Reason, DataCenter: v.DataCenter, Since: v.Since, Until: v.Until, Text: v.Text, Command: v.Command,
		}
	}
	if n.Longest > 0 && n.Waiting > 0 && TellsWait(out) {
		longest := min(n.Longest, float64(1000*time.Hour/time.Second))
		out.MaxEstimatedTimeMinutes = int(math.Ceil(longest / 60))
	}
	return out, nil
}

// TellsWait reports whether the waiting page of a room tells visitors in line how long they wait: not while nobody is to
// be let in.
func TellsWait(s *api.Status) bool {
	own, stopped := &s.Vestibule, ""
	switch {
	case slices.ContainsFunc(own.Stops, func(x api.Stop) bool { return x.Reason == stop.SiteDown.String() && x.DataCenter == "" }):
		stopped = page.PausedBySite
	case own.QueueAll:
		stopped = page.PausedByOperator
	}
	return page.StateInLine(own.QueueingMethod, s.Status == api.EventPrequeueing, stopped) == page.Queued
}

// stopsIn returns why nobody enters a room: by its operators, for lack of a leader, or as the leader says.
func stopsIn(
	force *room.Settings, in *room.Control, on room.Phase, now fleettime.Time, n *Numbers, led bool,
) (out []stop.Stop) {
	if force.Suspended {
		return nil
	}
	if s := stop.Of(force, in, on, now); !s.OK() {
		out = append(out, s)
	}
	if !led {
		return append(out, stop.Stop{Reason: stop.NoLeader, Since: fleettime.TimeOf(n.At)})
	}
	out = append(out, n.Stops...)
	slices.SortStableFunc(out, siteFirst)
	return out
}

// siteFirst orders the reasons: a site that does not answer admits nobody, whatever else holds visitors up.
func siteFirst(a, b stop.Stop) int {
	rank := func(s stop.Stop) int {
		if s.Reason == stop.SiteDown {
			return 0
		}
		return 1
	}
	return rank(a) - rank(b)
}

// nextPhase returns the next change by an event, nil for none.
func nextPhase(plan room.Plan, now int64) *api.NextPhase {
	at := plan.Next(now)
	if at == 0 {
		return nil
	}
	on, next := plan.At(now), plan.At(at)
	if on.Kind == room.Prequeue && next.Kind == room.Base && now < on.Event.Start { // the draw is still to come
		return &api.NextPhase{Event: on.Event.Name, Phase: api.Start, At: moment(on.Event.Start)}
	}
	out := &api.NextPhase{At: moment(at)}
	switch next.Kind {
	case room.Prequeue:
		out.Phase = api.Prequeue
	case room.Active:
		out.Phase = api.Start
	case room.Base:
		out.Phase, next = api.End, on
	}
	out.Event = next.Event.Name
	return out
}

func (s *statusService) fleet(context.Context, *request) (any, error) { return s.nodes(), nil }
