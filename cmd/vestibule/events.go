package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

func newEventsCmd() *cobra.Command {
	flags := &clientFlags{}
	cmd := &cobra.Command{
		Use: "events", Short: "Show and change the events of a room",
		Long: `Show and change the events of a room.

Keys are those of the API, such as prequeue_start_time=2026-12-01T09:00:00Z, total_active_users=500 or suspended=true.
A value is read as JSON where it is valid JSON, otherwise as text.`,
	}
	flags.add(cmd, cmd.PersistentFlags())
	cmd.AddCommand(newEventsListCmd(flags), newEventsGetCmd(flags), newEventsCreateCmd(flags), newEventsSetCmd(flags),
		newEventsDeleteCmd(flags), newEventsDrawCmd(flags), newEventsRecordCmd(flags))
	return cmd
}

func newEventsListCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "list ROOM", Short: "Show the events of a room, five at most", ValidArgsFunction: flags.completeRoom,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, all, err := flags.openEvents(cmd, args[0])
			if err != nil {
				return err
			}
			return c.listEvents(all)
		},
	}
}

func newEventsGetCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "get ROOM EVENT", Short: "Show an event, by name or ID, with the settings in force during it, as JSON",
		ValidArgsFunction: flags.completeRoom,
		RunE: flags.ofEvent(func(c *client, r *api.Room, id string) error {
			var e api.EventDetails
			res, err := c.WaitingRoomPreviewActiveEventDetails(c.ctx, c.zone, r.Id, id)
			if err := take(res, err, &e); err != nil {
				return err
			}
			return c.print(e, nil)
		}),
	}
}

func newEventsCreateCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "create ROOM KEY=VALUE...", Short: "Create an event; name, event_start_time and event_end_time are needed",
		ValidArgsFunction: flags.completeRoom,
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := body(args[1:])
			if err != nil {
				return err
			}
			return flags.ofRoom(func(c *client, r api.Room) error {
				var e api.Event
				res, err := c.WaitingRoomCreateEvent(c.ctx, c.zone, r.Id, data)
				if err := take(res, err, &e); err != nil {
					return err
				}
				return c.print(e, nil)
			})(cmd, args)
		},
	}
}

func newEventsSetCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "set ROOM EVENT KEY=VALUE...", Short: "Change the named settings of an event", ValidArgsFunction: flags.completeRoom,
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := body(args[2:])
			if err != nil {
				return err
			}
			return flags.ofEvent(func(c *client, r *api.Room, id string) error {
				var e api.Event
				res, err := c.WaitingRoomPatchEvent(c.ctx, c.zone, r.Id, id, data)
				if err := take(res, err, &e); err != nil {
					return err
				}
				return c.print(e, nil)
			})(cmd, args)
		},
	}
}

func newEventsDeleteCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "delete ROOM EVENT", Short: "Delete an event; the room returns to its own settings", ValidArgsFunction: flags.completeRoom,
		RunE: flags.ofEvent(func(c *client, r *api.Room, id string) error {
			gone := map[string]any{}
			res, err := c.WaitingRoomDeleteEvent(c.ctx, c.zone, r.Id, id)
			if err := take(res, err, &gone); err != nil {
				return err
			}
			return c.print(gone, nil)
		}),
	}
}

func newEventsDrawCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "draw ROOM EVENT", Short: "Show the public part of an event's draw, as JSON", ValidArgsFunction: flags.completeRoom,
		Long: "Show the public part of an event's draw, as JSON: the commit, later the record. The draw of a deleted event is found by the event's ID.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := flags.draw(cmd, args)
			if err != nil {
				return err
			}
			return c.print(d, nil)
		},
	}
}

func newEventsRecordCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "record ROOM EVENT", Short: "Show the record of an event's draw, as verify-draw reads it", ValidArgsFunction: flags.completeRoom,
		Example: "  vestibule events record shop launch | vestibule verify-draw - receipts.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := flags.draw(cmd, args)
			switch {
			case err != nil:
				return err
			case d.Void != "":
				return fmt.Errorf("event %q has no draw: %s", args[1], d.Void)
			case d.Record == nil:
				return fmt.Errorf("event %q has no record yet: entries close on %s, and it is published then", args[1], d.ClosesOn.Format(time.RFC3339))
			}
			return c.print(d.Record, nil)
		},
	}
}

// openEvents returns a client, a room and its events.
func (c *clientFlags) openEvents(cmd *cobra.Command, name string) (cl *client, r api.Room, all []api.Event, err error) {
	if cl, err = c.openZone(cmd); err != nil {
		return nil, r, nil, err
	}
	if r, err = cl.find(name); err != nil {
		return nil, r, nil, err
	}
	res, err := cl.WaitingRoomListEvents(cl.ctx, cl.zone, r.Id, nil)
	return cl, r, all, take(res, err, &all)
}

// ofEvent returns the run function of a command whose arguments begin with ROOM and EVENT.
func (c *clientFlags) ofEvent(do func(c *client, r *api.Room, id string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cl, r, all, err := c.openEvents(cmd, args[0])
		if err != nil {
			return err
		}
		id, err := eventID(&r, all, args[1])
		if err != nil {
			return err
		}
		if id == "" {
			return fmt.Errorf("room %s has no event %q", r.Name, args[1])
		}
		return do(cl, &r, id)
	}
}

// eventID returns the ID of an event by its name or ID; "" for none.
func eventID(r *api.Room, all []api.Event, name string) (id string, err error) {
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

// draw returns the public part of the draw of ROOM and EVENT.
func (c *clientFlags) draw(cmd *cobra.Command, args []string) (*client, *api.Draw, error) {
	cl, r, all, err := c.openEvents(cmd, args[0])
	if err != nil {
		return nil, nil, err
	}
	id, err := eventID(&r, all, args[1])
	if err != nil {
		return nil, nil, err
	}
	var d api.Draw
	res, err := cl.GetDraw(cl.ctx, r.Id, cmp.Or(id, args[1])) // a deleted event has only its ID
	if err := take(res, err, &d); err != nil {
		return nil, nil, fmt.Errorf("the draw of event %q: %w", args[1], err)
	}
	return cl, &d, nil
}

// listEvents shows the events of a room.
func (c *client) listEvents(all []api.Event) error {
	return c.print(all, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tWAIT FROM\tSTART\tEND\tTOTAL\tPER MINUTE\tSUSPENDED\tID")
		for _, e := range all {
			from := e.EventStartTime
			if e.PrequeueStartTime != nil {
				from = *e.PrequeueStartTime
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%v\t%s\n", e.Name, from.Format(time.RFC3339), e.EventStartTime.Format(time.RFC3339), e.EventEndTime.Format(time.RFC3339),
				eventLimit(e.TotalActiveUsers), eventLimit(e.NewUsersPerMinute), e.Suspended, e.Id)
		}
	})
}

// eventLimit returns a limit of an event as text.
func eventLimit(n *int) string {
	if n == nil {
		return "room's"
	}
	return fmt.Sprint(*n)
}
