package main

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

func newEventsCmd() *cobra.Command {
	flags := &clientFlags{}
	return flags.group(&cobra.Command{
		Use: "events", Short: "Show and change the events of a room",
		Long: `Show and change the events of a room.

Keys are those of the API, such as prequeue_start_time=2026-12-01T09:00:00Z, total_active_users=500 or suspended=true.
A value is read as JSON where it is valid JSON, otherwise as text.`,
	},
		&cobra.Command{
			Use: "list ROOM", Short: "Show the events of a room, five at most",
			RunE: flags.ofRoom(func(c *client, r *api.Room, _ []string) error { return listEvents(c, r) }),
		},
		&cobra.Command{
			Use: "get ROOM EVENT", Short: "Show an event, by name or ID, with the settings in force during it, as JSON",
			RunE: flags.ofEvent(func(c *client, r *api.Room, id string, _ []string) error {
				return c.pass(http.MethodGet, inZone(r.Id, "events", id, "details"), nil)
			}),
		},
		&cobra.Command{
			Use: "create ROOM KEY=VALUE...", Short: "Create an event; name, event_start_time and event_end_time are needed",
			Args: pairs(1),
			RunE: flags.ofRoom(func(c *client, r *api.Room, args []string) error {
				return c.pass(http.MethodPost, inZone(r.Id, "events"), body(args))
			}),
		},
		&cobra.Command{
			Use: "set ROOM EVENT KEY=VALUE...", Short: "Change the named settings of an event", Args: pairs(2),
			RunE: flags.ofEvent(func(c *client, r *api.Room, id string, args []string) error {
				return c.pass(http.MethodPatch, inZone(r.Id, "events", id), body(args))
			}),
		},
		&cobra.Command{
			Use: "delete ROOM EVENT", Short: "Delete an event; the room returns to its own settings",
			RunE: flags.ofEvent(func(c *client, r *api.Room, id string, _ []string) error {
				return c.pass(http.MethodDelete, inZone(r.Id, "events", id), nil)
			}),
		},
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

// events returns the events of a room.
func (c *client) events(r *api.Room) ([]api.Event, error) {
	return call[[]api.Event](c, http.MethodGet, inZone(r.Id, "events"), nil)
}

// eventID returns the ID of an event of a room by its name or ID; "" for none.
func (c *client) eventID(r *api.Room, name string) (id string, err error) {
	all, err := c.events(r)
	if err != nil {
		return "", err
	}
	for _, e := range all {
		if e.Name != name && e.Id != name {
			continue
		}
		if id != "" {
			return "", fmt.Errorf("room %s has several events %q: name it by its id", r.Name, name)
		}
		id = e.Id
	}
	return id, nil
}

// ofEvent is ofRoom for a command whose second argument is EVENT. do gets the ID of the event, and the arguments after
// it.
func (c *clientFlags) ofEvent(do func(c *client, r *api.Room, id string, args []string) error) runFunc {
	return c.ofRoom(func(cl *client, r *api.Room, args []string) error {
		id, err := cl.eventID(r, args[0])
		if err == nil && id == "" {
			err = fmt.Errorf("room %s has no event %q", r.Name, args[0])
		}
		if err != nil {
			return err
		}
		return do(cl, r, id, args[1:])
	})
}

// ofDraw is ofRoom for a command that shows the draw of its second argument EVENT.
func (c *clientFlags) ofDraw(do func(c *client, event string, d *api.Draw) error) runFunc {
	return c.ofRoom(func(cl *client, r *api.Room, args []string) error {
		id, err := cl.eventID(r, args[0])
		if err != nil {
			return err
		}
		at := ofOurs("rooms", r.Id, "events", cmp.Or(id, args[0]), "draw") // a deleted event has only its ID
		d, err := call[api.Draw](cl, http.MethodGet, at, nil)
		if err != nil {
			return fmt.Errorf("the draw of event %q: %w", args[0], err)
		}
		return do(cl, args[0], &d)
	})
}

// listEvents shows the events of a room.
func listEvents(c *client, r *api.Room) error {
	all, err := c.events(r)
	if err != nil {
		return err
	}
	limit := func(n *int) any {
		if n == nil {
			return "room's"
		}
		return *n
	}
	return c.show(all, func(row func(...any)) {
		row("NAME", "WAIT FROM", "START", "END", "TOTAL", "PER MINUTE", "SUSPENDED", "ID")
		for _, e := range all {
			row(e.Name, cmp.Or(e.PrequeueStartTime, &e.EventStartTime), e.EventStartTime, e.EventEndTime,
				limit(e.TotalActiveUsers), limit(e.NewUsersPerMinute), e.Suspended, e.Id)
		}
	})
}
