package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

// controlFlags are the flags of controls.
type controlFlags struct {
	clientFlags
	until, reason string
	lasts         time.Duration
}

func (c *controlFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	c.clientFlags.add(cmd, f)
	f.StringVar(&c.until, "until", "", "when it ends, such as 2026-11-22T20:15:00Z or \"in 10m\"")
	f.Var((*lasting)(&c.lasts), "for", "how long it lasts, in place of --until")
	f.StringVar(&c.reason, "reason", "", "the reason, shown with the control")
}

// lasting is a flag with a duration, also in days.
type lasting time.Duration

func (l *lasting) String() string {
	if *l == 0 {
		return ""
	}
	return time.Duration(*l).String()
}

// errTooShort is the rule for a duration that must not be 0.
var errTooShort = errors.New("longer than 0, such as 30m")

// Type implements [pflag.Value].
func (l *lasting) Type() string { return "duration" }

func (l *lasting) Set(text string) error {
	d, err := parseDuration(text)
	if err == nil && d <= 0 {
		err = errTooShort
	}
	*l = lasting(d)
	return err
}

// mark returns the end that the flags name, or their fault.
func (c *controlFlags) mark(now time.Time) (m object, fault string) {
	m = object{}
	switch {
	case c.until != "" && c.lasts != 0:
		return nil, "until, for: one of them only"
	case c.lasts > 0:
		m["until"] = now.Add(c.lasts).UTC().Format(time.RFC3339Nano)
	case c.until != "":
		until, err := parseTime(c.until, now)
		if err != nil {
			return nil, fmt.Sprintf("until: %v", err)
		}
		m["until"] = until.UTC().Format(time.RFC3339Nano)
	}
	return m, ""
}

// control returns the run function of a command that sets a control of a room. body makes the request from the
// arguments after the room and the end in the flags; nil shows the controls in force. It returns the fault of the
// arguments.
func (c *controlFlags) control(body func(words []string, mark object) (b object, fault string)) runFunc {
	return func(cmd *cobra.Command, args []string) error {
		mark, fault := c.mark(time.Now())
		var b object
		if fault == "" {
			b, fault = body(args[1:], mark)
		}
		if fault != "" {
			return usagef("%s", fault)
		}
		if b != nil && c.reason != "" {
			b["reason"] = c.reason
		}
		return c.ofRoom(func(cl *client, r *api.Room, _ []string) error {
			method := http.MethodPatch
			if b == nil {
				method = http.MethodGet
			}
			if limits, ok := b["limits"].(object); ok {
				if err := keepOther(cl, r, limits); err != nil {
					return err
				}
			}
			now, err := call[api.Controls](cl, method, ofOurs("rooms", r.Id, "controls"), b)
			if err != nil {
				return err
			}
			return cl.show(now, func(row func(...any)) { showControls(row, &now) })
		})(cmd, args)
	}
}

// keepOther adds to limits for now the one that is in force for now and is not given: the API replaces both.
func keepOther(c *client, r *api.Room, limits object) error {
	if len(limits) == 3 { // both, and the end
		return nil
	}
	now, err := call[api.Controls](c, http.MethodGet, ofOurs("rooms", r.Id, "controls"), nil)
	if err != nil || now.Limits == nil {
		return err
	}
	for key, n := range map[string]*int{
		"total_active_users": now.Limits.TotalActiveUsers, "new_users_per_minute": now.Limits.NewUsersPerMinute,
	} {
		if limits[key] == nil && n != nil {
			limits[key] = *n
		}
	}
	return nil
}

func showControls(row func(...any), c *api.Controls) {
	row("ROOM", "CONTROL", "UNTIL", "SINCE", "BY", "REASON")
	line := func(m *api.Control, what string) { row(c.Room, what, m.Until, m.Since, m.By, m.Reason) }
	limits := fmt.Sprintf("limits %d, %d per minute", c.InForce.TotalActiveUsers, c.InForce.NewUsersPerMinute)
	if m := c.Pause; m != nil {
		line(m, strings.TrimSpace("paused "+quoted(m.Message)))
	}
	if m := c.QueueAll; m != nil {
		line(m, "all wait")
	}
	if m := c.Message; m != nil {
		line(m, "message "+quoted(m.Text))
	}
	if m := c.Limits; m != nil {
		line(m, limits)
	}
	if c.Pause == nil && c.QueueAll == nil && c.Message == nil && c.Limits == nil {
		row(c.Room, "none: "+limits)
	}
}

func quoted(s *string) string {
	if s == nil || *s == "" {
		return ""
	}
	return fmt.Sprintf("%q", *s)
}

// oneText refuses a text that the shell split into several arguments.
func oneText(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 2 {
			return usagef("%s: must be one word of the command line, in quotes", name)
		}
		return named(cmd, args)
	}
}

func newPauseCmd() *cobra.Command {
	flags := &controlFlags{}
	cmd := &cobra.Command{
		Use: "pause ROOM [MESSAGE]", Short: "Admit no visitors for now", Args: oneText("MESSAGE"),
		Long: `Admit no visitors for now: all wait and keep their places, and sessions go on. The page shows MESSAGE. The pause holds until
vestibule resume, --until or --for. Changes of the room (the API, Terraform, rooms.yaml) do not end it.`,
		RunE: flags.control(func(words []string, mark object) (object, string) {
			if len(words) == 1 {
				mark["message"] = words[0]
			}
			return object{"pause": mark}, ""
		}),
	}
	flags.add(cmd)
	return cmd
}

func newResumeCmd() *cobra.Command {
	flags := &controlFlags{}
	cmd := &cobra.Command{
		Use: "resume ROOM", Short: "End a pause, or a queue_all for now",
		RunE: flags.control(func(_ []string, mark object) (object, string) {
			if len(mark) > 0 {
				return nil, "until, for: a pause ends at once"
			}
			return object{"pause": nil, "queue_all": nil}, ""
		}),
	}
	flags.add(cmd)
	return cmd
}

func newMessageCmd() *cobra.Command {
	flags, clear := &controlFlags{}, false
	cmd := &cobra.Command{
		Use: "message ROOM [TEXT]", Short: "Show a text on the waiting page for now", Args: oneText("TEXT"),
		Long: "Show TEXT on the waiting page for now, in place of the room's queue_message.",
		RunE: flags.control(func(words []string, mark object) (object, string) {
			switch {
			case clear && len(words)+len(mark) == 0:
				return object{"message": nil}, ""
			case clear || len(words) != 1 || words[0] == "":
				return nil, "TEXT: must be given, or --clear alone"
			}
			mark["text"] = words[0]
			return object{"message": mark}, ""
		}),
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&clear, "clear", false, "end the message")
	return cmd
}

func newLimitsCmd() *cobra.Command {
	flags, total, rate, clear := &controlFlags{}, 0, 0, false
	cmd := &cobra.Command{
		Use: "limits ROOM", Short: "Set a room's limits for now, or show those in force",
		Long: `Set total_active_users and new_users_per_minute for now; --until or --for is needed. Where both have values for now,
the one that is not given keeps its value, until the new end. Without flags: show the limits in force.`,
		Example: "  vestibule limits shop --total 300 --per-minute 60 --for 30m",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			for name, n := range map[string]int{"total": total, "per-minute": rate} {
				if cmd.Flags().Changed(name) && n < 1 {
					return usagef("%s: must be above 0, got %d; vestibule pause admits nobody", name, n)
				}
			}
			return nil
		},
		RunE: flags.control(func(_ []string, mark object) (object, string) {
			set := total != 0 || rate != 0
			switch {
			case clear && (set || len(mark) > 0):
				return nil, "clear: must be given alone"
			case clear:
				return object{"limits": nil}, ""
			case !set && (len(mark) > 0 || flags.reason != ""):
				return nil, "total, per-minute: one of them is needed"
			case !set:
				return nil, ""
			case mark["until"] == nil:
				return nil, "for, until: limits for now need an end"
			}
			if total != 0 {
				mark["total_active_users"] = total
			}
			if rate != 0 {
				mark["new_users_per_minute"] = rate
			}
			return object{"limits": mark}, ""
		}),
	}
	flags.add(cmd)
	cmd.Flags().IntVar(&total, "total", 0, "total_active_users")
	cmd.Flags().IntVar(&rate, "per-minute", 0, "new_users_per_minute")
	cmd.Flags().BoolVar(&clear, "clear", false, "return to the room's own limits")
	return cmd
}
