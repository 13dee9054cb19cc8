package control

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
	"vestibule/internal/global/roomstore"
)

// Limits are both limits of a room.
type Limits struct{ Total, Rate int } // total_active_users, new_users_per_minute

// over returns l with the limits of other that are not 0.
func (l Limits) over(other Limits) Limits {
	if other.Total > 0 {
		l.Total = other.Total
	}
	if other.Rate > 0 {
		l.Rate = other.Rate
	}
	return l
}

func limitsOf(s *room.Settings) Limits { return Limits{s.TotalActiveUsers, s.NewUsersPerMinute} }

// LimitChange says which limits a room shall have in force.
type LimitChange struct {
	Room  string // ID
	Want  Limits // 0 leaves a limit as it is
	For   Lasting
	Until time.Time // of temporary limits

	// Seen are the limits in force that the operator saw, and Revision is that of the room. A change of others is
	// refused. The zero value stands for any.
	Seen     Limits
	Revision uint64

	Reason string
	DryRun bool // return the effect, and change nothing
	by     string
}

// Lasting is how long a change of limits lasts.
type Lasting uint8

// The values of [Lasting].
const (
	Temporarily Lasting = iota // until a time
	ForGood                    // until somebody changes them: temporary limits end, and the event or the room is changed
	Ending                     // the temporary limits end
)

// LimitEffect is the effect of a change of limits.
type LimitEffect struct {
	Before, After Limits // in force now
	Then          Limits // in force when temporary limits end
	ThenEvent     string // the event whose limits these are, "" for the room
	Own, OwnAfter Limits // of the room itself

	Event     string    // name of the running event that has limits of its own and is changed, "" for none
	EventEnds time.Time // if Event is not ""
	Ended     bool      // temporary limits end

	Next *EventLimits // the next event in which other limits apply, nil for none
}

// EventLimits are the limits during an event.
type EventLimits struct {
	Name   string
	Start  time.Time
	Limits Limits
}

// limitService changes limits.
type limitService struct {
	*catalog
	clock
	controls *controls
	board    func() *draw.Board
}

// SetLimits changes the limits of a room, so that those in force are the wanted ones. The effect is computed by what
// changes them.
func (s *Server) SetLimits(ctx context.Context, who Principal, remote string, c LimitChange) (*LimitEffect, error) {
	needs, operation := Operator, "patch-controls"
	if c.For == ForGood {
		needs, operation = Editor, "waiting-room-patch-waiting-room"
	}
	if err := who.needs(needs); err != nil {
		return nil, err
	}
	if !who.mayIn(c.Room, operation) {
		return nil, errNotFound
	}
	c.by = who.Name
	turn, err := s.out.turns.take(ctx, who.ID)
	if err != nil {
		return nil, explain(err)
	}
	defer turn.End()
	ctx = context.WithValue(context.WithValue(ctx, principalKey{}, who), currentKey{}, true)
	effect, err := s.limits.set(ctx, &c, func(operation string) context.Context {
		return who.as(ctx, remote, operation, c.Reason)
	})
	if err != nil {
		return nil, explain(err)
	}
	return effect, nil
}

// set makes a change. as returns a context for an operation.
func (s *limitService) set(
	ctx context.Context, c *LimitChange, as func(operation string) context.Context,
) (*LimitEffect, error) {
	state, r, err := s.read(ctx, c.Room)
	if err != nil {
		return nil, err
	}
	doc, _, err := s.controls.read(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.plan(r, doc.Rooms[c.Room], c)
	if err != nil || c.DryRun {
		return &p.LimitEffect, err
	}
	if c.For == ForGood {
		operation := "waiting-room-patch-waiting-room"
		if p.Event != "" {
			operation = "waiting-room-patch-event"
		}
		if state, err = s.store.Change(as(operation), func(d *roomstore.Draft) error {
			r := s.find(d.Base(), c.Room)
			if r == nil {
				return errNotFound
			}
			next, err := s.plan(r, doc.Rooms[c.Room], c)
			if err != nil {
				return err
			}
			p = next
			return d.Replace(r.Name, p.settings)
		}); err != nil {
			return nil, refusalOf(err)
		}
		if !p.Ended {
			return &p.LimitEffect, nil
		}
	}
	before := p.limits
	_, err = s.controls.change(as("patch-controls"), state, c.Room, func(control *room.Control) error {
		if c.For == ForGood { // the room has the new limits already
			if control.Limits != nil && *control.Limits != *before {
				return errLimitsChanged
			}
			control.Limits = nil
			return nil
		}
		next, err := s.plan(r, control, c)
		if err != nil {
			return err
		}
		p, control.Limits = next, next.temporary
		return nil
	})
	if err != nil && c.For == ForGood {
		first := explain(err)
		return nil, refusef(first.Status, codeNotNow, "Only the first part was done: the room has the limits, and the "+
			"temporary limits are in force until they end or somebody ends them: %v", first)
	}
	if err != nil {
		return nil, err
	}
	return &p.LimitEffect, nil
}

var errLimitsChanged = refusef(http.StatusConflict, codeChanged, "somebody changed the temporary limits")

// limitPlan is a change of limits with its effect.
type limitPlan struct {
	LimitEffect
	settings  room.Settings // of the room afterwards
	limits    *room.Limits  // the temporary limits that are in force, nil for none
	temporary *room.Limits  // those afterwards
}

// plan returns a change of the limits of a room under its controls.
func (s *limitService) plan(r *roomstore.Room, control *room.Control, c *LimitChange) (p limitPlan, err error) {
	if c.Revision != 0 && c.Revision != r.Revision {
		return p, refusef(http.StatusConflict, codeChanged, "Somebody changed this room.")
	}
	now, plan := s.fleet(), r.PlanBy(s.board())
	p.settings = r.Settings
	inForce := func(at int64, limits *room.Limits) (Limits, room.Phase) {
		phase := plan.At(at)
		in := p.settings.In(phase).Under(&room.Control{Limits: limits}, at)
		return limitsOf(&in), phase
	}
	if control = control.At(now); control != nil {
		p.limits = control.Limits
	}
	var phase room.Phase
	p.Before, phase = inForce(now, p.limits)
	if c.Seen != (Limits{}) && c.Seen != p.Before {
		return p, refusef(http.StatusConflict, codeChanged, "The limits in force are other ones now.")
	}
	p.Own = limitsOf(&r.Settings)
	want := p.Before.over(c.Want)
	switch c.For {
	case Ending:
		if p.limits == nil {
			return p, badLimits("There are no temporary limits.")
		}
		p.Ended = true
	case ForGood:
		p.Ended = p.limits != nil
		p.settings, p.Event = lasting(&r.Settings, phase, want, s.now().UnixMilli())
		if own := limitsOf(&p.settings); !p.Ended && want == p.Before && own == p.Own {
			return p, badLimits("Change at least one of the limits.")
		}
		plan = p.settings.PlanBy(s.board())
		if p.Event != "" {
			p.EventEnds = time.UnixMilli(phase.Event.End).UTC()
		}
	case Temporarily:
		end := c.Until.UnixMilli()
		switch {
		case end <= now || end > now+maxUntil.Milliseconds():
			return p, badLimits("The limits must be changed for 1 minute to 400 days.")
		case want == p.Before && p.limits == nil:
			return p, badLimits("Change at least one of the limits.")
		}
		p.temporary = &room.Limits{}
		if p.limits != nil { // the other limit stays as it is
			*p.temporary = *p.limits
		}
		p.temporary.Mark = room.Mark{Since: now, Until: end, By: c.by, Reason: c.Reason}
		if want.Total != p.Before.Total {
			p.temporary.TotalActiveUsers = want.Total
		}
		if want.Rate != p.Before.Rate {
			p.temporary.NewUsersPerMinute = want.Rate
		}
		var then room.Phase
		if p.Then, then = inForce(end, nil); then.Event != nil && p.Then != p.Own {
			p.ThenEvent = then.Event.Name
		}
	}
	p.After, phase = inForce(now, p.temporary)
	p.OwnAfter = limitsOf(&p.settings)
	for _, next := range plan {
		if next.From <= now || next.Event == nil || next.Event == phase.Event || p.Next != nil {
			continue
		}
		if during, _ := inForce(next.From, p.temporary); during != p.After &&
			(p.temporary == nil || next.From < p.temporary.Until) {
			p.Next = &EventLimits{next.Event.Name, time.UnixMilli(next.From).UTC(), during}
		}
	}
	return p, nil
}

// lasting returns settings with limits that are in force in a phase: those of its event, if this has some, otherwise
// those of the room. event is the name of the event, "" for the room.
func lasting(s *room.Settings, phase room.Phase, want Limits, now int64) (out room.Settings, event string) {
	out = *s
	if phase.Event == nil || phase.Event.Overrides[totalKey] == nil && phase.Event.Overrides[rateKey] == nil {
		out.TotalActiveUsers, out.NewUsersPerMinute = want.Total, want.Rate
		return out, ""
	}
	out.Events = slices.Clone(s.Events)
	for i := range out.Events {
		if e := &out.Events[i]; e.ID == phase.Event.ID {
			e.Overrides = maps.Clone(e.Overrides)
			e.Overrides[totalKey], e.Overrides[rateKey], e.Changed = want.Total, want.Rate, now
		}
	}
	return out, phase.Event.Name
}

// totalKey and rateKey are the keys of the limits among the overrides of an event, which has both or none.
const (
	totalKey = "total_active_users"
	rateKey  = "new_users_per_minute"
)

func badLimits(message string) error {
	return refusef(http.StatusUnprocessableEntity, codeInvalid, "%s", message)
}
