package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
	"vestibule/internal/global/notices"
)

func newWebhooksCmd() *cobra.Command {
	flags := &clientFlags{}
	return flags.changes(&cobra.Command{Use: "webhooks", Short: "Show, create, test and delete webhooks for operators"},
		&cobra.Command{
			Use: "list", Short: "Show all webhooks, without their secrets",
			RunE: flags.run(func(c *client, _ []string) error { return listWebhooks(c) }),
		},
		newWebhooksCreateCmd(flags),
		&cobra.Command{
			Use: "test WEBHOOK", Short: "Post one notice to a webhook at once",
			RunE: withWebhook(flags, testWebhook),
		},
		&cobra.Command{
			Use: "enable WEBHOOK", Short: "Turn on a webhook that is off",
			RunE: withWebhook(flags, func(c *client, w *api.Webhook) error {
				return change(c, http.MethodPatch, ofOurs("webhooks", w.Id), object{"enabled": true},
					func(any) string { return "enabled " + w.Name })
			}),
		},
		&cobra.Command{
			Use: "rotate WEBHOOK", Short: "Make and show a new secret; the old one is valid for a day",
			RunE: withWebhook(flags, func(c *client, w *api.Webhook) error {
				return showSecret(c, http.MethodPatch, ofOurs("webhooks", w.Id), object{"rotate_secret": true})
			}),
		},
		&cobra.Command{
			Use: "delete WEBHOOK", Short: "Delete a webhook and its undelivered notices",
			RunE: withWebhook(flags, func(c *client, w *api.Webhook) error {
				return change(c, http.MethodDelete, ofOurs("webhooks", w.Id), nil,
					func(any) string { return "deleted " + w.Name })
			}),
		})
}

// withWebhook runs a command on the webhook that its argument names: an ID, or the name of one alone.
func withWebhook(flags *clientFlags, run func(*client, *api.Webhook) error) func(*cobra.Command, []string) error {
	return flags.run(func(c *client, args []string) error {
		list, err := call[[]api.Webhook](c, http.MethodGet, ofOurs("webhooks"), nil)
		if err != nil {
			return err
		}
		w, err := oneOf("webhook", list, func(w *api.Webhook) (id, name string) { return w.Id, w.Name }, args[0])
		if err != nil {
			return err
		}
		return run(c, w)
	})
}

func newWebhooksCreateCmd(flags *clientFlags) *cobra.Command {
	var kinds, rooms []string
	cmd := &cobra.Command{
		Use: "create NAME URL", Short: "Create a webhook and show its secret once",
		RunE: flags.run(func(c *client, args []string) error {
			ask := object{"name": args[0], "url": args[1], "kinds": kinds, "rooms": rooms}
			return showSecret(c, http.MethodPost, ofOurs("webhooks"), ask)
		}),
	}
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "kind of notices, such as room.queueing; none for all")
	cmd.Flags().StringSliceVar(&rooms, "room", nil, "name of a room; none for all, and for those of no room")
	var known []string
	for _, k := range notices.Kinds {
		known = append(known, string(k))
	}
	offer(cmd, "kind", known...)
	offerBy(cmd, "room", flags.offerRooms)
	return cmd
}

// showSecret makes a change of a webhook, and shows its new secret.
func showSecret(c *client, method, target string, ask object) error {
	made, err := call[api.Webhook](c, method, c.because(target), ask)
	if err == nil && made.Secret == nil {
		err = fmt.Errorf("webhook %s was changed, but the API did not return its secret", made.Id)
	}
	if err != nil {
		return err
	}
	return c.show(made, func(row func(...any)) {
		row("ID", "SECRET")
		row(made.Id, *made.Secret)
	})
}

func listWebhooks(c *client) error {
	list, err := call[[]api.Webhook](c, http.MethodGet, ofOurs("webhooks"), nil)
	if err != nil {
		return err
	}
	names, err := c.namesOfRooms()
	if err != nil {
		return err
	}
	return showList(c, list, []any{"ID", "NAME", "URL", "KINDS", "ROOMS", "STATE"}, func(w *api.Webhook) []any {
		state := "on"
		if w.DisabledBecause != nil {
			state = "off: " + *w.DisabledBecause
		}
		return []any{w.Id, w.Name, w.Url, orAll(w.Kinds), orAll(names(w.Rooms)), state}
	})
}

func orAll(list []string) string {
	if len(list) == 0 {
		return "all"
	}
	return strings.Join(list, ",")
}

func testWebhook(c *client, w *api.Webhook) error {
	got, err := call[api.WebhookTest](c, http.MethodPost, ofOurs("webhooks", w.Id, "test"), nil)
	if err != nil {
		return err
	}
	if got.Error != nil {
		return fmt.Errorf("webhook %s: %s: nothing was delivered", w.Name, *got.Error)
	}
	return c.show(got, func(row func(...any)) {
		row(fmt.Sprintf("delivered %s: the receiver answered %d", got.Id, got.Status))
	})
}
