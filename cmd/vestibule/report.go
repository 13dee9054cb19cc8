package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
	"vestibule/internal/global/report"
)

// reportFormats are the forms of a report.
var reportFormats = map[string]func(io.Writer, *api.Stats) error{
	"text": report.Text, "html": report.HTML, "csv": report.CSV,
}

func newReportCmd() *cobra.Command {
	flags := &clientFlags{}
	event, format, times := "", "", url.Values{}
	from, to, step := "", "", ""
	cmd := &cobra.Command{
		Use: "report ROOM", Short: "Tell what happened in a room, or during an event",
		Example: `  vestibule report shop --event autumn-sale --format html > report.html
  vestibule report shop --from 24h --step 5m`,
		RunE: flags.run(func(c *client, args []string) error {
			write := reportFormats[format]
			if write == nil {
				return usagef("format: must be text, html or csv, got %q", format)
			}
			r, err := c.find(args[0])
			if err != nil {
				return err
			}
			if event != "" {
				e, err := c.needEvent(r, event)
				if err != nil {
					return err
				}
				times.Set("event", e.Id)
			}
			now := time.Now()
			for name, value := range map[string]string{"from": from, "to": to} {
				if value == "" {
					continue
				}
				at, err := parsePast(strings.TrimPrefix(value, "-"), now)
				if err != nil {
					return usagef("%s: %v", name, err)
				}
				times.Set(name, at.UTC().Format(time.RFC3339))
			}
			if step != "" {
				seconds := step
				if d, err := parseDuration(step); err == nil {
					seconds = fmt.Sprint(int(d / time.Second))
				}
				times.Set("step", seconds)
			}
			stats, err := call[api.Stats](c, http.MethodGet, ofOurs("rooms", r.Id, "stats")+"?"+times.Encode(), nil)
			if err != nil {
				return err
			}
			return write(c.out, &stats)
		}),
	}
	cmd.Flags().StringVar(&event, "event", "", "an event")
	cmd.Flags().StringVar(&from, "from", "", "begin, such as 22:30, 2026-11-22T20:15:00Z or 24h (default: an hour ago)")
	cmd.Flags().StringVar(&to, "to", "", "end (default: now)")
	cmd.Flags().StringVar(&step, "step", "", "length of a row, such as 5m, or its seconds")
	cmd.Flags().StringVar(&format, "format", "text", "text, html or csv")
	flags.add(cmd, cmd.Flags())
	return cmd
}
