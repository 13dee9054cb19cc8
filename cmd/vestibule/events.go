package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

const eventsUsage = `usage: vestibule events list ROOM | get ROOM EVENT | create ROOM KEY=VALUE... | set ROOM EVENT KEY=VALUE... | delete ROOM EVENT | draw ROOM EVENT | record ROOM EVENT [flags]

  list ROOM                     the events of a room, five at most
  get ROOM EVENT                one event, by its name or id, with all settings that are in force while it is on, as JSON
  create ROOM KEY=VALUE...      make an event: name, event_start_time and event_end_time are needed
  set ROOM EVENT KEY=VALUE...   change what is named
  delete ROOM EVENT             delete an event; the room goes on with its own settings
  draw ROOM EVENT               what is public of the draw with which an event begins, as JSON: the commit, then the record too
  record ROOM EVENT             the record alone, as verify-draw reads it: vestibule events record shop launch | vestibule verify-draw - receipts.json

An event that was deleted has its draw by its id.

Keys are those of the API: prequeue_start_time=2026-12-01T09:00:00Z, total_active_users=500, suspended=true and so on.
A value is JSON where it can be read as such, else a text. Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not reachable.
`

// events manages the events of a room by the API.
func events(args []string, stdout, stderr io.Writer) error {
	f, flags := flagSet("events", stderr), &clientFlags{}
	flags.add(f)
	c, words, done, err := flags.open(f, args, eventsUsage, stdout, stderr)
	if err != nil {
		return err
	}
	defer done()
	if len(words) == 0 {
		words = []string{""}
	}
	verb, words := words[0], words[1:]
	least := map[string]int{"list": 1, "get": 2, "create": 2, "set": 3, "delete": 2, "draw": 2, "record": 2}[verb]
	if least == 0 || len(words) < least || len(words) > least && verb != "create" && verb != "set" {
		fmt.Fprint(stderr, eventsUsage)
		return node.ErrUsage
	}
	pairs := map[string][]string{"create": words[1:], "set": words[min(2, len(words)):]}[verb]
	data, err := body(pairs)
	if err != nil {
		fmt.Fprintf(stderr, "vestibule events: %v\n", err)
		return node.ErrUsage
	}
	if _, err := c.verify(); err != nil {
		return err
	}
	r, err := c.find(words[0])
	if err != nil {
		return err
	}
	if verb == "create" {
		var e api.Event
		res, err := c.WaitingRoomCreateEvent(c.ctx, c.zone, r.Id, data)
		if err := take(res, err, &e); err != nil {
			return err
		}
		return c.print(e, nil)
	}
	var all []api.Event
	res, err := c.WaitingRoomListEvents(c.ctx, c.zone, r.Id, nil)
	if err := take(res, err, &all); err != nil {
		return err
	}
	if verb == "list" {
		return c.listEvents(all)
	}
	return c.event(verb, &r, all, words[1], data)
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
				ofRoom(e.TotalActiveUsers), ofRoom(e.NewUsersPerMinute), e.Suspended, e.Id)
		}
	})
}

// event shows, changes or deletes one of the events of a room, by its name or id.
func (c *client) event(verb string, r *api.Room, all []api.Event, name string, data json.RawMessage) error {
	id := ""
	for _, e := range all {
		if e.Name != name && e.Id != name {
			continue
		}
		if id != "" {
			return fmt.Errorf("room %s has several events %q: name it by its id", r.Name, name)
		}
		id = e.Id
	}
	public := verb == "draw" || verb == "record"
	if id == "" && public {
		id = name // of one that is gone
	}
	switch {
	case id == "":
		return fmt.Errorf("room %s has no event %q", r.Name, name)
	case public:
		return c.draw(verb, r, id, name)
	}
	switch verb {
	case "set":
		var e api.Event
		res, err := c.WaitingRoomPatchEvent(c.ctx, c.zone, r.Id, id, data)
		if err := take(res, err, &e); err != nil {
			return err
		}
		return c.print(e, nil)
	case "delete":
		gone := map[string]any{}
		res, err := c.WaitingRoomDeleteEvent(c.ctx, c.zone, r.Id, id)
		if err := take(res, err, &gone); err != nil {
			return err
		}
		return c.print(gone, nil)
	}
	var e api.EventDetails
	res, err := c.WaitingRoomPreviewActiveEventDetails(c.ctx, c.zone, r.Id, id)
	if err := take(res, err, &e); err != nil {
		return err
	}
	return c.print(e, nil)
}

// draw shows what is public of the draw of an event, or its record alone.
func (c *client) draw(verb string, r *api.Room, id, name string) error {
	var d api.Draw
	res, err := c.GetDraw(c.ctx, r.Id, id)
	if err := take(res, err, &d); err != nil {
		return fmt.Errorf("the draw of event %q: %w", name, err)
	}
	switch {
	case verb == "draw":
		return c.print(d, nil)
	case d.Void != "":
		return fmt.Errorf("event %q has no draw: %s", name, d.Void)
	case d.Record == nil:
		return fmt.Errorf("event %q has no record yet: entries close on %s, and it is published then", name, d.ClosesOn.Format(time.RFC3339))
	}
	return c.print(d.Record, nil)
}

// ofRoom is a limit of an event, or the word for that it has none of its own.
func ofRoom(n *int) string {
	if n == nil {
		return "room's"
	}
	return fmt.Sprint(*n)
}
