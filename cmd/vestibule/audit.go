package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
)

func newAuditCmd() *cobra.Command {
	flags := &clientFlags{}
	return flags.group(&cobra.Command{Use: "audit", Short: "Show and verify the log of changes"},
		newAuditListCmd(flags), newAuditVerifyCmd(flags))
}

func newAuditListCmd(flags *clientFlags) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use: "list", Short: "Show the changes and their authors, the newest first",
		PreRunE: func(*cobra.Command, []string) error {
			if limit < 0 {
				return usagef("limit: must not be negative, got %d", limit)
			}
			return nil
		},
		RunE: flags.run(func(c *client, _ []string) error { return listAudit(c, limit) }),
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many entries, 0 for all")
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
	cmd.Flags().StringVar(&known, "known", "", "NUMBER:HASH of an entry, as an earlier verify printed it")
	return cmd
}

func listAudit(c *client, limit int) error {
	list, err := pages[api.AuditEntry](c, ofOurs("audit"), limit)
	if err != nil {
		return err
	}
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	entries := make([]audit.Entry, len(list))
	for i, e := range list {
		if err := json.Unmarshal(e.Entry, &entries[i]); err != nil {
			return fmt.Errorf("entry %d: %w", e.Sequence, err)
		}
	}
	return c.show(list, func(row func(...any)) {
		row("NUMBER", "AT", "WHO", "FROM", "OPERATION", "WHAT")
		for i := range entries {
			e := &entries[i]
			row(e.Number, e.At, e.By.Name, e.By.From, e.By.Operation, what(e))
		}
	})
}

// what returns a short description of an entry.
func what(e *audit.Entry) string {
	var out []string
	for i, r := range e.Rooms {
		if i == 3 {
			out = append(out, fmt.Sprintf("and %d more rooms", len(e.Rooms)-i))
			break
		}
		switch {
		case r.Before == nil:
			out = append(out, "made "+r.Name)
		case r.After == nil:
			out = append(out, "deleted "+r.Name)
		default:
			out = append(out, "changed "+r.Name)
		}
	}
	for _, h := range e.Hosts {
		out = append(out, "host "+h.Name)
	}
	if e.Target != "" {
		out = append(out, e.Target)
	}
	if e.Failed != "" {
		out = append(out, "failed")
	}
	if e.Omitted > 0 {
		out = append(out, fmt.Sprintf("%d rooms and hosts not listed", e.Omitted))
	}
	if e.Parts > 0 {
		out = append(out, fmt.Sprintf("(part %d of %d)", e.Part, e.Parts))
	}
	if e.Late {
		out = append(out, "(added later)")
	}
	return cmp.Or(strings.Join(out, ", "), "only the version")
}

func verifyAudit(c *client, at uint64, hash string) error {
	var chain audit.Chain
	told := struct {
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
			if told.Entries++; told.First == 0 {
				told.First = e.Number
			}
			if gap != "" {
				told.Gaps = append(told.Gaps, gap)
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
	case at > 0 && at < told.First:
		broken = fmt.Errorf("entry %d is not kept any more, the oldest is %d: give a newer one", at, told.First)
	}
	told.Newest, told.Hash = chain.Number, chain.Hash
	if broken != nil {
		told.Broken = broken.Error()
	}
	err := c.show(told, func(row func(...any)) {
		for _, g := range told.Gaps {
			row(g)
		}
		if broken == nil {
			row(fmt.Sprintf("%d entries follow each other, from %d on; the newest is %d:%s",
				told.Entries, told.First, told.Newest, told.Hash))
		}
	})
	return errors.Join(broken, err)
}

// audited returns the id of a room, also of a deleted one, which only the audit stream knows.
func (c *client) audited(name string) (id string, err error) {
	r, err := c.find(name)
	if err == nil {
		return r.Id, nil
	}
	if len(name) == 32 {
		return name, nil
	}
	return "", err
}

// restoreRoom gives a room the settings of a revision.
func restoreRoom(c *client, name, revision string) error {
	id, err := c.audited(name)
	if err != nil {
		return err
	}
	return c.pass(http.MethodPost, ofOurs("rooms", id, "revisions", revision, "restore"), nil)
}

// listRevisions shows the revisions of a room.
func listRevisions(c *client, name string) error {
	id, err := c.audited(name)
	if err != nil {
		return err
	}
	list, err := pages[api.RoomRevision](c, ofOurs("rooms", id, "revisions"), 0)
	if err != nil {
		return err
	}
	return c.show(list, func(row func(...any)) {
		row("REVISION", "AT", "WHO", "FROM", "OPERATION", "NAME", "CHANGED")
		for _, r := range list {
			changed := strings.Join(r.Changed, " ")
			if r.Room == nil {
				changed = "deleted"
			}
			row(r.Revision, r.At, r.By.Name, r.By.From, r.By.Operation, r.Name, changed)
		}
	})
}
