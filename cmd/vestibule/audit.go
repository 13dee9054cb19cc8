package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
)

func newAuditCmd() *cobra.Command {
	flags := &clientFlags{}
	cmd := &cobra.Command{Use: "audit", Short: "Show and verify the log of changes"}
	flags.add(cmd, cmd.PersistentFlags())
	cmd.AddCommand(newAuditListCmd(flags), newAuditVerifyCmd(flags))
	return cmd
}

func newAuditListCmd(flags *clientFlags) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use: "list", Short: "Show the changes and their authors, the newest first",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("limit: must not be negative, got %d", limit)
			}
			c, err := flags.open(cmd)
			if err != nil {
				return err
			}
			return c.auditList(limit)
		},
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			number, hash, given := strings.Cut(known, ":")
			at, err := strconv.ParseUint(cmp.Or(number, "0"), 10, 64)
			if err != nil || known != "" && !given {
				return usagef("known: must be NUMBER:HASH, got %q", known)
			}
			c, err := flags.open(cmd)
			if err != nil {
				return err
			}
			return c.auditVerify(at, hash)
		},
	}
	cmd.Flags().StringVar(&known, "known", "", "NUMBER:HASH of an entry, as an earlier verify printed it")
	return cmd
}

func (c *client) auditList(limit int) error {
	list := []api.AuditEntry{}
	for page, per := 1, 500; limit == 0 || len(list) < limit; page++ {
		var some []api.AuditEntry
		res, err := c.ListAudit(c.ctx, &api.ListAuditParams{Page: &page, PerPage: &per})
		if err := take(res, err, &some); err != nil {
			return err
		}
		if list = append(list, some...); len(some) < per {
			break
		}
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
	return c.print(list, func(w io.Writer) {
		fmt.Fprintln(w, "NUMBER\tAT\tWHO\tFROM\tOPERATION\tWHAT")
		for i := range entries {
			e := &entries[i]
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", e.Number, e.At.Format(time.DateTime), e.By.Name, cmp.Or(e.By.From, "-"), e.By.Operation, what(e))
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
		out = append(out, "was not done")
	}
	if e.Omitted > 0 {
		out = append(out, fmt.Sprintf("%d rooms and hosts that are not told", e.Omitted))
	}
	if e.Parts > 0 {
		out = append(out, fmt.Sprintf("(part %d of %d)", e.Part, e.Parts))
	}
	if e.Late {
		out = append(out, "(added later)")
	}
	return cmp.Or(strings.Join(out, ", "), "nothing but the version")
}

func (c *client) auditVerify(at uint64, hash string) error {
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
	for from, per := int64(1), 500; broken == nil; {
		var some []api.AuditEntry
		res, err := c.ListAudit(c.ctx, &api.ListAuditParams{From: &from, PerPage: &per})
		if err := take(res, err, &some); err != nil {
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
				broken = &audit.BrokenError{Number: at, Why: "has another hash than the one that is known: it, or one before it, was written anew"}
				break
			}
			from = s.Sequence + 1
		}
	}
	switch {
	case broken != nil:
	case at > chain.Number:
		broken = &audit.BrokenError{Number: chain.Number + 1, Why: fmt.Sprintf("is missing: the newest is %d, and %d is known", chain.Number, at)}
	case at > 0 && at < told.First:
		broken = fmt.Errorf("entry %d is not kept any more, the oldest is %d: give a newer one", at, told.First)
	}
	told.Newest, told.Hash = chain.Number, chain.Hash
	if broken != nil {
		told.Broken = broken.Error()
	}
	err := c.print(told, func(w io.Writer) {
		for _, g := range told.Gaps {
			fmt.Fprintln(w, g)
		}
		if broken == nil {
			fmt.Fprintf(w, "%d entries follow each other, from %d on; the newest is %d:%s\n", told.Entries, told.First, told.Newest, told.Hash)
		}
	})
	return errors.Join(broken, err)
}

// audited returns the id of a room, also of a deleted one, which only the audit stream knows.
func (c *client) audited(name string) (id string, err error) {
	r, err := c.find(name)
	if err != nil && len(name) == 32 {
		return name, nil
	}
	return r.Id, err
}

// restore gives a room the settings of a revision.
func (c *client) restore(name, revision string) error {
	id, err := c.audited(name)
	if err != nil {
		return err
	}
	var r api.Room
	res, err := c.RestoreRevision(c.ctx, id, revision)
	if err := take(res, err, &r); err != nil {
		return err
	}
	return c.print(r, nil)
}

// revisions shows the revisions of a room.
func (c *client) revisions(name string) error {
	id, err := c.audited(name)
	if err != nil {
		return err
	}
	list := []api.RoomRevision{}
	for page, per := 1, 500; ; page++ {
		var some []api.RoomRevision
		res, err := c.ListRevisions(c.ctx, id, &api.ListRevisionsParams{Page: &page, PerPage: &per})
		if err := take(res, err, &some); err != nil {
			return err
		}
		if list = append(list, some...); len(some) < per {
			break
		}
	}
	return c.print(list, func(w io.Writer) {
		fmt.Fprintln(w, "REVISION\tAT\tWHO\tFROM\tOPERATION\tNAME\tCHANGED")
		for _, r := range list {
			changed := strings.Join(r.Changed, " ")
			if r.Room == nil {
				changed = "deleted"
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Revision, r.At.Format(time.DateTime), r.By.Name, cmp.Or(r.By.From, "-"), r.By.Operation, r.Name, cmp.Or(changed, "-"))
		}
	})
}
