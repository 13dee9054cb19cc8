package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"vestibule/internal/core/ticket"
	"vestibule/internal/global/control/api"
)

func newVisitorCmd() *cobra.Command {
	flags := &clientFlags{}
	cmd := &cobra.Command{
		Use: "visitor NUMBER", Short: "Find a visitor by the reference number of the waiting page",
		Long: `Find a visitor's session by the reference number of the waiting page, such as 482-177-301: its room, data centre and edge, and
when it ends without another request. Of visitors that wait nobody keeps a list; their receipt of a draw has the number:
see vestibule verify-draw --number. Without a session the exit code is 1. One number in a thousand million is another visitor's too.`,
		RunE: flags.run(showVisitor),
	}
	flags.add(cmd, cmd.Flags())
	return cmd
}

func showVisitor(c *client, args []string) error {
	if _, err := ticket.ParseNumber(args[0]); err != nil {
		return usagef("NUMBER: %v", err)
	}
	got, err := call[api.Visitor](c, http.MethodGet, ofOurs("visitors", args[0]), nil)
	if err != nil {
		return err
	}
	err = c.show(got, func(row func(...any)) {
		if len(got.Sessions) == 0 {
			row("no session has this number: the visitor waits, has left, or comes from elsewhere")
		} else {
			row("ROOM", "DATA CENTRE", "EDGE", "INSIDE UNTIL")
		}
		for _, s := range got.Sessions {
			row(s.Room, s.DataCenter, s.Edge, s.Until)
		}
		if len(got.Silent) > 0 {
			row("no answer of " + strings.Join(got.Silent, ", "))
		}
	})
	if err == nil && len(got.Sessions) == 0 {
		err = fmt.Errorf("no session of visitor %s was found", args[0])
	}
	return err
}
