package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// completeWithin bounds the requests of a completion: a user waits at the keyboard.
const completeWithin = 2 * time.Second

// completers return the words that shells offer for an argument, by its name in Use. args are those before it.
var completers = map[string]func(c *client, args []string) ([]string, error){
	"ROOM":  func(c *client, _ []string) ([]string, error) { return c.roomNames() },
	"EVENT": func(c *client, args []string) ([]string, error) { return c.eventNames(args[0]) },
	"DC":    func(c *client, _ []string) ([]string, error) { return c.centreNames() },
	"RULE":  func(c *client, args []string) ([]string, error) { return c.rulePlaces(args[0]) },
}

// keysOf are the keys of KEY=VALUE arguments, by the group of the command.
var keysOf = map[string]func() []string{
	"rooms":  control.RoomKeys,
	"events": control.EventKeys,
	"rules": func() []string {
		return []string{"description", "enabled", "expression", "position.after", "position.before", "position.index"}
	},
}

// completeArgs offers words that begin with text for the next argument, by its name in Use.
func (c *clientFlags) completeArgs(
	cmd *cobra.Command, args []string, text string,
) (offered []cobra.Completion, how cobra.ShellCompDirective) {
	how = cobra.ShellCompDirectiveNoFileComp
	names := strings.Fields(cmd.Use)[1:]
	if len(names) == 0 || len(args) >= len(names) && !strings.Contains(names[len(names)-1], "...") {
		return nil, how
	}
	name := strings.Trim(names[min(len(args), len(names)-1)], "[].")
	if keys := keysOf[cmd.Parent().Name()]; name == "KEY=VALUE" && keys != nil {
		for _, key := range keys() {
			if strings.HasPrefix(key, text) {
				offered = append(offered, key+"=")
			}
		}
		return offered, how | cobra.ShellCompDirectiveNoSpace
	}
	if words := completers[name]; words != nil {
		return c.offer(cmd, args, text, words)
	}
	return nil, how
}

// offer offers the words that begin with text and are not among the arguments yet.
func (c *clientFlags) offer(
	cmd *cobra.Command, args []string, text string, words func(*client, []string) ([]string, error),
) (offered []cobra.Completion, how cobra.ShellCompDirective) {
	c.timeout = min(c.timeout, completeWithin)
	cl, err := c.open(cmd)
	if err == nil {
		offered, err = words(cl, args)
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.DeleteFunc(offered, func(word string) bool {
		return !strings.HasPrefix(word, text) || slices.Contains(args, word)
	}), cobra.ShellCompDirectiveNoFileComp
}

// offerRooms offers the names of rooms for a flag.
func (c *clientFlags) offerRooms(
	cmd *cobra.Command, _ []string, text string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.offer(cmd, nil, text, completers["ROOM"])
}

func (c *client) roomNames() (names []string, err error) {
	rooms, err := c.all()
	return namesOf(rooms, func(r *api.Room) string { return r.Name }), err
}

func (c *client) eventNames(room string) (names []string, err error) {
	r, err := c.find(room)
	if err != nil {
		return nil, err
	}
	events, err := eventsOf(c, r)
	return namesOf(events, func(e *api.Event) string { return e.Name }), err
}

func (c *client) centreNames() (names []string, err error) {
	all, err := c.members()
	if err != nil {
		return nil, err
	}
	return namesOf(all.DataCenters, func(d *api.Member) string { return d.Name }), nil
}

// rulePlaces offers the rules of a room by place, described by their expressions.
func (c *client) rulePlaces(room string) (places []string, err error) {
	r, err := c.find(room)
	if err != nil {
		return nil, err
	}
	rules, err := c.rules(r.Id)
	for i := range rules {
		places = append(places, cobra.CompletionWithDesc(fmt.Sprint(i+1), rules[i].Expression))
	}
	return places, err
}
