package main

import (
	"io"
	"net/http"
	"net/url"

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
  vestibule report shop --from -24h --step 300`,
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
			for name, value := range map[string]string{"from": from, "to": to, "step": step} {
				if value != "" {
					times.Set(name, value)
				}
			}
			stats, err := call[api.Stats](c, http.MethodGet, ofOurs("rooms", r.Id, "stats")+"?"+times.Encode(), nil)
			if err != nil {
				return err
			}
			return write(c.out, &stats)
		}),
	}
	cmd.Flags().StringVar(&event, "event", "", "an event")
	cmd.Flags().StringVar(&from, "from", "", "begin: a time, or -24h (default: an hour ago)")
	cmd.Flags().StringVar(&to, "to", "", "end (default: now)")
	cmd.Flags().StringVar(&step, "step", "", "seconds of a row")
	cmd.Flags().StringVar(&format, "format", "text", "text, html or csv")
	flags.add(cmd, cmd.Flags())
	return cmd
}
