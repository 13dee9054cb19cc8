package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

const (
	pauseUsage = `usage: vestibule pause ROOM [MESSAGE] [flags]

Lets nobody new in; everybody waits, places are kept, who is inside stays. MESSAGE is shown to those who wait.
It holds until vestibule resume, or until --until or --for. What writes the room (the API, Terraform, rooms.yaml) does not undo it.
Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not reachable.
`
	resumeUsage = `usage: vestibule resume ROOM [flags]

Takes vestibule pause back.
`
	messageUsage = `usage: vestibule message ROOM TEXT [flags]; vestibule message ROOM --clear

Shows TEXT to those who wait, in place of the room's queue_message.
`
	limitsUsage = `usage: vestibule limits ROOM [--total N] [--per-minute N] --for 30m [flags]; vestibule limits ROOM --clear; vestibule limits ROOM

Sets total_active_users and new_users_per_minute for now. They need an end. Without any of them: shows what is in force.
`
)

// controlFlags are those of what is said for now.
type controlFlags struct {
	clientFlags
	until, reason string
	lasts         time.Duration
}

func (c *controlFlags) add(f *pflag.FlagSet) {
	c.clientFlags.add(f)
	f.StringVar(&c.until, "until", "", "when it ends, such as 2026-11-22T20:15:00Z")
	f.DurationVar(&c.lasts, "for", 0, "how long it lasts, in place of --until")
	f.StringVar(&c.reason, "reason", "", "why, for those who look later")
}

// mark is what the flags say of when and why; fault says what is wrong with them.
func (c *controlFlags) mark(now time.Time) (m map[string]any, fault string) {
	m = map[string]any{}
	switch {
	case c.until != "" && c.lasts != 0:
		return nil, "until, for: one of them only"
	case c.lasts < 0:
		return nil, fmt.Sprintf("for: must be above 0, got %v", c.lasts)
	case c.lasts > 0:
		m["until"] = now.Add(c.lasts).UTC().Format(time.RFC3339Nano)
	case c.until != "":
		if _, err := time.Parse(time.RFC3339, c.until); err != nil {
			return nil, fmt.Sprintf("until: must be a time such as 2026-11-22T20:15:00Z, got %q", c.until)
		}
		m["until"] = c.until
	}
	return m, ""
}

// control runs a command that says something of a room for now. body makes the request of the words after the room
// and of what the flags say of its end; nil asks what is in force. It returns what is wrong with the words.
func control(command, usage string, args []string, stdout, stderr io.Writer, extra func(*pflag.FlagSet),
	body func(words []string, mark map[string]any) (b map[string]any, fault string),
) error {
	f, flags := flagSet(command, stderr), &controlFlags{}
	flags.add(f)
	if extra != nil {
		extra(f)
	}
	c, words, done, err := flags.open(f, args, usage, stdout, stderr)
	if err != nil {
		return err
	}
	defer done()
	mark, fault := flags.mark(time.Now())
	var b map[string]any
	switch {
	case fault != "":
	case len(words) == 0:
		fault = "ROOM: is needed"
	default:
		b, fault = body(words[1:], mark)
	}
	if fault != "" {
		fmt.Fprintf(stderr, "%s: %s (see --help)\n", f.Name(), fault)
		return node.ErrUsage
	}
	if _, err := c.verify(); err != nil {
		return err
	}
	r, err := c.find(words[0])
	if err != nil {
		return err
	}
	var now api.Controls
	if b == nil {
		res, err2 := c.GetControls(c.ctx, r.Id)
		err = take(res, err2, &now)
	} else {
		if flags.reason != "" {
			b["reason"] = flags.reason
		}
		data, err2 := json.Marshal(b)
		if err2 != nil {
			return err2
		}
		res, err2 := c.PatchControls(c.ctx, r.Id, data)
		err = take(res, err2, &now)
	}
	if err != nil {
		return err
	}
	return c.print(now, func(w io.Writer) { showControls(w, &now) })
}

func showControls(w io.Writer, c *api.Controls) {
	fmt.Fprintln(w, "ROOM\tSAYS\tUNTIL\tSINCE\tBY\tREASON")
	line := func(says string, m *api.Control) {
		until := "taken back"
		if m.Until != nil {
			until = m.Until.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Room, says, until, m.Since.Format(time.RFC3339), m.By, m.Reason)
	}
	if m := c.Pause; m != nil {
		line(strings.TrimSpace("paused "+quoted(m.Message)), m)
	}
	if m := c.QueueAll; m != nil {
		line("all wait", m)
	}
	if m := c.Message; m != nil {
		line("message "+quoted(m.Text), m)
	}
	if m := c.Limits; m != nil {
		line(fmt.Sprintf("limits %d, %d per minute", c.InForce.TotalActiveUsers, c.InForce.NewUsersPerMinute), m)
	}
	if c.Pause == nil && c.QueueAll == nil && c.Message == nil && c.Limits == nil {
		fmt.Fprintf(w, "%s\tnothing for now: limits %d, %d per minute\t\t\t\t\n", c.Room, c.InForce.TotalActiveUsers, c.InForce.NewUsersPerMinute)
	}
}

func quoted(s *string) string {
	if s == nil || *s == "" {
		return ""
	}
	return fmt.Sprintf("%q", *s)
}

func pause(args []string, stdout, stderr io.Writer) error {
	return control("pause", pauseUsage, args, stdout, stderr, nil, func(words []string, mark map[string]any) (map[string]any, string) {
		if len(words) > 1 {
			return nil, "MESSAGE: must be one word of the command line, in quotes"
		}
		if len(words) == 1 {
			mark["message"] = words[0]
		}
		return map[string]any{"pause": mark}, ""
	})
}

func resume(args []string, stdout, stderr io.Writer) error {
	return control("resume", resumeUsage, args, stdout, stderr, nil, func(words []string, mark map[string]any) (map[string]any, string) {
		if len(words) > 0 || len(mark) > 0 {
			return nil, "takes nothing but ROOM and --reason"
		}
		return map[string]any{"pause": nil}, ""
	})
}

func message(args []string, stdout, stderr io.Writer) error {
	clear := false
	return control("message", messageUsage, args, stdout, stderr, func(f *pflag.FlagSet) {
		f.BoolVar(&clear, "clear", false, "take the message back")
	}, func(words []string, mark map[string]any) (map[string]any, string) {
		switch {
		case clear && len(words)+len(mark) == 0:
			return map[string]any{"message": nil}, ""
		case clear || len(words) != 1:
			return nil, "TEXT: must be one word of the command line, in quotes, or --clear be given alone"
		}
		mark["text"] = words[0]
		return map[string]any{"message": mark}, ""
	})
}

func limits(args []string, stdout, stderr io.Writer) error {
	total, rate, clear := 0, 0, false
	return control("limits", limitsUsage, args, stdout, stderr, func(f *pflag.FlagSet) {
		f.IntVar(&total, "total", 0, "total_active_users")
		f.IntVar(&rate, "per-minute", 0, "new_users_per_minute")
		f.BoolVar(&clear, "clear", false, "go by the room's own limits again")
	}, func(words []string, mark map[string]any) (map[string]any, string) {
		set := total != 0 || rate != 0
		switch {
		case len(words) > 0:
			return nil, "takes nothing but ROOM and flags"
		case clear && (set || len(mark) > 0):
			return nil, "clear: must be given alone"
		case clear:
			return map[string]any{"limits": nil}, ""
		case !set && len(mark) > 0:
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
		return map[string]any{"limits": mark}, ""
	})
}
