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

	"github.com/spf13/pflag"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/draw/beacon"
	"vestibule/internal/node"
)

const verifyDrawUsage = `usage: vestibule verify-draw RECORD [RECEIPT…]

It repeats a draw from its public record and tells whether it was one that nobody could steer:
whether the secret is the one that was committed to before, and the beacon's round the first one
after entries closed. Record and receipts are files, one of them may be "-" for standard input; each file of
receipts holds them as JSON, one or many, in a list or one behind the other. Of each it tells whether its place is the one that was
drawn, and which it is among those given. Nothing is asked of any server.
Exit codes: 0 all is right, 1 something is not, or a file cannot be read, 2 the usage is wrong.
`

// maxRecord bounds a record from standard input, in bytes; one has less than 2,000.
const maxRecord = 1 << 20

// shownReceipts bounds how many receipts are told one by one; all are counted.
const shownReceipts = 20

func verifyDraw(args []string, stdout, stderr io.Writer) error {
	f := flagSet("verify-draw", stderr)
	f.Usage = func() { fmt.Fprint(stderr, verifyDrawUsage) }
	switch err := f.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return errHelp
	case err != nil:
		fmt.Fprintf(stderr, "vestibule verify-draw: %v (see --help)\n", err)
		return node.ErrUsage
	case f.NArg() == 0:
		fmt.Fprint(stderr, verifyDrawUsage)
		return node.ErrUsage
	}
	if f.Arg(0) == "-" && slices.Contains(f.Args()[1:], "-") {
		fmt.Fprintln(stderr, "vestibule verify-draw: RECORD and RECEIPT cannot both be -: there is one standard input")
		return node.ErrUsage
	}
	data, err := readRecord(f.Arg(0))
	if err != nil {
		return err
	}
	record, err := draw.DecodeRecord(data)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Arg(0), err)
	}
	if faults := record.Check(beacon.Verify); len(faults) > 0 {
		return fmt.Errorf("%s: the record is not that of a fair draw:\n%w", f.Arg(0), errors.Join(faults...))
	}
	fmt.Fprintf(stdout, "the draw of event %s: its secret was committed to on %s, entries closed on %s, %d were counted\n",
		record.Event, record.Committed.UTC().Format(draw.TimeFormat), record.Closes.UTC().Format(draw.TimeFormat), record.Entrants)
	if record.Beacon == nil {
		fmt.Fprintln(stdout, "no public beacon: whoever knew the secret before could make tickets with good places")
	} else {
		fmt.Fprintf(stdout, "round %d of drand's quicknet: nobody knew the places before entries closed\n", record.Beacon.Round)
	}
	v := receiptVerifier{draw: record.Draw(), out: stdout}
	for _, file := range f.Args()[1:] {
		if err := v.file(file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return v.tell()
}

// readRecord reads the file of a record.
func readRecord(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(os.Stdin, maxRecord))
	}
	return os.ReadFile(name)
}

// receiptVerifier holds receipts against a draw.
type receiptVerifier struct {
	draw *draw.Draw
	out  io.Writer

	right []draw.Receipt // the first that are, until there are too many to show
	all   []int64        // places of all that are, in milliseconds
	wrong int
}

// file reads the receipts of a file.
func (v *receiptVerifier) file(name string) error {
	in := os.Stdin
	if name != "-" {
		var err error
		if in, err = os.Open(name); err != nil {
			return err
		}
		defer in.Close()
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
			return fmt.Errorf("receipt %d: %w", len(v.all)+v.wrong+1, err)
		}
		v.take(&r)
	}
	_, err = d.Token()
	return err
}

// beginsList tells whether what is read begins with a list.
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
	v.all = append(v.all, r.Place.UnixMilli())
	if len(v.right) <= shownReceipts {
		v.right = append(v.right, *r)
	}
}

// tell prints what came of it.
func (v *receiptVerifier) tell() error {
	slices.Sort(v.all)
	if len(v.right) <= shownReceipts {
		for _, r := range v.right {
			rank, _ := slices.BinarySearch(v.all, r.Place.UnixMilli())
			how := "drawn"
			if !v.draw.Takes(&r) {
				how = "joined after entries had closed, behind everybody drawn"
			}
			fmt.Fprintf(v.out, "right: ticket %016x: %s, place %s, number %d of these\n", uint64(r.Ticket), how, r.Place.UTC().Format(draw.TimeFormat), rank+1)
		}
	}
	if n := len(v.all) + v.wrong; n > 0 {
		fmt.Fprintf(v.out, "%d receipts: %d right, %d wrong\n", n, len(v.all), v.wrong)
	}
	if v.wrong > 0 {
		return fmt.Errorf("%d receipts are wrong", v.wrong)
	}
	return nil
}
