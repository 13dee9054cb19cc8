package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

const roomsUsage = `usage: vestibule rooms list | get ROOM | create KEY=VALUE... | set ROOM KEY=VALUE... | delete ROOM | site HOST URL | revisions ROOM | restore ROOM REVISION | apply -f FILE | export [flags]

  list                    all rooms
  get ROOM                one room, by its name or id, as JSON
  create KEY=VALUE...     make a room: name, host, total_active_users and new_users_per_minute are needed
  set ROOM KEY=VALUE...   change what is named
  delete ROOM             delete a room; its visitors go straight to the site
  site HOST URL           say which site is behind a host
  revisions ROOM          what a room was and who made it so; the id of a room that is deleted
  restore ROOM REVISION   make a room again what it was; a room that is deleted is made again
  apply -f FILE           make or replace the rooms and hosts of a rooms.yaml, all or none, and print what changed.
                          --prune deletes those that it does not name. --dry-run changes nothing
  export                  print all rooms as a rooms.yaml that apply takes; with -f FILE write it, and waiting
                          pages beside it

Keys are those of the API; vestibule.grace=2m and the like are settings of rooms.yaml that the hosted product has not.
A value is JSON where it can be read as such, else a text. Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not reachable.
`

// print shows a result as JSON, or as the table that show writes.
func (c *client) print(result any, show func(w io.Writer)) error {
	if c.output == "json" || show == nil {
		e := json.NewEncoder(c.out)
		e.SetIndent("", "  ")
		return e.Encode(result)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	show(w)
	return w.Flush()
}

// all returns all rooms.
func (c *client) all() (rooms []api.Room, err error) {
	for page, per := 1, 500; ; page++ {
		var some []api.Room
		res, err := c.WaitingRoomListWaitingRooms(c.ctx, c.zone, &api.WaitingRoomListWaitingRoomsParams{Page: &page, PerPage: &per})
		if err := take(res, err, &some); err != nil {
			return nil, err
		}
		if rooms = append(rooms, some...); len(some) < per {
			return rooms, nil
		}
	}
}

// find returns a room by its name or id.
func (c *client) find(name string) (api.Room, error) {
	rooms, err := c.all()
	if err != nil {
		return api.Room{}, err
	}
	i := slices.IndexFunc(rooms, func(r api.Room) bool { return r.Name == name || r.Id == name })
	if i < 0 {
		return api.Room{}, fmt.Errorf("no room %q", name)
	}
	return rooms[i], nil
}

// body makes a JSON object of KEY=VALUE.
func body(pairs []string) (json.RawMessage, error) {
	m, own := map[string]any{}, map[string]any{}
	for _, p := range pairs {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q: must be KEY=VALUE", p)
		}
		var v any = value
		if d := json.NewDecoder(strings.NewReader(value)); json.Valid([]byte(value)) {
			d.UseNumber()
			if err := d.Decode(&v); err != nil {
				return nil, err
			}
		}
		if rest, ok := strings.CutPrefix(key, "vestibule."); ok {
			own[rest] = v
			continue
		}
		m[key] = v
	}
	if len(own) > 0 {
		m["vestibule"] = own
	}
	var b bytes.Buffer
	err := json.NewEncoder(&b).Encode(m)
	return b.Bytes(), err
}

// rooms manages rooms by the API.
func rooms(args []string, stdout, stderr io.Writer) error {
	f, flags := flagSet("rooms", stderr), &clientFlags{}
	flags.add(f)
	file := f.StringP("file", "f", "", "apply, export: the rooms.yaml")
	prune := f.Bool("prune", false, "apply: delete the rooms and hosts that the file does not name")
	dry := f.Bool("dry-run", false, "apply: print what would change, and change nothing")
	c, words, done, err := flags.open(f, args, roomsUsage, stdout, stderr)
	if err != nil {
		return err
	}
	defer done()
	n := len(words)
	words = append(words, "", "")
	least := map[string]int{"list": 1, "get": 2, "create": 2, "set": 3, "delete": 2, "site": 3, "revisions": 2, "restore": 3, "apply": 1, "export": 1}[words[0]]
	if least == 0 || n < least || n > least && words[0] != "create" && words[0] != "set" || words[0] == "apply" && *file == "" {
		fmt.Fprint(stderr, roomsUsage)
		return node.ErrUsage
	}
	if _, err := c.verify(); err != nil {
		return err
	}
	switch words[0] {
	case "export":
		return c.export(*file)
	case "apply":
		return c.apply(*file, *dry, *prune)
	}
	err = c.rooms(words[0], words[1], words[2:max(2, n)], words)
	if bad, ok := errors.AsType[*pairError](err); ok {
		fmt.Fprintf(stderr, "vestibule rooms: %v\n", bad)
		return node.ErrUsage
	}
	return err
}

// pairError says that a KEY=VALUE is none.
type pairError struct{ error }

func (c *client) rooms(verb, name string, pairs, words []string) error {
	if verb == "list" {
		list, err := c.all()
		if err != nil {
			return err
		}
		return c.print(list, func(w io.Writer) {
			fmt.Fprintln(w, "NAME\tHOST\tPATH\tTOTAL\tPER MINUTE\tSESSION\tID")
			for _, r := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%v\t%s\n", r.Name, r.Host, r.Path, r.TotalActiveUsers, r.NewUsersPerMinute, r.Vestibule["session_duration"], r.Id)
			}
		})
	}
	if verb == "site" {
		var h api.Host
		data, err := json.Marshal(map[string]string{"origin": words[2]})
		if err != nil {
			return err
		}
		res, err := c.PutHost(c.ctx, name, data)
		if err := take(res, err, &h); err != nil {
			return err
		}
		return c.print(h, nil)
	}
	if verb == "revisions" || verb == "restore" {
		return c.revisions(verb, name, words[2])
	}
	if verb == "create" {
		pairs = append([]string{name}, pairs...)
	}
	data, err := body(pairs)
	if err != nil {
		return &pairError{err}
	}
	var r api.Room
	if verb == "create" {
		res, err := c.WaitingRoomCreateWaitingRoom(c.ctx, c.zone, data)
		if err := take(res, err, &r); err != nil {
			return err
		}
		return c.print(r, nil)
	}
	if r, err = c.find(name); err != nil {
		return err
	}
	switch verb {
	case "set":
		res, err := c.WaitingRoomPatchWaitingRoom(c.ctx, c.zone, r.Id, data)
		if err := take(res, err, &r); err != nil {
			return err
		}
	case "delete":
		res, err := c.WaitingRoomDeleteWaitingRoom(c.ctx, c.zone, r.Id)
		gone := map[string]any{}
		if err := take(res, err, &gone); err != nil {
			return err
		}
		return c.print(gone, nil)
	}
	return c.print(r, nil)
}

// status shows how many are inside and wait.
func status(args []string, stdout, stderr io.Writer) error {
	f, flags := flagSet("status", stderr), &clientFlags{}
	flags.add(f)
	watch := f.Bool("watch", false, "show it again every two seconds, until interrupted")
	c, words, done, err := flags.open(f, args, "usage: vestibule status [ROOM...] [--watch] [flags]\n", stdout, stderr)
	if err != nil {
		return err
	}
	defer done()
	if _, err := c.verify(); err != nil {
		return err
	}
	return c.again(*watch, func() error { return c.status(words) })
}

func (c *client) status(names []string) error {
	list, err := c.all()
	if err != nil {
		return err
	}
	type line struct {
		Name string `json:"name"`
		api.Status
	}
	lines := []line{}
	for _, r := range list {
		if len(names) > 0 && !slices.Contains(names, r.Name) && !slices.Contains(names, r.Id) {
			continue
		}
		l := line{Name: r.Name}
		res, err := c.WaitingRoomGetWaitingRoomStatus(c.ctx, c.zone, r.Id)
		if err := take(res, err, &l.Status); err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		lines = append(lines, l)
	}
	return c.print(lines, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tSTATUS\tINSIDE\tWAITING\tLONGEST WAIT\tAS OF")
		for _, l := range lines {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d min\t%s\n", l.Name, l.Status.Status, l.EstimatedTotalActiveUsers, l.EstimatedQueuedUsers, l.MaxEstimatedTimeMinutes, l.Vestibule.AsOf.Format(time.TimeOnly))
		}
	})
}
