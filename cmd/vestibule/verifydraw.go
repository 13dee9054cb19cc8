package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode"

	"github.com/spf13/cobra"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/draw/beacon"
	"vestibule/internal/core/ticket"
)

func newVerifyDrawCmd() *cobra.Command {
	var commit, number string
	cmd := &cobra.Command{
		Use: "verify-draw RECORD [RECEIPT...]", Short: "Repeat a draw from its public record, and check receipts",
		Long: `Repeat a draw from its public record. It checks that nobody could steer the draw: the secret is the one of the commit, and
the beacon's round is the first one after entries closed. Of each receipt it prints whether its place is the one drawn,
and its rank among those given. It counts a ticket once, however often it is given, and warns if more entrants have
receipts than were counted. With --commit, the record must be that of the commit, as the page showed it before the draw.
No server is asked.

Record and receipts are files; one of them may be "-" for standard input. A file of receipts holds JSON: one receipt,
several in a list, or several in sequence. Exit code 1 means that something is wrong or a file cannot be read.`,
		Example: "  vestibule events record shop launch | vestibule verify-draw - receipts.json",
		PreRun:  endOnSignal,
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && slices.Contains(args[1:], "-") {
				return usagef("RECORD and RECEIPT cannot both be -: there is one standard input")
			}
			return verifyDraw(cmd.InOrStdin(), cmd.OutOrStdout(), commit, number, args[0], args[1:])
		},
	}
	cmd.Flags().StringVar(&commit, "commit", "", "commit that was public before the draw: 64 hexadecimal digits")
	cmd.Flags().StringVar(&number, "number", "", "print only receipts with this reference number")
	return cmd
}

// maxRecord bounds a record from standard input, in bytes; an actual record has fewer than 2,000.
const maxRecord = 1 << 20

// shownReceipts bounds the receipts printed one by one; all are counted.
const shownReceipts = 20

func verifyDraw(stdin io.Reader, stdout io.Writer, commit, number, name string, receipts []string) error {
	var known draw.Hash
	if commit != "" {
		if err := known.UnmarshalText([]byte(commit)); err != nil {
			return usagef("--commit: %v", err)
		}
	}
	data, err := readRecord(stdin, name)
	if err != nil {
		return err
	}
	record, err := draw.DecodeRecord(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if faults := record.Check(beacon.Verify); len(faults) > 0 {
		return fmt.Errorf("%s: the record is not that of a fair draw:\n%w", name, errors.Join(faults...))
	}
	if commit != "" && known != record.Commit {
		return fmt.Errorf("%s: commit: the record is of another draw: its commit is %x, not the one of --commit", name,
			record.Commit)
	}
	fmt.Fprintf(stdout, "the draw of event %s: its secret was committed to on %s, entries closed on %s, %d were counted\n",
		record.Event, record.Committed.UTC().Format(draw.TimeFormat), record.Closes.UTC().Format(draw.TimeFormat),
		record.Entrants)
	if record.Beacon == nil {
		fmt.Fprintln(stdout, "no public beacon: whoever knew the secret before could make tickets with good places")
	} else {
		fmt.Fprintf(stdout, "round %d of drand's quicknet: nobody knew the places before entries closed\n",
			record.Beacon.Round)
	}
	v := receiptVerifier{
		draw: record.Draw(), number: number, entrants: record.Entrants, in: stdin, out: stdout, seen: map[draw.Ticket]bool{},
	}
	for _, file := range receipts {
		if err := v.file(file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return v.tell()
}

// readRecord reads the file of a record.
func readRecord(stdin io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(stdin, maxRecord))
	}
	return os.ReadFile(name)
}

// receiptVerifier verifies receipts against a draw.
type receiptVerifier struct {
	draw     *draw.Draw
	number   string // of the receipts to print; "" for all
	entrants uint64 // of the record
	in       io.Reader
	out      io.Writer

	right []draw.Receipt // the first valid ones, up to the number shown
	all   []int64        // places of all valid ones, in milliseconds
	wrong int
	seen  map[draw.Ticket]bool // tickets of valid ones
	drawn uint64               // valid ones of visitors that took part
	again int                  // valid ones of a ticket that was given before
}

// file reads the receipts of a file.
func (v *receiptVerifier) file(name string) error {
	in := v.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	r := bufio.NewReaderSize(in, 1<<20)
	list, err := beginsList(r)
	if err != nil {
		return err
	}
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if list {
		if _, err := d.Token(); err != nil {
			return err
		}
	}
	for !list || d.More() {
		var r draw.Receipt
		if err := d.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("receipt %d: %w", len(v.all)+v.wrong+v.again+1, err)
		}
		v.take(&r)
	}
	_, err = d.Token()
	return err
}

// beginsList reports whether the input begins with a list.
func beginsList(r *bufio.Reader) (bool, error) {
	for {
		b, err := r.Peek(1)
		switch {
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		case !unicode.IsSpace(rune(b[0])):
			return bytes.Equal(b, []byte("[")), nil
		}
		if _, err := r.Discard(1); err != nil {
			return false, err
		}
	}
}

func (v *receiptVerifier) take(r *draw.Receipt) {
	if err := v.draw.Check(r); err != nil {
		if v.wrong++; v.wrong <= shownReceipts {
			fmt.Fprintf(v.out, "WRONG: ticket %016x: %v\n", uint64(r.Ticket), err)
		}
		return
	}
	if v.seen[r.Ticket] {
		v.again++
		return
	}
	v.seen[r.Ticket] = true
	if v.draw.Takes(r) {
		v.drawn++
	}
	v.all = append(v.all, r.Place.UnixMilli())
	if len(v.right) <= shownReceipts &&
		(v.number == "" || v.number == string(ticket.AppendNumber(nil, uint64(r.Ticket)))) {
		v.right = append(v.right, *r)
	}
}

// tell prints the result.
func (v *receiptVerifier) tell() error {
	slices.Sort(v.all)
	if len(v.right) <= shownReceipts {
		for _, r := range v.right {
			rank, _ := slices.BinarySearch(v.all, r.Place.UnixMilli())
			how := "drawn"
			if !v.draw.Takes(&r) {
				how = "joined after entries had closed, behind everybody drawn"
			}
			fmt.Fprintf(v.out, "right: ticket %016x: %s, place %s, number %d of these\n", uint64(r.Ticket), how,
				r.Place.UTC().Format(draw.TimeFormat), rank+1)
		}
	}
	if v.number != "" && len(v.right) == 0 {
		fmt.Fprintf(v.out, "no right receipt has the reference number %s\n", v.number)
	}
	if n := len(v.all) + v.wrong; n > 0 {
		fmt.Fprintf(v.out, "%d receipts: %d right, %d wrong\n", n, len(v.all), v.wrong)
	}
	if v.again > 0 {
		fmt.Fprintf(v.out, "%d more were of a ticket that was given before\n", v.again)
	}
	if v.drawn > v.entrants {
		fmt.Fprintf(v.out,
			"WARNING: %d entrants have receipts, and the record counts %d: entries may have been added after the close\n",
			v.drawn, v.entrants)
	}
	if v.wrong > 0 {
		return fmt.Errorf("%d receipts are wrong", v.wrong)
	}
	return nil
}
