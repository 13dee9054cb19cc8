package console_test

import (
	"net/http"
	"testing"
	"time"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/testkit"
)

func (c client) room(id string) (got api.Room) {
	c.Helper()
	testkit.NoError(c, c.call(http.MethodGet, "/zones/"+control.Zone+"/waiting_rooms/"+id, nil, &got))
	return got
}

// event makes an event of 300 and 250 that runs from a time to an hour after it.
func (c client) event(id string, start time.Time) string {
	c.Helper()
	var made api.Event
	testkit.NoError(c, c.call(http.MethodPost, "/zones/"+control.Zone+"/waiting_rooms/"+id+"/events", map[string]any{
		"name": "flash", "event_start_time": start.UTC().Format(time.RFC3339),
		"event_end_time": start.Add(time.Hour).UTC().Format(time.RFC3339), "total_active_users": 300,
		"new_users_per_minute": 250,
	}, &made))
	return made.Id
}

// The limits in the form are in force afterwards, whatever had them before, and the page says which are changed.
func TestTheLimitsOfTheFormAreInForceAfterwards(t *testing.T) {
	rush := map[string]any{"limits": map[string]any{
		"total_active_users": 3000, "new_users_per_minute": 400, "until": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	}, "reason": "rush"}
	ago, soon := -time.Minute, 10*time.Minute
	for name, c := range map[string]struct {
		event *time.Duration // start, from now
		rush  bool           // temporary limits
		fill  map[string]string
		says  []string
		force control.Limits // afterwards
		own   control.Limits
	}{
		"temporary limits and one field": {
			rush: true, fill: map[string]string{"total": "3500", "for": "always"},
			says: []string{
				"At most 3,500 people inside at a time instead of 3,000.", "The temporary limits end.",
				"It has 3,500 inside, 400 let in per minute from now on, and had 2,000 inside, 200 let in per minute.",
			},
			force: control.Limits{Total: 3500, Rate: 400}, own: control.Limits{Total: 3500, Rate: 400},
		},
		"temporary limits as they are": {
			rush: true, fill: map[string]string{"for": "always"}, says: []string{"It has 3,000 inside, 400 let in per minute"},
			force: control.Limits{Total: 3000, Rate: 400}, own: control.Limits{Total: 3000, Rate: 400},
		},
		"temporary limits with another end": {
			rush: true, fill: map[string]string{"minutes": "5"},
			says:  []string{"in 5 minutes: 2,000 inside, 200 let in per minute."},
			force: control.Limits{Total: 3000, Rate: 400}, own: control.Limits{Total: 2000, Rate: 200},
		},
		"an event": {
			event: &ago, fill: map[string]string{"total": "400", "for": "always"},
			says: []string{
				"At most 400 people inside at a time instead of 300.", "The event “flash” has limits of its own.",
				"the room keeps its own for the time after the event", "2,000 inside, 200 let in per minute.",
			},
			force: control.Limits{Total: 400, Rate: 250}, own: control.Limits{Total: 2000, Rate: 200},
		},
		"an event under temporary limits": {
			event: &ago, rush: true, fill: map[string]string{"for": "always"},
			says:  []string{"The event “flash” has limits of its own.", "The temporary limits end."},
			force: control.Limits{Total: 3000, Rate: 400}, own: control.Limits{Total: 2000, Rate: 200},
		},
		"some minutes of an event": {
			event: &ago, fill: map[string]string{"total": "400", "minutes": "20"},
			says:  []string{"The limits of the event “flash” apply again at", "in 20 minutes: 300 inside, 250 let in per minute."},
			force: control.Limits{Total: 400, Rate: 250}, own: control.Limits{Total: 2000, Rate: 200},
		},
		"an event that comes": {
			event: &soon, fill: map[string]string{"rate": "600", "for": "always"},
			says:  []string{"In the event “flash”, from", "others apply: 300 inside, 250 let in per minute."},
			force: control.Limits{Total: 2000, Rate: 600}, own: control.Limits{Total: 2000, Rate: 600},
		},
		"an event that comes within the minutes": {
			event: &soon, fill: map[string]string{"rate": "600", "minutes": "20"},
			says:  []string{"In the event “flash”, from", "others apply: 300 inside, 600 let in per minute."},
			force: control.Limits{Total: 2000, Rate: 600}, own: control.Limits{Total: 2000, Rate: 200},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			id := f.api.make("sale", 2000, 200, nil)
			if c.event != nil {
				f.api.event(id, time.Now().Add(*c.event))
			}
			if c.rush {
				f.api.patch(id, rush)
			}
			confirm, after := f.act(id, "limits", c.fill)
			contains(t, confirm, c.says...)
			after.is(t, http.StatusOK)
			in, own := f.api.controls(id).InForce, f.api.room(id)
			force := control.Limits{Total: in.TotalActiveUsers, Rate: in.NewUsersPerMinute}
			if has := (control.Limits{Total: own.TotalActiveUsers, Rate: own.NewUsersPerMinute}); force != c.force || has != c.own {
				t.Errorf("in force %+v, want %+v; the room has %+v, want %+v", force, c.force, has, c.own)
			}
		})
	}
}

// Limits that changed between the page of confirmation and the change are not changed again.
func TestLimitsThatSomebodyElseChanged(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	action := "/console/rooms/" + id + "/actions/limits"
	confirm := f.see(action + "?total=3000&rate=200&for=always")
	f.api.patch(id, map[string]any{"limits": map[string]any{
		"total_active_users": 50, "until": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	}})
	after := f.follow(confirm, action, map[string]string{"reason": "more"})
	after.is(t, http.StatusConflict)
	contains(t, after, "Somebody changed this room", "At most 3,000 people inside at a time instead of 50.")
	if got := f.api.controls(id).InForce.TotalActiveUsers; got != 50 {
		t.Errorf("T is %d", got)
	}
	who := control.Principal{ID: "o", Name: "Olaf", Role: control.Operator}
	change := control.LimitChange{Room: id, Want: control.Limits{Total: 70}, For: control.ForGood}
	if _, err := f.api.server.SetLimits(t.Context(), who, "", change); control.Status(err) != http.StatusForbidden {
		t.Errorf("an operator changed the room: %v", err)
	}
	change.For, change.Until, change.Seen = control.Temporarily, time.Now().Add(time.Minute), control.Limits{Total: 1, Rate: 200}
	if _, err := f.api.server.SetLimits(t.Context(), who, "", change); control.Status(err) != http.StatusConflict {
		t.Errorf("limits that nobody saw: %v", err)
	}
	who.Rooms = []string{"another"}
	if _, err := f.api.server.SetLimits(t.Context(), who, "", change); control.Status(err) != http.StatusNotFound {
		t.Errorf("a room of others: %v", err)
	}
}
