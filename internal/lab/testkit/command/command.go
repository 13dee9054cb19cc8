// Package command reads the commands of scripted tests.
package command

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// Line is a line of a script. Its arguments are words, and values with a key. A wrong one fails the test.
type Line struct {
	*datadriven.TestData
	Words []string
	t     *testing.T
}

// Read returns the command of a test.
func Read(t *testing.T, d *datadriven.TestData) Line {
	c := Line{TestData: d, t: t}
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			c.Words = append(c.Words, a.Key)
		}
	}
	return c
}

// Value returns the value of a key, or def.
func (c Line) Value(key, def string) string {
	if a, ok := c.Arg(key); ok && len(a.Vals) > 0 {
		return strings.Join(a.Vals, ",")
	}
	return def
}

// Is reports whether the command has a word.
func (c Line) Is(word string) bool { return slices.Contains(c.Words, word) }

// Word returns a word by its number.
func (c Line) Word(i int) string {
	if i >= len(c.Words) {
		c.Fatalf(c.t, "%s wants more words", c.Cmd)
	}
	return c.Words[i]
}

// Number parses a whole number.
func (c Line) Number(text string) int {
	n, err := strconv.Atoi(text)
	c.must(err)
	return n
}

// Share parses a number.
func (c Line) Share(text string) float64 {
	x, err := strconv.ParseFloat(text, 64)
	c.must(err)
	return x
}

// Length parses a duration.
func (c Line) Length(text string) time.Duration {
	x, err := time.ParseDuration(text)
	c.must(err)
	return x
}

func (c Line) must(err error) {
	if err != nil {
		c.Fatalf(c.t, "%v", err)
	}
}
