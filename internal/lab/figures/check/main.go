// Command check judges figures that a script measured: lines of a goal's name, "=", and the value. It fails if a goal is
// missed, or if there is no line.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"vestibule/internal/lab/figures"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	judge, n := figures.Judge{Out: out}, 0
	lines := bufio.NewScanner(in)
	for ; lines.Scan(); n++ {
		name, text, _ := strings.Cut(lines.Text(), "=")
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if _, err := judge.Figure(name, "", v); err != nil {
			return err
		}
	}
	if n == 0 {
		return errors.New("no figure was measured")
	}
	return errors.Join(lines.Err(), judge.Err())
}
