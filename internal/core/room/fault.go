package room

import (
	"strconv"
	"strings"
)

// Fault is one invalid thing in an operator's document. Item and Field are its place, in the operator's terms. Rule is
// the requirement and the actual value.
type Fault struct {
	Line  int    // line in the source file, 0 for none
	Item  string // "rooms[2]" or "hosts[0]", "" for one room by itself
	Name  string // the room's or host's name, "" for none
	Field string // "total_active_users", "additional_routes[1].path"
	Rule  string // "must be 1 to 2147483647, got 0"
	More  int    // faults that are not in the list; only its last one has them
}

// String returns the fault on one line, such as
//
//	line 7: rooms[2] "tickets": total_active_users: must be 1 to 2147483647, got 0
func (f Fault) String() string {
	text := f.Rule
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	if f.Item != "" {
		item := f.Item
		if f.Name != "" {
			item += " " + strconv.Quote(f.Name)
		}
		text = item + ": " + text
	}
	if f.Line > 0 {
		text = "line " + strconv.Itoa(f.Line) + ": " + text
	}
	return text
}

// Error returns the same as String.
func (f Fault) Error() string { return f.String() }

// Faults are all faults of a document, in the order of the document. An empty Faults is not an error; see
// [Faults.Err].
type Faults []Fault

// Error returns the faults, one per line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns fs as an error, or nil if it is empty.
func (fs Faults) Err() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}

// got quotes the actual value, for the end of a rule.
func got(s string) string { return ", got " + strconv.Quote(clip(s)) }

// clip shortens s for a message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
