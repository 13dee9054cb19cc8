// Package roomfile reads the rooms of an operator from YAML.
//
// [Parse] is strict, because the file decides about access to a site: a misspelt, repeated or mistyped key is a
// fault, and so is every violated rule of package room. All faults are reported at once, in the order of the file,
// with their lines; of more than a thousand the number. Parse works on the nodes of the YAML tree, not on structs, since only the nodes have lines.
//
// The file is self-contained: anchors may stand for single values only, and there are no includes, templates or
// environment variables.
//
// The only knob is [MaxBytes], the maximum size of a file: a room takes about a hundred bytes in its shortest form,
// three hundred in a common one, so ten thousand rooms fit.
package roomfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"vestibule/internal/core/room"
)

// MaxBytes is the maximum size of a file.
const MaxBytes = 16 << 20

// maxMarks bounds what begins values in YAML, before they take hundreds of bytes each: 10,000 rooms of 20 lines fit.
const maxMarks = 20 * room.MaxRooms

func marks(data []byte) (n int) {
	for _, mark := range []string{"\n", ",", "[", "{"} {
		n += bytes.Count(data, []byte(mark))
	}
	return n
}

// Parse reads a file of rooms and fills in defaults. The error is of type [room.Faults], with lines. Without an
// error, [room.NewSet] accepts the result. A file without rooms must say "rooms: []": an empty file is more often
// an accident than intended.
func Parse(data []byte) (room.Document, error) {
	if len(data) > MaxBytes {
		return room.Document{}, room.Faults{{
			Rule: fmt.Sprintf("the file must be at most %d bytes, got %d", MaxBytes, len(data)),
		}}
	}
	if n := marks(data); n > maxMarks {
		return room.Document{}, room.Faults{{
			Rule: fmt.Sprintf("the file must have at most %d lines, commas and opening brackets together, got %d", maxMarks, n),
		}}
	}
	root, fault := parseYAML(data)
	if fault != nil {
		return room.Document{}, room.Faults{*fault}
	}
	p := parser{lines: make(map[place]int), bad: make(map[place]bool), names: make(map[string]string)}
	doc := p.document(root).WithDefaults()
	for _, f := range doc.Validate() {
		p.rule(f)
	}
	if len(p.faults) > 0 {
		slices.SortStableFunc(p.faults, func(a, b room.Fault) int { return a.Line - b.Line })
		if p.more > 0 {
			p.faults = append(p.faults, room.Fault{Rule: fmt.Sprintf("%d more faults", p.more), More: p.more})
		}
		return room.Document{}, p.faults
	}
	return doc, nil
}

// parseYAML returns the root node of the one document in data.
func parseYAML(data []byte) (*yaml.Node, *room.Fault) {
	if i := firstBadByte(data); i >= 0 {
		return nil, &room.Fault{Line: 1 + bytes.Count(data[:i], []byte("\n")), Rule: "the file must be UTF-8"}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, &room.Fault{Line: 1, Field: "rooms", Rule: emptyRule}
	case err != nil:
		return nil, syntaxFault(err)
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		return nil, &room.Fault{
			Line: max(more.Line, 1), Rule: "the file must hold one YAML document, and here begins another",
		}
	case !errors.Is(err, io.EOF):
		return nil, syntaxFault(err)
	}
	return doc.Content[0], nil // a document node has exactly one child
}

const emptyRule = "is required: write rooms: [] to have none"

func firstBadByte(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// syntaxFault extracts the line from an error of the YAML library, which has it only in its text.
func syntaxFault(err error) *room.Fault {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	f := &room.Fault{Line: 1}
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		f.Line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	f.Rule = "not YAML: " + text
	return f
}
