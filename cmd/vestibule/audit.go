package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
)

func newAuditCmd() *cobra.Command {
	flags := &clientFlags{}
	return flags.group(&cobra.Command{Use: "audit", Short: "Show and verify the log of changes"},
		newAuditListCmd(flags),
		&cobra.Command{
			Use: "show NUMBER", Short: "Show one entry with all of its changes",
			RunE: flags.run(func(c *client, args []string) error { return showAudit(c, args[0]) }),
		},
		newAuditVerifyCmd(flags))
}

func newAuditListCmd(flags *clientFlags) *cobra.Command {
	limit, room, by, since := 0, "", "", ""
	cmd := &cobra.Command{
		Use: "list", Short: "Show the changes, their authors and reasons, the newest first",
		Example: `  vestibule audit list --room shop --since "2d ago"`,
		PreRunE: func(*cobra.Command, []string) error {
			if limit < 0 {
				return usagef("limit: must not be negative, got %d", limit)
			}
			return nil
		},
		RunE: flags.run(func(c *client, _ []string) error {
			filter := url.Values{}
			if since != "" {
				at, err := parsePast(since, time.Now())
				if err != nil {
					return usagef("since: %v", err)
				}
				filter.Set("since", at.UTC().Format(time.RFC3339))
			}
			for key, value := range map[string]string{"room": room, "by": by} {
				if value != "" {
					filter.Set(key, value)
				}
			}
			return listAudit(c, limit, filter)
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many entries, 0 for all")
	cmd.Flags().StringVar(&room, "room", "", "only changes of this room, by name or ID")
	cmd.Flags().StringVar(&by, "by", "", "only changes by this token: name or ID")
	cmd.Flags().StringVar(&since, "since", "", `only changes since a time, such as 2026-11-22T20:15:00Z or "2d ago"`)
	offerBy(cmd, "room", flags.offerRooms)
	return cmd
}

func newAuditVerifyCmd(flags *clientFlags) *cobra.Command {
	known := ""
	cmd := &cobra.Command{
		Use: "verify", Short: "Verify the hashes of all entries",
		Long: `Read all entries and follow their hashes. It names the first altered entry (exit code 1), or else prints number and
hash of the newest entry. Note them elsewhere: --known NUMBER:HASH also finds entries that were removed at the end or
written anew.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			number, hash, given := strings.Cut(known, ":")
			at, err := strconv.ParseUint(cmp.Or(number, "0"), 10, 64)
			if err != nil || known != "" && !given {
				return usagef("known: must be NUMBER:HASH, got %q", known)
			}
			return flags.run(func(c *client, _ []string) error { return verifyAudit(c, at, hash) })(cmd, args)
		},
	}
	cmd.Flags().StringVar(&known, "known", "", "NUMBER:HASH that an earlier verify printed")
	return cmd
}

// listAudit shows the newest entries that match a filter.
func listAudit(c *client, limit int, filter url.Values) error {
	list := []api.AuditEntry{}
	filter.Set("before", fmt.Sprint(math.MaxInt64))
	for len(list) < limit || limit == 0 {
		most := 500
		if limit > 0 {
			most = min(most, limit-len(list))
		}
		filter.Set("per_page", fmt.Sprint(most))
		some, err := call[[]api.AuditEntry](c, http.MethodGet, ofOurs("audit")+"?"+filter.Encode(), nil)
		if err != nil {
			return err
		}
		if list = append(list, some...); len(some) < most {
			break
		}
		filter.Set("before", fmt.Sprint(some[len(some)-1].Sequence))
	}
	if len(list) == 0 {
		fmt.Fprintln(c.err, "note: no entry matches: check the names and the time")
	}
	return showList(c, list, []any{"NUMBER", "AT", "WHO", "WHAT", "REASON"},
		func(e *api.AuditEntry) []any { return []any{e.Number, e.At, e.By, what(e), e.Reason} })
}

// showAudit shows one entry.
func showAudit(c *client, number string) error {
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 {
		return usagef("NUMBER: must be that of an entry, got %q", number)
	}
	list, err := call[[]api.AuditEntry](c, http.MethodGet, fmt.Sprintf("%s?from=%d&per_page=1", ofOurs("audit"), n), nil)
	if err != nil {
		return err
	}
	if len(list) == 0 || list[0].Number != n {
		return fmt.Errorf("no entry %d: audit list shows the entries that are kept", n)
	}
	e := &list[0]
	var full audit.Entry
	if err := json.Unmarshal(e.Entry, &full); err != nil {
		return fmt.Errorf("entry %d: %w", n, err)
	}
	return c.show(e, func(row func(...any)) {
		row("number", e.Number)
		row("at", e.At)
		row("who", fmt.Sprintf("%s (%s) from %s", e.By, cmp.Or(full.By.Role, "no token"), cmp.Or(full.By.From, "-")))
		row("operation", full.By.Operation)
		row("reason", e.Reason)
		row("hash", e.Hash)
		row("what", what(e))
		for _, x := range e.Changes {
			for _, s := range x.Settings {
				row("  "+x.Name, s.Key, asJSON(s.Before), "->", asJSON(s.After))
			}
		}
	})
}

// nameIn returns the name of a token or a webhook that was made or deleted, after a blank; "" for other objects.
func nameIn(x *api.AppliedChange) string {
	if x.Kind != api.AppliedChangeKindToken && x.Kind != api.AppliedChangeKindWebhook {
		return ""
	}
	if name := x.GivenName(); name != "" {
		return " " + name
	}
	return ""
}

// what describes an entry in one line: a change of rooms or hosts by what differs, any other by its sentence.
func what(e *api.AuditEntry) string {
	var out []string
	if len(e.Changes) > 0 && e.Text != "" { // an older global sends no sentence
		switch e.Changes[0].Kind {
		case api.AppliedChangeKindRoom, api.AppliedChangeKindHost:
		default:
			return e.Text
		}
	}
	for i, x := range e.Changes {
		if i == 3 {
			out = append(out, fmt.Sprintf("and %d more", len(e.Changes)-i))
			break
		}
		text := fmt.Sprintf("%s %s", x.Kind, x.Name)
		var settings []string
		for _, s := range x.Settings {
			settings = append(settings, difference(s))
		}
		switch {
		case x.Change != api.Changed && x.Kind != api.AppliedChangeKindControls:
			text = fmt.Sprintf("%s %s%s", x.Change, text, nameIn(&x))
		case len(settings) > 0:
			text += ": " + strings.Join(settings, ", ")
		case x.Kind == api.AppliedChangeKindControls:
			text += " unchanged"
		}
		out = append(out, text)
	}
	var full audit.Entry
	if err := json.Unmarshal(e.Entry, &full); err != nil {
		return "cannot be read: vestibule audit verify"
	}
	if full.Failed != "" {
		out = append(out, fmt.Sprintf("the change of %s was not made (%s)", full.Target, full.Failed))
	}
	if full.Omitted > 0 {
		out = append(out, fmt.Sprintf("%d rooms and hosts not listed", full.Omitted))
	}
	if full.Parts > 0 {
		out = append(out, fmt.Sprintf("(part %d of %d)", full.Part, full.Parts))
	}
	if full.Late {
		out = append(out, "(added later)")
	}
	return cmp.Or(strings.Join(out, ", "), "only the version")
}

func verifyAudit(c *client, at uint64, hash string) error {
	var chain audit.Chain
	summary := struct {
		Entries int      `json:"entries"`
		First   uint64   `json:"first"`
		Newest  uint64   `json:"newest"`
		Hash    string   `json:"hash"`
		Gaps    []string `json:"gaps"`
		Broken  string   `json:"broken,omitempty"`
	}{Gaps: []string{}}
	var broken error
	for from := int64(1); broken == nil; {
		target := fmt.Sprintf("%s?from=%d&per_page=500", ofOurs("audit"), from)
		some, err := call[[]api.AuditEntry](c, http.MethodGet, target, nil)
		if err != nil {
			return err
		}
		if len(some) == 0 {
			break
		}
		for _, s := range some {
			e, gap, err := chain.Next(s.Entry)
			if broken = err; err != nil {
				break
			}
			if summary.Entries++; summary.First == 0 {
				summary.First = e.Number
			}
			if gap != "" {
				summary.Gaps = append(summary.Gaps, gap)
			}
			if at == e.Number && hash != chain.Hash {
				why := "does not have the known hash: it, or an entry before it, was rewritten"
				broken = &audit.BrokenError{Number: at, Why: why}
				break
			}
			from = s.Sequence + 1
		}
	}
	switch {
	case broken != nil:
	case at > chain.Number:
		why := fmt.Sprintf("is missing: the newest is %d, and %d is known", chain.Number, at)
		broken = &audit.BrokenError{Number: chain.Number + 1, Why: why}
	case at > 0 && at < summary.First:
		broken = fmt.Errorf("entry %d is not kept any more, the oldest is %d: give a newer one", at, summary.First)
	}
	summary.Newest, summary.Hash = chain.Number, chain.Hash
	if broken != nil {
		summary.Broken = broken.Error()
	}
	err := c.show(summary, func(row func(...any)) {
		for _, g := range summary.Gaps {
			row(g)
		}
		if broken == nil {
			row(fmt.Sprintf("%d entries follow each other, from %d on; the newest is %d:%s",
				summary.Entries, summary.First, summary.Newest, summary.Hash))
		}
	})
	return errors.Join(broken, err)
}

// restoreRoom gives a room the settings of a revision, without one those before the last change.
func restoreRoom(c *client, name string, given []string) error {
	revision, undone := "", ""
	if len(given) > 0 {
		revision = given[0]
	} else {
		list, err := call[[]api.RoomRevision](c, http.MethodGet, ofOurs("rooms", name, "revisions")+"?per_page=2", nil)
		if err != nil {
			return err
		}
		if len(list) < 2 || list[1].Room == nil {
			return fmt.Errorf("the last change of room %s created it: name a revision (rooms revisions %s shows them)", name,
				name)
		}
		revision = fmt.Sprint(list[1].Revision)
		if undone = "; undone: the change of " + strings.Join(list[0].Changed, ", "); list[0].Room == nil {
			undone = "; undone: its deletion"
		}
	}
	target := ofOurs("rooms", name, "revisions", revision, "restore")
	return change(c, http.MethodPost, target, nil, func(r api.Room) string {
		return fmt.Sprintf("room %s has the settings of revision %s again%s", r.Name, revision, undone)
	})
}

// listRevisions shows the revisions of a room.
func listRevisions(c *client, name string) error {
	list, err := pages[api.RoomRevision](c, ofOurs("rooms", name, "revisions"), 0)
	if err != nil {
		return err
	}
	return showList(c, list, []any{"REVISION", "AT", "WHO", "FROM", "OPERATION", "NAME", "CHANGED"},
		func(r *api.RoomRevision) []any {
			changed := strings.Join(r.Changed, " ")
			if r.Room == nil {
				changed = "deleted"
			}
			return []any{r.Revision, r.At, r.By.Name, r.By.From, r.By.Operation, r.Name, changed}
		})
}
