package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

func newRoomsCmd() *cobra.Command {
	flags := &clientFlags{}
	cmd := &cobra.Command{
		Use: "rooms", Short: "Show and change rooms",
		Long: `Show and change rooms.

Keys are those of the API. vestibule.grace=2m and the like are settings of rooms.yaml that the hosted product does not
have. A value is read as JSON where it is valid JSON, otherwise as text.`,
	}
	flags.add(cmd, cmd.PersistentFlags())
	cmd.AddCommand(newRoomsListCmd(flags), newRoomsGetCmd(flags), newRoomsCreateCmd(flags), newRoomsSetCmd(flags), newRoomsDeleteCmd(flags),
		newRoomsSiteCmd(flags), newRoomsRevisionsCmd(flags), newRoomsRestoreCmd(flags), newRoomsApplyCmd(flags), newRoomsExportCmd(flags))
	return cmd
}

func newRoomsListCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "Show all rooms",
		RunE: flags.run(func(c *client, _ []string) error {
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
		}),
	}
}

func newRoomsGetCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "get ROOM", Short: "Show a room, by name or ID, as JSON", ValidArgsFunction: flags.completeRoom,
		RunE: flags.ofRoom(func(c *client, r api.Room) error { return c.print(r, nil) }),
	}
}

func newRoomsCreateCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "create KEY=VALUE...", Short: "Create a room; name, host, total_active_users and new_users_per_minute are needed",
		RunE: flags.run(func(c *client, args []string) error {
			data, err := body(args)
			if err != nil {
				return err
			}
			var r api.Room
			res, err := c.WaitingRoomCreateWaitingRoom(c.ctx, c.zone, data)
			if err := take(res, err, &r); err != nil {
				return err
			}
			return c.print(r, nil)
		}),
	}
}

func newRoomsSetCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "set ROOM KEY=VALUE...", Short: "Change the named settings of a room", ValidArgsFunction: flags.completeRoom,
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := body(args[1:])
			if err != nil {
				return err
			}
			return flags.ofRoom(func(c *client, r api.Room) error {
				res, err := c.WaitingRoomPatchWaitingRoom(c.ctx, c.zone, r.Id, data)
				if err := take(res, err, &r); err != nil {
					return err
				}
				return c.print(r, nil)
			})(cmd, args)
		},
	}
}

func newRoomsDeleteCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "delete ROOM", Short: "Delete a room; its visitors go straight to the site", ValidArgsFunction: flags.completeRoom,
		RunE: flags.ofRoom(func(c *client, r api.Room) error {
			gone := map[string]any{}
			res, err := c.WaitingRoomDeleteWaitingRoom(c.ctx, c.zone, r.Id)
			if err := take(res, err, &gone); err != nil {
				return err
			}
			return c.print(gone, nil)
		}),
	}
}

func newRoomsSiteCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "site HOST URL", Short: "Set the site behind a host",
		RunE: flags.run(func(c *client, args []string) error {
			data, err := json.Marshal(map[string]string{"origin": args[1]})
			if err != nil {
				return err
			}
			var h api.Host
			res, err := c.PutHost(c.ctx, args[0], data)
			if err := take(res, err, &h); err != nil {
				return err
			}
			return c.print(h, nil)
		}),
	}
}

func newRoomsRevisionsCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "revisions ROOM", Short: "Show the earlier states of a room and their authors", ValidArgsFunction: flags.completeRoom,
		Long: "Show the earlier states of a room and their authors. A deleted room is named by its ID.",
		RunE: flags.run(func(c *client, args []string) error { return c.revisions(args[0]) }),
	}
}

func newRoomsRestoreCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "restore ROOM REVISION", Short: "Restore an earlier state of a room", ValidArgsFunction: flags.completeRoom,
		Long: "Restore an earlier state of a room. A deleted room, named by its ID, is created again.",
		RunE: flags.run(func(c *client, args []string) error { return c.restore(args[0], args[1]) }),
	}
}

func newRoomsApplyCmd(flags *clientFlags) *cobra.Command {
	file, dry, prune := "", false, false
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Create or replace the rooms and hosts of a rooms.yaml, all or none, and print the changes",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageError("file: is needed\nusage: " + cmd.UseLine())
			}
			return nil
		},
		RunE: flags.run(func(c *client, _ []string) error { return c.apply(file, dry, prune) }),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the rooms.yaml")
	cmd.Flags().BoolVar(&prune, "prune", false, "delete the rooms and hosts that the file does not name")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the changes without applying them")
	return cmd
}

func newRoomsExportCmd(flags *clientFlags) *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use: "export", Short: "Print all rooms as a rooms.yaml for rooms apply, or write it with its waiting pages",
		RunE: flags.run(func(c *client, _ []string) error { return c.export(file) }),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file to write; waiting pages are written beside it")
	return cmd
}

// ofRoom returns the run function of a command whose first argument is ROOM.
func (c *clientFlags) ofRoom(do func(c *client, r api.Room) error) func(cmd *cobra.Command, args []string) error {
	return c.run(func(cl *client, args []string) error {
		r, err := cl.find(args[0])
		if err != nil {
			return err
		}
		return do(cl, r)
	})
}

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

// body makes a JSON object of KEY=VALUE arguments. It returns a usageError for others.
func body(pairs []string) (json.RawMessage, error) {
	m, own := map[string]any{}, map[string]any{}
	for _, p := range pairs {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" {
			return nil, usagef("%q: must be KEY=VALUE", p)
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

func newStatusCmd() *cobra.Command {
	flags, watch := &clientFlags{}, false
	cmd := &cobra.Command{
		Use: "status [ROOM...]", Short: "Show how many visitors are inside and wait", ValidArgsFunction: flags.completeRoom,
		RunE: flags.run(func(c *client, args []string) error { return c.again(watch, func() error { return c.status(args) }) }),
	}
	flags.add(cmd, cmd.Flags())
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every two seconds, until interrupted")
	return cmd
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
