package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

func newRoomsCmd() *cobra.Command {
	flags := &clientFlags{}
	return flags.group(&cobra.Command{
		Use: "rooms", Short: "Show and change rooms",
		Long: `Show and change rooms.

Keys are those of the API. vestibule.grace=2m and the like are settings of rooms.yaml that the hosted product does not
have. A value is read as JSON where it is valid JSON, otherwise as text.`,
	},
		&cobra.Command{
			Use: "list", Short: "Show all rooms", RunE: flags.run(func(c *client, _ []string) error { return listRooms(c) }),
		},
		&cobra.Command{
			Use: "get ROOM", Short: "Show a room, by name or ID, as JSON",
			RunE: flags.ofRoom(func(c *client, r *api.Room, _ []string) error { return c.showJSON(r) }),
		},
		&cobra.Command{
			Use: "create KEY=VALUE...", Short: "Create a room; name, host, total_active_users and new_users_per_minute are needed",
			Args: pairs(0),
			RunE: flags.run(func(c *client, args []string) error {
				return c.pass(http.MethodPost, inZone(), body(args))
			}),
		},
		&cobra.Command{
			Use: "set ROOM KEY=VALUE...", Short: "Change the named settings of a room", Args: pairs(1),
			RunE: flags.ofRoom(func(c *client, r *api.Room, args []string) error {
				return c.pass(http.MethodPatch, inZone(r.Id), body(args))
			}),
		},
		&cobra.Command{
			Use: "delete ROOM", Short: "Delete a room; its visitors go straight to the site",
			RunE: flags.ofRoom(func(c *client, r *api.Room, _ []string) error {
				return c.pass(http.MethodDelete, inZone(r.Id), nil)
			}),
		},
		&cobra.Command{
			Use: "site HOST URL", Short: "Set the site behind a host",
			RunE: flags.run(func(c *client, args []string) error {
				return c.pass(http.MethodPut, ofOurs("hosts", args[0]), object{"origin": args[1]})
			}),
		},
		&cobra.Command{
			Use: "revisions ROOM", Short: "Show the earlier states of a room and their authors",
			Long: "Show the earlier states of a room and their authors. A deleted room is named by its ID.",
			RunE: flags.run(func(c *client, args []string) error { return listRevisions(c, args[0]) }),
		},
		&cobra.Command{
			Use: "restore ROOM REVISION", Short: "Restore an earlier state of a room",
			Long: "Restore an earlier state of a room. A deleted room, named by its ID, is created again.",
			RunE: flags.run(func(c *client, args []string) error { return restoreRoom(c, args[0], args[1]) }),
		},
		newRoomsApplyCmd(flags), newRoomsExportCmd(flags))
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
		RunE: flags.run(func(c *client, _ []string) error { return applyRooms(c, file, dry, prune) }),
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
		RunE: flags.run(func(c *client, _ []string) error { return exportRooms(c, file) }),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file to write; waiting pages are written beside it")
	return cmd
}

func listRooms(c *client) error {
	list, err := c.all()
	if err != nil {
		return err
	}
	return c.show(list, func(row func(...any)) {
		row("NAME", "HOST", "PATH", "TOTAL", "PER MINUTE", "SESSION", "ID")
		for _, r := range list {
			row(r.Name, r.Host, r.Path, r.TotalActiveUsers, r.NewUsersPerMinute, r.Vestibule["session_duration"], r.Id)
		}
	})
}

// object is a JSON object in a request.
type object map[string]any

// pairs checks the arguments of a command that takes KEY=VALUE... after others.
func pairs(after int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := named(cmd, args); err != nil {
			return err
		}
		for _, p := range args[after:] {
			if key, _, ok := strings.Cut(p, "="); !ok || key == "" {
				return usagef("%q: must be KEY=VALUE", p)
			}
		}
		return nil
	}
}

// body makes a JSON object of KEY=VALUE arguments.
func body(pairs []string) object {
	all, own := object{}, object{}
	for _, p := range pairs {
		key, value, _ := strings.Cut(p, "=")
		var v any = value
		if json.Valid([]byte(value)) {
			v = json.RawMessage(value)
		}
		if rest, ok := strings.CutPrefix(key, "vestibule."); ok {
			own[rest], all["vestibule"] = v, own
		} else {
			all[key] = v
		}
	}
	return all
}

func newStatusCmd() *cobra.Command {
	flags, watch := &clientFlags{}, false
	cmd := &cobra.Command{
		Use: "status [ROOM...]", Short: "Show how many visitors are inside and wait",
		RunE: flags.run(func(c *client, args []string) error {
			return c.again(watch, func() error { return showStatus(c, args) })
		}),
	}
	flags.add(cmd, cmd.Flags())
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every two seconds, until interrupted")
	return cmd
}

func showStatus(c *client, names []string) error {
	list, err := c.all()
	if err != nil {
		return err
	}
	type line struct {
		Name string `json:"name"`
		api.Status
	}
	var chosen []api.Room
	for _, name := range names {
		r, err := roomOf(list, name)
		if err != nil {
			return err
		}
		chosen = append(chosen, *r)
	}
	if len(names) == 0 {
		chosen = list
	}
	lines := []line{}
	for _, r := range chosen {
		s, err := call[api.Status](c, http.MethodGet, inZone(r.Id, "status"), nil)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		lines = append(lines, line{r.Name, s})
	}
	return c.show(lines, func(row func(...any)) {
		row("NAME", "STATUS", "INSIDE", "WAITING", "LONGEST WAIT", "AS OF")
		for _, l := range lines {
			longest := fmt.Sprintf("%d min", l.MaxEstimatedTimeMinutes)
			row(l.Name, l.Status.Status, l.EstimatedTotalActiveUsers, l.EstimatedQueuedUsers, longest, l.Vestibule.AsOf)
		}
	})
}
