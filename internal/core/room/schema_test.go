package room

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/lab/testkit"
)

var rewrite = flag.Bool("rewrite", false, "write the reference in docs/ROOMS.md anew")

// TestTheSchemaNamesEveryField: one line for each field of Settings, and a default that its own rule takes.
func TestTheSchemaNamesEveryField(t *testing.T) {
	var s Settings
	fields := map[uintptr]string{}
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		fields[v.Field(i).Addr().Pointer()] = v.Type().Field(i).Name
	}
	filled := s.WithDefaults()
	keys := map[string]bool{}
	for i := range Schema {
		line := &Schema[i]
		at := reflect.ValueOf(line.Field(&s)).Pointer()
		if fields[at] == "" {
			t.Errorf("%s: its field has another line, or is none of Settings", line.Key)
		}
		delete(fields, at)
		if keys[line.Key] {
			t.Errorf("%s: is given twice", line.Key)
		}
		keys[line.Key] = true
		if line.Doc == "" || line.Bounds == "" {
			t.Errorf("%s: %q, %q", line.Key, line.Bounds, line.Doc)
		}
		if line.Events && reflect.TypeOf(line.Field(&s)).Elem().Kind() == reflect.Slice {
			t.Errorf("%s: an event may override a list", line.Key)
		}
		if line.Default == nil {
			continue
		}
		if rule := line.Rule(&filled); rule != "" {
			t.Errorf("%s: its default is against its rule: %s", line.Key, rule)
		}
		if line.IsZero(&filled) || !line.IsDefault(&filled) || !line.IsDefault(&s) {
			t.Errorf("%s: its default is not filled in, or not known again", line.Key)
		}
	}
	for _, name := range fields {
		t.Errorf("%s has no line", name)
	}
}

// TestSettingsOfANewerBuild: a setting at its default is not written, so that a build which does not know it reads on;
// one that is used is refused there.
func TestSettingsOfANewerBuild(t *testing.T) {
	data, err := EncodeDocument(Document{Rooms: []Settings{{
		Name: "a", Grace: DefaultGrace, TicketBinding: DefaultBinding,
		QueueAll: true,
	}}})
	if want := `{"rooms":[{"name":"a","queue_all":true}],"hosts":[]}`; err != nil || string(data) != want {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
	for _, c := range []struct{ data, want string }{
		{`{"rooms":[{"later":1}]}`, "rooms[0].later: "},
		{`{"rooms":[{"events":[{"later":{"a":[1]}}]}]}`, "rooms[0].events[0].later: "},
		{`{"later":1,"rooms":[]}`, "later: "},
	} {
		if _, err := DecodeDocument([]byte(c.data)); !errors.Is(err, ErrUnknownField) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.data, err)
		}
	}
}

// TestTheReferenceIsTheSchema: docs/ROOMS.md has the table that the schema makes.
func TestTheReferenceIsTheSchema(t *testing.T) {
	const file, begin, end = "../../../docs/ROOMS.md",
		"<!-- generated from internal/core/room/schema.go: make golden -->\n", "<!-- end -->\n"
	data := testkit.Must(os.ReadFile(file))(t)
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table of settings", file)
	}
	if *rewrite {
		testkit.NoError(t, os.WriteFile(file, []byte(before+begin+reference()+end+after), 0o644))
		return
	}
	if diff := cmp.Diff(reference(), old); diff != "" {
		t.Errorf("make golden: %s", diff)
	}
}

// reference returns the schema as Markdown, for operators.
func reference() string {
	var b strings.Builder
	b.WriteString("| key | default | may be | meaning |\n|---|---|---|---|\n")
	for i := range Schema {
		t := &Schema[i]
		byDefault := "–"
		switch d := t.Default.(type) {
		case time.Duration:
			byDefault = "`" + short(d) + "`"
		case nil:
			if t.Required() {
				byDefault = "required"
			}
		default:
			byDefault = fmt.Sprintf("`%v`", d)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", t.Key, byDefault, t.Bounds, t.Doc)
	}
	var keys []string
	for t := range Overridable() {
		keys = append(keys, "`"+t.Key+"`")
	}
	fmt.Fprintf(&b, "\nAn [event](#events) may override %s.\n", alternatives(keys))
	return b.String()
}
