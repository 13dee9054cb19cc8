package room

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTheSchemaNamesEveryField: one line for each field of Settings, and a default that its own rule takes.
var rewrite = flag.Bool("rewrite", false, "write the reference in docs/ROOMS.md anew")

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
			t.Errorf("%s: stands there twice", line.Key)
		}
		keys[line.Key] = true
		if line.Since < 1 || line.Since > SchemaVersion || line.Doc == "" || line.Bounds == "" {
			t.Errorf("%s: since %d, %q, %q", line.Key, line.Since, line.Bounds, line.Doc)
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

// TestSettingsOfLaterVersions: a document says which settings its readers need, and those that they do not are left out.
func TestSettingsOfLaterVersions(t *testing.T) {
	i, j := byKey["grace"], byKey["queue_message"]
	defer func(a, b Setting) { Schema[i], Schema[j] = a, b }(Schema[i], Schema[j])
	Schema[i].Since, Schema[j].Since, Schema[j].Soft = SchemaVersion+1, SchemaVersion+2, true

	doc := Document{Rooms: []Settings{{Name: "a"}, {Name: "b"}}}.WithDefaults()
	says := func(want ...string) []byte {
		t.Helper()
		data, err := EncodeDocument(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if without, not := strings.CutPrefix(w, "!"); strings.Contains(string(data), without) == not {
				t.Errorf("%q in %s", w, data)
			}
		}
		return data
	}
	says("!version", "!needs", "!grace", "!queue_message")
	doc.Rooms[1].QueueMessage = "Hello."
	says(fmt.Sprintf(`{"version":%d,"needs":1,`, SchemaVersion+2), "!grace", "queue_message")
	doc.Rooms[0].Grace *= 2
	data := says(fmt.Sprintf(`{"version":%d,"needs":%d,`, SchemaVersion+2, SchemaVersion+1), `"grace":"10m0s"`)

	if _, err := DecodeDocument(data); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("settings of version %d, this node knows version %d", SchemaVersion+1, SchemaVersion)) {
		t.Errorf("a document that needs more than this node knows: %v", err)
	}
	doc.Rooms[0].Grace = 0
	soft, err := EncodeDocument(doc)
	if err != nil {
		t.Fatal(err)
	}
	unknown := strings.Replace(string(soft), `"queue_message":"Hello."`, `"later":{"a":[1,{"b":null}]}`, 1)
	got, err := DecodeDocument([]byte(unknown))
	doc.Rooms[1].QueueMessage, doc.Rooms[0].Grace = "", 0
	for i := range doc.Rooms {
		doc.Rooms[i].Grace, doc.Rooms[i].TicketBinding = 0, "" // not written
		doc.Rooms[i].AdditionalRoutes = nil
	}
	if diff := cmp.Diff(doc.Rooms, got.Rooms); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := DecodeDocument([]byte(`{"version":1,"rooms":[{"later":1}]}`)); err == nil || !strings.Contains(err.Error(), "rooms[0].later: unknown field") {
		t.Errorf("an unknown setting of a version that we know: %v", err)
	}
}

// TestTheReferenceIsTheSchema: docs/ROOMS.md has the table that the schema makes.
func TestTheReferenceIsTheSchema(t *testing.T) {
	const file, begin, end = "../../../docs/ROOMS.md", "<!-- generated from internal/core/room/schema.go: make golden -->\n", "<!-- end -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table of settings", file)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(before+begin+Reference()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(Reference(), old); diff != "" {
		t.Errorf("make golden: %s", diff)
	}
}
