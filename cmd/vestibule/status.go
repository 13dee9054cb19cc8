package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
)

func newStatusCmd() *cobra.Command {
	flags, watch := &clientFlags{}, false
	cmd := &cobra.Command{
		Use: "status [ROOM...]", Short: "Show how many visitors are inside and wait, why nobody enters, and the next event",
		RunE: flags.run(func(c *client, args []string) error {
			return c.again(watch, func() error { return showStatus(c, args) })
		}),
	}
	flags.add(cmd, cmd.Flags())
	addWatch(cmd, &watch)
	return cmd
}

func addWatch(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVar(watch, "watch", false, "show it again every two seconds, until interrupted")
}

// again calls show, and with watch set repeats it every two seconds, on a terminal in the same place. After the first
// time it goes on without an answer: a leader may be replaced.
func (c *client) again(watch bool, show func() error) error {
	for shown := false; ; {
		if watch && isTerminal(c.out) {
			fmt.Fprint(c.out, "\x1b[H\x1b[J") // go to the top and clear the rest
		}
		err := show()
		if watch && c.ctx.Err() != nil {
			return nil
		}
		if _, silent := errors.AsType[*unreachableError](err); shown && silent {
			fmt.Fprintf(c.err, "%s %v\n", cellText(time.Now()), err)
			err = nil
		}
		if err != nil || !watch {
			return err
		}
		shown = true
		select {
		case <-c.ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// status returns the state of rooms by name or ID, of all rooms if none is named.
func (c *client) status(rooms ...string) ([]api.Status, error) {
	target := ofOurs("status")
	if len(rooms) > 0 {
		target += "?" + url.Values{"room": rooms}.Encode()
	}
	return call[[]api.Status](c, http.MethodGet, target, nil)
}

func showStatus(c *client, rooms []string) error {
	list, err := c.status(rooms...)
	if err != nil {
		return err
	}
	return c.show(list, func(row func(...any)) {
		row("NAME", "STATE", "INSIDE", "WAITING", "LONGEST WAIT", "PER MINUTE", "NEXT", "MESSAGE")
		var asOf time.Time
		for i := range list {
			s := &list[i]
			own := &s.Vestibule
			inside := fmt.Sprintf("%d/%d", s.EstimatedTotalActiveUsers, own.TotalActiveUsers)
			if !own.Complete {
				inside += ", not all data centres report"
			}
			row(own.Room, stateWords(s), inside, s.EstimatedQueuedUsers, fmt.Sprintf("%d min", s.MaxEstimatedTimeMinutes),
				fmt.Sprintf("%.0f/%d", own.AdmittedPerMinute, own.NewUsersPerMinute), nextEvent(own.Next, time.Now()), own.Message)
			if asOf.IsZero() || own.AsOf.Before(asOf) {
				asOf = own.AsOf
			}
		}
		if len(list) == 0 {
			row("no rooms: vestibule rooms create makes one")
			return
		}
		row(fmt.Sprintf("as of %s", cellText(asOf)))
		showStops(row, list)
	})
}

// showStops shows why nobody enters: a reason that all rooms have once.
func showStops(row func(...any), list []api.Status) {
	rooms := map[string][]string{} // by line
	var lines []string
	for i := range list {
		own := &list[i].Vestibule
		for _, s := range own.Stops {
			since := "unknown"
			if s.Since != nil {
				since = cellText(*s.Since)
			}
			line := strings.Join([]string{cmp.Or(s.DataCenter, "all"), since, s.Text, s.Command}, "\x00")
			if rooms[line] == nil {
				lines = append(lines, line)
			}
			rooms[line] = append(rooms[line], own.Room)
		}
	}
	if len(lines) == 0 {
		return
	}
	row()
	row("NOBODY ENTERS", "DATA CENTRE", "SINCE", "WHY", "COMMAND")
	for _, line := range lines {
		name := strings.Join(rooms[line], " ")
		if n := len(rooms[line]); n > 3 {
			name = fmt.Sprintf("%d rooms", n)
		}
		cells := []any{name}
		for c := range strings.SplitSeq(line, "\x00") {
			cells = append(cells, c)
		}
		row(cells...)
	}
}

// stateWords returns the state of a room in words.
func stateWords(s *api.Status) string {
	own := &s.Vestibule
	words := []string{map[api.StatusStatus]string{
		api.NotQueueing: "open", api.Queueing: "queueing", api.EventPrequeueing: "before event", api.Suspended: "suspended",
	}[s.Status]}
	switch {
	case s.Status == api.Suspended: // whatever the controls say, every visitor passes
		return words[0]
	case slices.Contains(own.Controls, "pause"):
		words[0] = "paused"
	case own.QueueingMethod == room.MethodReject && s.Status != api.EventPrequeueing:
		words[0] = "rejecting"
	}
	if slices.Contains(own.Controls, "queue_all") {
		words = append(words, "all wait")
	}
	if own.Event != "" && s.Status != api.EventPrequeueing {
		words = append(words, "event "+own.Event)
	}
	if slices.Contains(own.Controls, "limits") {
		words = append(words, "limits for now")
	}
	return strings.Join(words, ", ")
}

// nextEvent returns the next change by an event, with a countdown.
func nextEvent(next *api.NextPhase, now time.Time) string {
	if next == nil {
		return ""
	}
	word := map[api.NextPhasePhase]string{api.Prequeue: "gathers", api.Start: "starts", api.End: "ends"}[next.Phase]
	return fmt.Sprintf("%s %s in %s", next.Event, word, countdown(next.At.Sub(now)))
}

// countdown returns a duration in its two largest units: 2 minutes, 1 hour 5 minutes.
func countdown(d time.Duration) string {
	d = max(0, d.Round(time.Second))
	var out []string
	for _, u := range []struct {
		name   string
		length time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		n := d / u.length
		if d -= n * u.length; n == 0 {
			if len(out) > 0 {
				break
			}
			continue
		}
		text := fmt.Sprintf("%d %s", n, u.name)
		if n != 1 {
			text += "s"
		}
		if out = append(out, text); len(out) == 2 {
			break
		}
	}
	if len(out) == 0 {
		return "0 seconds"
	}
	return strings.Join(out, " ")
}
