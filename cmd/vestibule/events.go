package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

func newEventsCmd() *cobra.Command {
	flags := &clientFlags{}
	return flags.changes(&cobra.Command{
		Use: "events", Short: "Show and change the events of a room",
		Long: `Show and change the events of a room.

Keys are those of rooms.yaml or of the API, such as prequeue_start_time=2026-12-01T09:00:00Z, total_active_users=500 or
suspended=true. A value is read as JSON where it is valid JSON, otherwise as text. A time may also be now, relative ("in
10m", "in 2d"), or a local time: 22:30 is the next such time, "2026-12-01 09:00" names the day.`,
	},
		&cobra.Command{
			Use: "list ROOM", Short: "Show the events of a room",
			RunE: flags.ofRoom(func(c *client, r *api.Room, _ []string) error { return listEvents(c, r) }),
		},
		&cobra.Command{
			Use: "get ROOM EVENT", Short: "Show an event with the settings in force during it, as JSON",
			RunE: flags.ofEvent(func(c *client, r *api.Room, e *api.Event, _ []string) error {
				got, err := call[json.RawMessage](c, http.MethodGet, inZone(r.Id, "events", e.Id, "details"), nil)
				if err != nil {
					return err
				}
				return c.showJSON(got)
			}),
		},
		&cobra.Command{
			Use: "create ROOM KEY=VALUE...", Short: "Create an event; name, event_start_time and event_end_time are needed",
			Example: `  vestibule events create shop name=sale event_start_time="in 30m" event_end_time="in 3h" prequeue_start_time="in 10m"`,
			Args:    pairs(1),
			RunE: flags.ofRoom(func(c *client, r *api.Room, args []string) error {
				b, err := body(args)
				if err != nil {
					return err
				}
				return change(c, http.MethodPost, inZone(r.Id, "events"), b, func(e api.Event) string {
					over := ""
					if e.EventEndTime.Before(time.Now()) {
						over = "; it is over already"
					}
					return fmt.Sprintf("created event %s of room %s: %s to %s%s", e.Name, r.Name, cellText(e.EventStartTime),
						cellText(e.EventEndTime), over)
				})
			}),
		},
		newEventsSetCmd(flags),
		&cobra.Command{
			Use: "start ROOM EVENT", Short: "Start an event now",
			RunE: flags.ofEvent(func(c *client, r *api.Room, e *api.Event, _ []string) error {
				now := time.Now()
				if !e.Suspended && !e.EventStartTime.After(now) { // another start would move it, and be another draw
					return fmt.Errorf("event %q has started already, at %s, and ends at %s", e.Name, cellText(e.EventStartTime),
						cellText(e.EventEndTime))
				}
				if e.ShuffleAtEventStart {
					return fmt.Errorf("event %q begins with a draw, which has its time: to start it without one, first vestibule "+
						"events set %s %s shuffle_at_event_start=false", e.Name, r.Name, e.Name)
				}
				return setEvent(c, r, e, startNow(e, now))
			}),
		},
		&cobra.Command{
			Use: "end ROOM EVENT", Short: "End an event now, or a minute after its start",
			RunE: flags.ofEvent(endEvent),
		},
		newEventsDeleteCmd(flags),
		&cobra.Command{
			Use: "draw ROOM EVENT", Short: "Show the public part of an event's draw, as JSON",
			Long: "Show the public part of an event's draw, as JSON: the commit, later the record. The draw of a deleted event is found by the event's ID.",
			RunE: flags.ofDraw(func(c *client, _ string, d *api.Draw) error { return c.showJSON(d) }),
		},
		&cobra.Command{
			Use: "record ROOM EVENT", Short: "Show the record of an event's draw, as verify-draw reads it",
			Example: "  vestibule events record shop launch | vestibule verify-draw - receipts.json",
			RunE: flags.ofDraw(func(c *client, event string, d *api.Draw) error {
				switch {
				case d.Void != "":
					return fmt.Errorf("event %q has no draw: %s", event, d.Void)
				case d.Record == nil:
					return fmt.Errorf("event %q has no record yet: entries close on %s, and it is published then", event,
						d.ClosesOn.Format(time.RFC3339))
				}
				return c.showJSON(d.Record)
			}),
		})
}

func newEventsSetCmd(flags *clientFlags) *cobra.Command {
	ask := &confirmation{}
	cmd := &cobra.Command{
		Use: "set ROOM EVENT KEY=VALUE...", Short: "Change the named settings of an event", Args: pairs(2),
		RunE: flags.ofEvent(func(c *client, r *api.Room, e *api.Event, args []string) error {
			b, err := body(args)
			if err != nil {
				return err
			}
			was := limitsOf(b, *cmp.Or(e.TotalActiveUsers, &r.TotalActiveUsers), *cmp.Or(e.NewUsersPerMinute, &r.NewUsersPerMinute))
			if err := ask.limits(c, fmt.Sprintf("event %s of room %s", e.Name, r.Name), was); err != nil {
				return err
			}
			return setEvent(c, r, e, b)
		}),
	}
	ask.addTo(cmd, withoutAsking)
	return cmd
}

func newEventsDeleteCmd(flags *clientFlags) *cobra.Command {
	ask := &confirmation{}
	cmd := &cobra.Command{
		Use: "delete ROOM EVENT", Short: "Delete an event; it asks while the event is going on",
		RunE: flags.ofEvent(func(c *client, r *api.Room, e *api.Event, _ []string) error {
			now, begins := time.Now(), cmp.Or(e.PrequeueStartTime, &e.EventStartTime)
			if !e.Suspended && !begins.After(now) && e.EventEndTime.After(now) {
				if err := ask.event(c, r, e); err != nil {
					return err
				}
			}
			return change(c, http.MethodDelete, inZone(r.Id, "events", e.Id), nil, func(any) string {
				return fmt.Sprintf("deleted event %s of room %s", e.Name, r.Name)
			})
		}),
	}
	ask.add(cmd)
	return cmd
}

// setEvent changes settings of an event that was just read, and shows those that differ.
func setEvent(c *client, r *api.Room, e *api.Event, body object) error {
	return change(c, http.MethodPatch, inZone(r.Id, "events", e.Id), body, func(after api.Event) string {
		return fmt.Sprintf("event %s of room %s: %s", e.Name, r.Name, differences(e, after))
	}, ifMatch(c.tag))
}

// The API refuses shorter events and prequeues.
const (
	leastEvent    = time.Minute
	leastPrequeue = 5 * time.Minute
)

// startNow returns the change that starts an event now. A prequeue that would be too short is dropped.
func startNow(e *api.Event, now time.Time) object {
	ask := object{"event_start_time": now.UTC().Format(time.RFC3339), "suspended": false}
	if p := e.PrequeueStartTime; p != nil && now.Sub(*p) < leastPrequeue {
		ask["prequeue_start_time"] = nil
	}
	return ask
}

// endEvent ends an event now, or as soon as the API permits.
func endEvent(c *client, r *api.Room, e *api.Event, _ []string) error {
	now := time.Now()
	if e.EventStartTime.After(now) {
		return fmt.Errorf("event %q has not started: suspend it by events set %s %s suspended=true, or delete it", e.Name,
			r.Name, e.Name)
	}
	if !e.EventEndTime.After(now) {
		return fmt.Errorf("event %q has ended already, at %s", e.Name, cellText(e.EventEndTime))
	}
	end := e.EventStartTime.Add(leastEvent)
	if now.After(end) {
		end = now
	}
	return setEvent(c, r, e, object{"event_end_time": end.UTC().Format(time.RFC3339)})
}

// eventsOf returns the events of a room.
func eventsOf(c *client, r *api.Room) ([]api.Event, error) {
	return call[[]api.Event](c, http.MethodGet, inZone(r.Id, "events"), nil)
}

// event returns an event of a room by its name or ID, nil for none, and all events of the room.
func (c *client) event(r *api.Room, name string) (event *api.Event, all []api.Event, err error) {
	if all, err = eventsOf(c, r); err != nil {
		return nil, nil, err
	}
	for i, e := range all {
		if e.Name != name && e.Id != name {
			continue
		}
		if event != nil {
			return nil, nil, fmt.Errorf("room %s has several events %q: name it by its id", r.Name, name)
		}
		event = &all[i]
	}
	return event, all, nil
}

// needEvent is event for a caller that needs one.
func (c *client) needEvent(r *api.Room, name string) (*api.Event, error) {
	e, all, err := c.event(r, name)
	if err == nil && e == nil {
		err = noSuch(fmt.Sprintf("room %s has no event", r.Name), name, all, func(e *api.Event) string { return e.Name },
			fmt.Sprintf(": see vestibule events list %s", r.Name))
	}
	return e, err
}

// ofEvent is ofRoom for a command whose second argument is EVENT. do gets the event, and the arguments after it.
func (c *clientFlags) ofEvent(do func(c *client, r *api.Room, e *api.Event, args []string) error) runFunc {
	return c.ofRoom(func(cl *client, r *api.Room, args []string) error {
		e, err := cl.needEvent(r, args[0])
		if err != nil {
			return err
		}
		return do(cl, r, e, args[1:])
	})
}

// ofDraw is ofRoom for a command that shows the draw of its second argument EVENT.
func (c *clientFlags) ofDraw(do func(c *client, event string, d *api.Draw) error) runFunc {
	return c.ofRoom(func(cl *client, r *api.Room, args []string) error {
		e, _, err := cl.event(r, args[0])
		if err != nil {
			return err
		}
		id := args[0] // of a deleted event
		if e != nil {
			id = e.Id
		}
		at := ofOurs("rooms", r.Id, "events", id, "draw")
		d, err := call[api.Draw](cl, http.MethodGet, at, nil)
		if _, none := errors.AsType[*missingError](err); none && e != nil && !e.ShuffleAtEventStart {
			return fmt.Errorf("event %q has no draw: its shuffle_at_event_start is false", args[0])
		}
		if err != nil {
			return fmt.Errorf("the draw of event %q: %w", args[0], err)
		}
		return do(cl, args[0], &d)
	})
}

// listEvents shows the events of a room.
func listEvents(c *client, r *api.Room) error {
	all, err := eventsOf(c, r)
	if err != nil {
		return err
	}
	limit := func(n *int) any {
		if n == nil {
			return "room's"
		}
		return *n
	}
	return showList(c, all, []any{"NAME", "WAIT FROM", "START", "END", "TOTAL", "PER MINUTE", "SUSPENDED", "ID"},
		func(e *api.Event) []any {
			return []any{
				e.Name, cmp.Or(e.PrequeueStartTime, &e.EventStartTime), e.EventStartTime, e.EventEndTime,
				limit(e.TotalActiveUsers), limit(e.NewUsersPerMinute), e.Suspended, e.Id,
			}
		})
}
