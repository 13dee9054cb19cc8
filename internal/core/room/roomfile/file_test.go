package roomfile

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

func TestParse(t *testing.T) {
	data := testkit.Must(os.ReadFile("testdata/rooms.yaml"))(t)
	got := testkit.Must(Parse(data))(t)
	want := room.Document{
		Rooms: []room.Settings{
			{
				Name: "tickets", Host: "shop.example.com", Path: "/sale",
				AdditionalRoutes: []room.Route{{Host: "m.example.com", Path: "/sale"}},
				TotalActiveUsers: 1000, NewUsersPerMinute: 600, SessionDuration: 5 * time.Minute,
				Probation: 90 * time.Second, Grace: 10 * time.Minute, PartitionPolicy: "cap", LostAfter: 20 * time.Minute,
				OnIsolation: "open", IsolationLimit: 50,
				Origin: "http://10.0.0.5:8080", QueueingStatus: 200, WaitingPage: "page.html",
				DefaultLanguage: "de-DE", QueueMessage: "Doors open at noon, and not before.", TicketBinding: "network",
			},
			{
				Name: "2027", Host: "shop.example.com", Path: "/2027",
				TotalActiveUsers: 50, NewUsersPerMinute: 10, SessionDuration: 5 * time.Minute,
				Probation: time.Minute, Grace: 5 * time.Minute, PartitionPolicy: "serve", LostAfter: 15 * time.Minute,
				OnIsolation: "hold",
				Origin:      "http://10.0.0.6", QueueingStatus: 200, DefaultLanguage: "en-US", TicketBinding: "none",
			},
			{
				Name: "backup", Host: "shop.example.com", Path: "/backup",
				TotalActiveUsers: 50, NewUsersPerMinute: 10, SessionDuration: 5 * time.Minute,
				Probation: time.Minute, Grace: 5 * time.Minute, PartitionPolicy: "serve", LostAfter: 15 * time.Minute,
				OnIsolation: "hold",
				Origin:      "http://10.0.0.6", QueueingStatus: 200, DefaultLanguage: "en-US", TicketBinding: "none",
			},
		},
		Hosts: []room.Host{
			{Name: "shop.example.com", Origin: "http://10.0.0.5:8080"},
			{Name: "static.example.com", Origin: "https://static.internal"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	testkit.Must(room.NewSet(got, 1))(t)
	for _, none := range []string{
		"rooms: []", "rooms: []\nhosts: []\n", "{rooms: []}", "---\nrooms: []\n...\n",
		`{"rooms":[],"hosts":[]}`,
	} {
		if doc, err := Parse([]byte(none)); err != nil || len(doc.Rooms) > 0 {
			t.Errorf("%q: %v, %v", none, doc, err)
		}
	}
}

// good is a complete room, at lines 2 to 6 of a file.
const good = `rooms:
  - name: tickets
    host: shop.example.com
    total_active_users: 1000
    new_users_per_minute: 600
    origin: http://10.0.0.5:8080
`

func TestParseFaults(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       string // the faults, one a line
	}{
		{"good", good, ""},
		{"empty", "", "line 1: rooms: is required: write rooms: [] to have none"},
		{"comments", "# nothing\n\n", "line 1: rooms: is required: write rooms: [] to have none"},
		{"null", "---\n", "line 1: rooms: is required: write rooms: [] to have none"},
		{"null word", "null", "line 1: rooms: is required: write rooms: [] to have none"},
		{"empty mapping", "{}", "line 1: rooms: is required: write rooms: [] to have none"},
		{"hosts only", "\nhosts: []", "line 2: rooms: is required: write rooms: [] to have none"},
		{"rooms null", "hosts: []\nrooms:\n", "line 2: rooms: is required: write rooms: [] to have none"},
		{"rooms no list", "rooms: {}", "line 1: rooms: must be a list, got a mapping"},
		{"hosts no list", "rooms: []\nhosts: x", `line 2: hosts: must be a list, got the text "x"`},
		{"list", "- a", "line 1: must be a mapping with the keys rooms and hosts, got a list"},
		{"text", "tickets", `line 1: must be a mapping with the keys rooms and hosts, got the text "tickets"`},
		{"top key", "room: []\n", `line 1: room: unknown key, did you mean "rooms"?`},
		{"top key beside", "rooms: []\nhost: []\nrooms2: 1\nversion: 2", `line 2: host: unknown key, did you mean "hosts"?
line 3: rooms2: unknown key, did you mean "rooms"?
line 4: version: unknown key`},
		{"top duplicate", "rooms: []\nrooms: []", "line 2: rooms: is written twice, first on line 1"},
		{
			"two documents", "rooms: []\n---\nrooms: []\n",
			"line 2: the file must hold one YAML document, and here begins another",
		},
		{"tab", "rooms:\n\t- a", "line 2: not YAML: found character that cannot start any token"},
		{"unclosed", "rooms: [", "line 1: not YAML: did not find expected node content"},
		{"no such anchor", "rooms: *x", "line 1: not YAML: unknown anchor 'x' referenced"},
		{"second broken", "rooms: []\n---\n[", "line 3: not YAML: did not find expected node content"},
		{"not UTF-8", "rooms: []\n# \xff", "line 2: the file must be UTF-8"},

		{"room no mapping", "rooms: [a, [], ]\n", `line 1: rooms[0]: must be a mapping, got the text "a"
line 1: rooms[1]: must be a mapping, got a list`},
		{"empty room", "rooms:\n  - {}\n", `line 2: rooms[0]: total_active_users: is required
line 2: rooms[0]: new_users_per_minute: is required
line 2: rooms[0]: name: is required
line 2: rooms[0]: host: is required
line 2: rooms[0]: origin: is required`},
		{"unknown", good + "    paht: /sale\n    Origin: x\n    \"queuing-status-code\": 3\n    total: 4\n    colour: red\n", `line 7: rooms[0] "tickets": paht: unknown key, did you mean "path"?
line 8: rooms[0] "tickets": Origin: unknown key, did you mean "origin"?
line 9: rooms[0] "tickets": queuing-status-code: unknown key, did you mean "queueing_status_code"?
line 10: rooms[0] "tickets": total: unknown key
line 11: rooms[0] "tickets": colour: unknown key`},
		{
			"a slip is one fault", strings.Replace(good, "total_active_users", "total_active_user", 1),
			`line 4: rooms[0] "tickets": total_active_user: unknown key, did you mean "total_active_users"?`,
		},
		{"duplicate", good + "    host: other.example.com\n    path: /\n    path: /x\n", `line 7: rooms[0] "tickets": host: is written twice, first on line 3
line 9: rooms[0] "tickets": path: is written twice, first on line 8`},
		{
			"merge", "rooms:\n  - <<: {name: a}\n    host: a\n",
			`line 2: rooms[0]: merge keys (<<) are not supported: write the values out`,
		},
		{"odd key", good + "    [a, b]: c\n", `line 7: rooms[0] "tickets": must have plain keys, got a list`},
		{"alias of a mapping", "rooms:\n  - &a {name: b}\n  - *a\n", `line 2: rooms[0] "b": total_active_users: is required
line 2: rooms[0] "b": new_users_per_minute: is required
line 2: rooms[0] "b": host: is required
line 2: rooms[0] "b": origin: is required
line 3: rooms[1]: must be a mapping, got an alias (*): write the value out`},
		{
			"alias of a bad value", "rooms:\n" + strings.TrimPrefix(good,
				"rooms:\n") + "    path: &p nope\n    waiting_page: *p\n    session_duration: *p\n",
			`line 7: rooms[0] "tickets": path: must begin with a slash, got "nope"
line 9: rooms[0] "tickets": session_duration: must be a duration such as 5m or 90s, got the text "nope"`,
		},
		{"types", `rooms:
  - name: 2027
    host: [a]
    path:
    total_active_users: many
    new_users_per_minute: 1.5
    session_duration: 300
    origin: true
    queueing_status_code: "200"
    waiting_page: 2027-01-01
    epoch: -1
    additional_routes: /x
    partition_policy: 1
    lost_after: 15
    on_isolation: off
    isolation_limit: none
`, `line 2: rooms[0] "2027": name: must be a text, got the number 2027: put it in quotes
line 3: rooms[0] "2027": host: must be a text, got a list
line 4: rooms[0] "2027": path: is empty: give a value or leave the key out
line 5: rooms[0] "2027": total_active_users: must be a whole number in plain digits, got the text "many"
line 6: rooms[0] "2027": new_users_per_minute: must be a whole number in plain digits, got the number 1.5
line 7: rooms[0] "2027": session_duration: must have a unit: write 300s or 300m
line 8: rooms[0] "2027": origin: must be a text, got the truth value true: put it in quotes
line 9: rooms[0] "2027": queueing_status_code: must be a whole number in plain digits, got the text "200"
line 10: rooms[0] "2027": waiting_page: must be a text, got the date 2027-01-01: put it in quotes
line 11: rooms[0] "2027": epoch: must be 0 to 4294967295, got -1
line 12: rooms[0] "2027": additional_routes: must be a list, got the text "/x"
line 13: rooms[0] "2027": partition_policy: must be a text, got the number 1: put it in quotes
line 14: rooms[0] "2027": lost_after: must have a unit: write 15s or 15m
line 15: rooms[0] "2027": on_isolation: must be hold, open or closed, got "off"
line 16: rooms[0] "2027": isolation_limit: must be a whole number in plain digits, got the text "none"`},
		{
			"partition", good + "    partition_policy: serves\n    lost_after: 0s\n    on_isolation: open\n    lost_afer: 1m\n",
			`line 2: rooms[0] "tickets": isolation_limit: must be 1 to 2147483647 where on_isolation is open, got 0
line 7: rooms[0] "tickets": partition_policy: must be serve or cap, got "serves"
line 8: rooms[0] "tickets": lost_after: must be 1m to 24h in whole seconds, got 0s
line 10: rooms[0] "tickets": lost_afer: unknown key, did you mean "lost_after"?`,
		},
		{"numbers", `rooms:
  - {name: a, host: a.test, path: /a, origin: "http://a", total_active_users: 0x10, new_users_per_minute: 1_000}
  - {name: b, host: a.test, path: /b, origin: "http://a", total_active_users: 010, new_users_per_minute: 2147483648}
  - {name: c, host: a.test, path: /c, origin: "http://a", total_active_users: 99999999999999999999, new_users_per_minute: -0}
  - {name: d, host: a.test, path: /d, origin: "http://a", total_active_users: 1, new_users_per_minute: 1, epoch: 4294967296, queueing_status_code: 0, session_duration: 0s}
  - {name: e, host: a.test, path: /e, origin: "http://a", total_active_users: 1, new_users_per_minute: 1, epoch: 4294967295, session_duration: 0}
  - {name: f, host: a.test, path: /f, origin: "http://a", total_active_users: ~, new_users_per_minute: 1, session_duration: 1:30}
`, `line 2: rooms[0] "a": total_active_users: must be a whole number in plain digits, got the number 0x10
line 2: rooms[0] "a": new_users_per_minute: must be a whole number in plain digits, got the number 1_000
line 3: rooms[1] "b": total_active_users: must be a whole number in plain digits, got the number 010
line 3: rooms[1] "b": new_users_per_minute: must be 1 to 2147483647, got 2147483648
line 4: rooms[2] "c": total_active_users: is out of range, got the number 99999999999999999999
line 4: rooms[2] "c": new_users_per_minute: must be 1 to 2147483647, got 0
line 5: rooms[3] "d": epoch: must be 0 to 4294967295, got 4294967296
line 5: rooms[3] "d": queueing_status_code: must be 200, 202, 429 or 503, got 0
line 5: rooms[3] "d": session_duration: must be 5s to 1h in whole seconds, got 0s
line 6: rooms[4] "e": session_duration: must have a unit: write 0s or 0m
line 7: rooms[5] "f": total_active_users: must be a whole number in plain digits, got nothing
line 7: rooms[5] "f": session_duration: must be a duration such as 5m or 90s, got the text "1:30"`},
		{"rules of package room, with their lines", `hosts:
  - name: x.test
    origin: http://169.254.169.254
rooms:
  - name: a
    host: shop.test:80
    path: sale
    additional_routes:
      - host: m.test
      - host: ""
        path: /x//y
      - {host: n.test, port: 80}
    total_active_users: 0
    new_users_per_minute: 5
    session_duration: 2h
    origin: http://a
    queueing_status_code: 201
    waiting_page: ../x
  - name: a
    host: M.TEST
    total_active_users: 1
    new_users_per_minute: 5
    origin: http://b
`, `line 3: hosts[0] "x.test": origin: must not be a link-local, metadata, multicast or unspecified address, got "http://169.254.169.254"
line 6: rooms[0] "a": host: must not have a port: a room covers its host on every port, got "shop.test:80"
line 7: rooms[0] "a": path: must begin with a slash, got "sale"
line 10: rooms[0] "a": additional_routes[1].host: is empty: give a value or leave the key out
line 11: rooms[0] "a": additional_routes[1].path: must not contain an empty segment (//), got "/x//y"
line 12: rooms[0] "a": additional_routes[2].port: unknown key
line 13: rooms[0] "a": total_active_users: must be 1 to 2147483647, got 0
line 15: rooms[0] "a": session_duration: must be 5s to 1h in whole seconds, got 2h0m0s
line 17: rooms[0] "a": queueing_status_code: must be 200, 202, 429 or 503, got 201
line 18: rooms[0] "a": waiting_page: must be a file name of 1 to 128 of A-Z a-z 0-9 _ - . that does not begin with a dot, got "../x"
line 19: rooms[1] "a": name: is the name of rooms[0] already
line 19: rooms[1] "a": path: names m.test/, which rooms[0] "a" covers already
line 23: rooms[1] "a": origin: differs from that of rooms[0] "a", so m.test needs an entry in hosts that says where paths no room covers go`},
		{
			"route without host", good + "    additional_routes:\n      - path: /x\n",
			`line 8: rooms[0] "tickets": additional_routes[0].host: is required`,
		},
		{"hosts after rooms", good + "hosts:\n  - {name: a.test}\n  - [b]\n  - {name: a.test, orign: http://a}\n", `line 8: hosts[0] "a.test": origin: is required
line 9: hosts[1]: must be a mapping with the keys name and origin, got a list
line 10: hosts[2] "a.test": orign: unknown key, did you mean "origin"?
line 10: hosts[2] "a.test": name: has an entry already`},
		{"tags", "rooms:\n  - name: !!binary aGk=\n    host: !x a\n    origin: !!str 5\n    total_active_users: !!int \"5\"\n    new_users_per_minute: !!float 5\n", `line 2: rooms[0] "aGk=": name: must be a text, got a value with the tag !!binary: put it in quotes
line 3: rooms[0] "aGk=": host: must be a text, got a value with the tag !x: put it in quotes
line 4: rooms[0] "aGk=": origin: must be an absolute URL such as http://10.0.0.5:8080, got "5"
line 5: rooms[0] "aGk=": total_active_users: must be a whole number in plain digits, got the number 5`},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc, err := Parse([]byte(c.file))
			got := ""
			if err != nil {
				got = err.Error()
				var fs room.Faults
				if !errors.As(err, &fs) || len(doc.Rooms)+len(doc.Hosts) > 0 {
					t.Errorf("error of type %T with %v", err, doc)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseBounds(t *testing.T) {
	pad := strings.Repeat("#", MaxBytes-len("rooms: []\n"))
	if _, err := Parse([]byte("rooms: []\n" + pad)); err != nil {
		t.Errorf("the largest file: %v", err)
	}
	if _, err := Parse([]byte("rooms: []\n" + pad + "#")); err == nil ||
		err.Error() != "the file must be at most 16777216 bytes, got 16777217" {
		t.Errorf("one byte more: %v", err)
	}
	for file, want := range map[string]string{
		"rooms: [" + strings.Repeat("{},",
			room.MaxRooms+1) + "]": "line 1: rooms: must be at most 10000, got 10001",
		good + "    additional_routes: [" + strings.Repeat("{},",
			room.MaxRoutes+1) + "]": `line 7: rooms[0] "tickets": additional_routes: must be at most 64, got 65`,
	} {
		if _, err := Parse([]byte(file)); err == nil || err.Error() != want {
			t.Errorf("%.40s: %v", file, err)
		}
	}
}

// TestParseReadsWhatItMeans writes random valid documents as YAML and parses them.
func TestParseReadsWhatItMeans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want room.Document
		var b strings.Builder
		b.WriteString("rooms:")
		n := rapid.IntRange(0, 5).Draw(t, "rooms")
		if n == 0 {
			b.WriteString(" []")
		}
		b.WriteString("\n")
		for i := range n {
			s := room.Settings{
				Name: fmt.Sprintf("room-%d", i), Host: fmt.Sprintf("h%d.test", i%2), Path: fmt.Sprintf("/%d", i),
				TotalActiveUsers:  rapid.IntRange(1, room.MaxRate).Draw(t, "T"),
				NewUsersPerMinute: rapid.IntRange(1, room.MaxRate).Draw(t, "R"),
				SessionDuration:   time.Duration(rapid.IntRange(5, 3600).Draw(t, "session")) * time.Second, Origin: "http://o",
				Probation:       time.Duration(rapid.IntRange(10, 3600).Draw(t, "probation")) * time.Second,
				Grace:           time.Duration(rapid.IntRange(10, 3600).Draw(t, "grace")) * time.Second,
				PartitionPolicy: rapid.SampledFrom([]string{"serve", "cap"}).Draw(t, "policy"),
				LostAfter:       time.Duration(rapid.IntRange(60, 86400).Draw(t, "lost")) * time.Second,
				OnIsolation:     rapid.SampledFrom([]string{"hold", "open", "closed"}).Draw(t, "isolation"),
				IsolationLimit:  rapid.IntRange(1, room.MaxRate).Draw(t, "limit"),
				DefaultLanguage: rapid.SampledFrom(room.Languages).Draw(t, "language"),
				QueueMessage:    rapid.StringMatching(`[a-z <>&'"{}:#-]*[a-z]`).Draw(t, "message"),
				QueueingStatus:  rapid.SampledFrom([]int{200, 202, 429}).Draw(t, "status"), Epoch: rapid.Uint32().Draw(t, "epoch"),
				TicketBinding: rapid.SampledFrom([]string{"none", "network", "strict"}).Draw(t, "binding"),
			}
			want.Rooms = append(want.Rooms, s)
			lines := []string{
				fmt.Sprintf("name: %s", s.Name), fmt.Sprintf("host: %s", s.Host), fmt.Sprintf("path: %q", s.Path),
				fmt.Sprintf("total_active_users: %d", s.TotalActiveUsers),
				fmt.Sprintf("new_users_per_minute: %d", s.NewUsersPerMinute),
				fmt.Sprintf("probation: %v", s.Probation), fmt.Sprintf("grace: %v", s.Grace),
				"partition_policy: " + s.PartitionPolicy, fmt.Sprintf("lost_after: %v", s.LostAfter),
				"on_isolation: " + s.OnIsolation, fmt.Sprintf("isolation_limit: %d", s.IsolationLimit),
				"default_template_language: " + s.DefaultLanguage, fmt.Sprintf("queue_message: %q", s.QueueMessage),
				fmt.Sprintf("session_duration: %v", s.SessionDuration), "origin: 'http://o'",
				fmt.Sprintf("queueing_status_code: %d", s.QueueingStatus), fmt.Sprintf("epoch: %d", s.Epoch),
				"ticket_binding: " + s.TicketBinding,
			}
			lines = rapid.Permutation(lines).Draw(t, "order")
			b.WriteString("  - " + strings.Join(lines, "\n    ") + "\n")
		}
		got, err := Parse([]byte(b.String()))
		if err != nil {
			t.Fatalf("%s\n%v", b.String(), err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzParse(f *testing.F) {
	data := testkit.Must(os.ReadFile("testdata/rooms.yaml"))(f)
	f.Add(data)
	for _, s := range []string{
		good, "rooms: []", "rooms: [*a]", "&a rooms: [*a]", "rooms: &a [*a]", "? [a]\n: b", "rooms:\n  - <<: *a",
		"!!map {rooms: !!seq []}",
		"%YAML 1.1\n---\nrooms: []", "\ufeffrooms: []", "rooms: [{name: |\n  a\n}]", "\"rooms\": ['a', >\n  x]",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := 1 + strings.Count(string(data), "\n") + strings.Count(string(data), "\r") +
			strings.Count(string(data), "\u0085") + strings.Count(string(data), "\u2028") + strings.Count(string(data), "\u2029")
		doc, err := Parse(data)
		if err == nil {
			if _, err := room.NewSet(doc, 1); err != nil {
				t.Fatalf("%q is parsed, but %v", data, err)
			}
			encoded := testkit.Must(room.EncodeDocument(doc))(t)
			// Parsed rooms can be published. JSON is YAML, so it can be parsed here too, but for empty texts.
			testkit.Must(room.DecodeDocument(encoded))(t)
			return
		}
		var fs room.Faults
		if !errors.As(err, &fs) || len(fs) == 0 {
			t.Fatalf("%q: error %T %v", data, err, err)
		}
		last := 0
		for _, f := range fs {
			if f.Line < last || f.Line < 1 && len(data) <= MaxBytes || f.Line > lines || f.Rule == "" {
				t.Fatalf("%q: fault %+v after line %d of %d", data, f, last, lines)
			}
			last = f.Line
		}
	})
}

// Of many faults the first thousand are listed and the others counted, and a file that would take much memory is
// refused before it is parsed.
func TestManyFaults(t *testing.T) {
	var keys strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&keys, "total_active_user%d: 1,", i)
	}
	for text, want := range map[string]string{
		"rooms: [{" + keys.String() + "}]":                     "4004 more faults",
		"rooms:\n" + strings.Repeat("- {}\n", 9000):            "44000 more faults",
		"rooms:\n" + strings.Repeat("- {}\n", 300_000):         "the file must have at most 200000 lines",
		"rooms: [" + strings.Repeat("a,", 300_000) + "]":       "the file must have at most 200000 lines",
		"rooms: " + strings.Repeat("[", 300_000):               "the file must have at most 200000 lines",
		"rooms: []\nhosts: [" + strings.Repeat("{},", 9) + "]": "",
	} {
		_, err := Parse([]byte(text))
		var all room.Faults
		errors.As(err, &all)
		last := all[len(all)-1]
		if len(all) > maxFaults+1 || strings.Count(err.Error(), "did you mean") > maxMeant ||
			!strings.Contains(last.Rule, want) || (last.More > 0) != strings.HasPrefix(want, "4") {
			t.Errorf("%.40s: %d faults, the last: %+v, want %q", text, len(all), last, want)
		}
	}
}
