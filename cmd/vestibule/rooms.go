package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
)

func newRoomsCmd() *cobra.Command {
	flags := &clientFlags{}
	return flags.changes(&cobra.Command{
		Use: "rooms", Short: "Show and change rooms",
		Long: `Show and change rooms.

Keys are those of rooms.yaml, such as grace=2m, or of the API, such as vestibule.grace=2m. Values are written as in the
file: session_duration=90s. waiting_page=FILE reads the page from a file. A value is read as JSON where it is valid
JSON, otherwise as text; a number in the place of a text, such as name=2026, is text.`,
	},
		&cobra.Command{
			Use: "list", Short: "Show all rooms", RunE: flags.run(func(c *client, _ []string) error { return listRooms(c) }),
		},
		&cobra.Command{
			Use: "get ROOM", Short: "Show a room, by name or ID, as JSON",
			RunE: flags.ofRoom(func(c *client, r *api.Room, _ []string) error { return c.showJSON(r) }),
		},
		&cobra.Command{
			Use:   "create KEY=VALUE...",
			Short: "Create a room; name, host, total_active_users and new_users_per_minute are needed", Args: pairs(0),
			RunE: flags.run(func(c *client, args []string) error {
				b, err := body(args)
				if err != nil {
					return err
				}
				return change(c, http.MethodPost, inZone(), b, func(r api.Room) string {
					return fmt.Sprintf("created room %s for %s%s: total_active_users %d, new_users_per_minute %d", r.Name, r.Host,
						r.Path, r.TotalActiveUsers, r.NewUsersPerMinute)
				})
			}),
		},
		newRoomsSetCmd(flags),
		&cobra.Command{
			Use: "suspend ROOM", Short: "Let all visitors straight to the site, until rooms unsuspend",
			RunE: flags.ofRoom(func(c *client, r *api.Room, _ []string) error { return setRoom(c, r, object{"suspended": true}) }),
		},
		&cobra.Command{
			Use: "unsuspend ROOM", Short: "End the suspension of a room",
			RunE: flags.ofRoom(func(c *client, r *api.Room, _ []string) error { return setRoom(c, r, object{"suspended": false}) }),
		},
		newRoomsDeleteCmd(flags),
		newRoomsSiteCmd(flags),
		&cobra.Command{
			Use: "revisions ROOM", Short: "Show the revisions of a room, also of a deleted one",
			RunE: flags.run(func(c *client, args []string) error { return listRevisions(c, args[0]) }),
		},
		&cobra.Command{
			Use:   "restore ROOM [REVISION]",
			Short: "Undo the last change of a room, or restore a revision; also of a deleted room",
			RunE:  flags.run(func(c *client, args []string) error { return restoreRoom(c, args[0], args[1:]) }),
		},
		newRoomsApplyCmd(flags), newRoomsExportCmd(flags))
}

func newRoomsSetCmd(flags *clientFlags) *cobra.Command {
	ask := &confirmation{}
	cmd := &cobra.Command{
		Use: "set ROOM KEY=VALUE...", Short: "Change the named settings of a room", Args: pairs(1),
		RunE: flags.ofRoom(func(c *client, r *api.Room, args []string) error {
			b, err := body(args)
			if err != nil {
				return err
			}
			if err := ask.limits(c, "room "+r.Name, limitsOf(b, r.TotalActiveUsers, r.NewUsersPerMinute)); err != nil {
				return err
			}
			return setRoom(c, r, b)
		}),
	}
	ask.addTo(cmd, withoutAsking)
	return cmd
}

// setRoom changes settings of a room and shows those that differ.
func setRoom(c *client, r *api.Room, body object) error {
	return change(c, http.MethodPatch, inZone(r.Id), body, func(after api.Room) string {
		return fmt.Sprintf("room %s: %s", r.Name, differences(r, after))
	})
}

func newRoomsDeleteCmd(flags *clientFlags) *cobra.Command {
	ask := &confirmation{}
	cmd := &cobra.Command{
		Use: "delete ROOM", Short: "Delete a room; its visitors go straight to the site",
		Long: `Delete a room. Its visitors go straight to the site, until rooms site HOST --remove. rooms restore ROOM undoes it.`,
		RunE: flags.ofRoom(func(c *client, r *api.Room, _ []string) error {
			if err := ask.deletion(c, []string{r.Name}, nil, nil); err != nil {
				return err
			}
			return change(c, http.MethodDelete, inZone(r.Id), nil, func(any) string {
				return fmt.Sprintf("deleted room %s: %s is served without a room (rooms restore %s undoes it, rooms site %s --remove ends it)",
					r.Name, r.Host, r.Name, r.Host)
			})
		}),
	}
	ask.add(cmd)
	return cmd
}

func newRoomsSiteCmd(flags *clientFlags) *cobra.Command {
	remove := false
	cmd := &cobra.Command{
		Use: "site HOST [URL]", Short: "Set or remove the site behind a host",
		RunE: flags.run(func(c *client, args []string) error {
			host := args[0]
			switch {
			case strings.Contains(host, "/"):
				return usagef("HOST: must be a bare name such as shop.example, got %q", host)
			case remove && len(args) == 1:
				return removeSite(c, host)
			case remove || len(args) == 1:
				return usageError("URL: must be given, or --remove alone")
			}
			return change(c, http.MethodPut, ofOurs("hosts", host), object{"origin": args[1]}, func(h api.Host) string {
				return fmt.Sprintf("the site of host %s is %s", h.Name, h.Origin)
			})
		}),
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the site: without rooms the host gets 421")
	return cmd
}

// removeSite removes the entry of a host.
func removeSite(c *client, host string) error {
	err := change(c, http.MethodDelete, ofOurs("hosts", host), nil,
		func(any) string { return "removed the site of host " + host })
	if _, none := errors.AsType[*missingError](err); none {
		all, listErr := pages[api.Host](c, ofOurs("hosts"), 0)
		if listErr != nil {
			return err
		}
		return noSuch("no site of a host", host, all, func(h *api.Host) string { return h.Name }, " is stored")
	}
	return err
}

func newRoomsApplyCmd(flags *clientFlags) *cobra.Command {
	file, dry, prune, ask := "", false, false, &confirmation{}
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or replace the rooms and hosts of a rooms.yaml, all or none, and print the changes",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageError("file: is needed\nusage: " + cmd.UseLine())
			}
			return nil
		},
		RunE: flags.run(func(c *client, _ []string) error { return applyRooms(c, file, dry, prune, ask) }),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the rooms.yaml")
	cmd.Flags().BoolVar(&prune, "prune", false, "delete the rooms and hosts that the file does not name")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the changes without applying them")
	ask.add(cmd)
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
	return showList(c, list, []any{"NAME", "HOST", "PATH", "TOTAL", "PER MINUTE", "SESSION", "ID"}, func(r *api.Room) []any {
		return []any{r.Name, r.Host, r.Path, r.TotalActiveUsers, r.NewUsersPerMinute, r.Vestibule["session_duration"], r.Id}
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
				return misuse(cmd, "%q: must be KEY=VALUE, such as name=shop or total_active_users=300", p)
			}
		}
		return nil
	}
}

// texts are the keys of texts, which may look like a number: those of settings, and of rules, events and routes.
var texts = func() map[string]bool {
	all := map[string]bool{
		"description": true, "cookie_suffix": true, "expression": true, "before": true, "after": true,
	}
	for i := range room.Schema {
		_, all[room.Schema[i].Key] = room.Schema[i].Field(&room.Settings{}).(*string)
	}
	return all
}()

// isText reports whether the value of a key is text although it is JSON: a number, true or false.
func isText(key, value string) bool {
	return texts[key[strings.LastIndexByte(key, '.')+1:]] && value != "null" && !strings.ContainsAny(value[:1], `"[{`)
}

// isTime reports whether the value of a key is a time as people write it: 20.15 is valid JSON, and none.
func isTime(key, value string) bool {
	return strings.HasSuffix(key, "_time") && value != "null" && !strings.HasPrefix(value, `"`)
}

// body makes a JSON object of KEY=VALUE arguments. A dot in a key leads into a nested object. Times may be relative. The
// value of waiting_page is a file, as in rooms.yaml.
func body(pairs []string) (object, error) {
	all, given := object{}, map[string]bool{}
	for _, p := range pairs {
		key, value, _ := strings.Cut(p, "=")
		if given[key] {
			return nil, usagef("%s: is given twice", key)
		}
		given[key] = true
		var v any = value
		switch {
		case key == "waiting_page" && value != "":
			page, err := os.ReadFile(value)
			if err != nil {
				return nil, usagef("waiting_page: must be a file: %v", err)
			}
			key, v = "custom_page_html", string(page)
		case key == "waiting_page":
			key, v = "custom_page_html", nil
		case key == "session_duration" && strings.Trim(value, "0123456789") == "" && value != "":
			// The hosted product counts minutes, the file seconds or minutes by their unit.
			return nil, usagef("session_duration: must have a unit, such as %sm or %ss", value, value)
		case json.Valid([]byte(value)) && !isText(key, value) && !isTime(key, value):
			v = json.RawMessage(value)
		case isTime(key, value):
			at, err := parseTime(value, time.Now())
			if err != nil {
				return nil, usagef("%s: %v", key, err)
			}
			v = at.UTC().Format(time.RFC3339)
		}
		in := all
		outer, rest, nested := strings.Cut(key, ".")
		for ; nested; outer, rest, nested = strings.Cut(rest, ".") {
			next, ok := in[outer].(object)
			if !ok {
				next = object{}
				in[outer] = next
			}
			in = next
		}
		in[outer] = v
	}
	return all, nil
}
