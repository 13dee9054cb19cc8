package figures

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"vestibule/internal/lab/testkit"
)

var rewrite = flag.Bool("rewrite", false,
	"take over the figures in the files of the arguments, and write the documents")

const folder = "../../../docs/"

func read(t *testing.T, name string) []byte {
	t.Helper()
	return testkit.Must(os.ReadFile(folder + name))(t)
}

// TestTheDocumentIsRendered: docs/FIGURES.md is what docs/figures.json renders to.
func TestTheDocumentIsRendered(t *testing.T) {
	d := testkit.Must(Decode(read(t, "figures.json")))(t)
	for _, file := range flag.Args() {
		measured := testkit.Must(readMeasured(file))(t)
		for _, key := range d.take(measured) {
			t.Logf("no row of docs/figures.json is from %q", key)
		}
	}
	data := testkit.Must(d.encode())(t)
	for name, text := range map[string]string{"figures.json": string(data), "FIGURES.md": d.render()} {
		switch {
		case *rewrite:
			testkit.WriteFile(t, folder, name, text)
		case text != string(read(t, name)):
			t.Errorf("docs/%s is not as make record writes it: change docs/figures.json and run make record", name)
		}
	}
}

// TestMeasuredFiguresAreShown: a row shows each measured figure.
func TestMeasuredFiguresAreShown(t *testing.T) {
	d := testkit.Must(Decode(read(t, "figures.json")))(t)
	for key := range d.Measured {
		if !d.Keys()[key] {
			t.Errorf("no row shows the measured figure %q", key)
		}
	}
}

// TestRows: a row shows its own text until all of its figures are measured, then these with the date of the oldest.
func TestRows(t *testing.T) {
	d := &Document{Text: "Text.", Sections: []Section{{
		Title: "One", Date: "2026-11-21", Columns: []string{"figure", "goal", "seen"},
		Rows: []Row{
			{Cells: []string{"a", "1", "0.9"}, Date: "2026-11-22", From: []string{"x", "y"}},
			{Cells: []string{"b", "–", "2"}, Date: "2026-11-21"},
		},
	}}}
	const head = "# Figures\n\nText.\n\n## One\n\nOn 11-21 unless noted.\n\nfigure | goal | seen\n---|---|---\n"
	for _, c := range []struct {
		take []Measured
		want string
	}{
		{nil, "a (11-22) | 1 | 0.9\nb | – | 2\n"},
		{
			[]Measured{{Key: "x", Seen: "0.5", Missed: true, Date: "2026-11-24"}, {Key: "z"}},
			"a (11-22) | 1 | 0.9\nb | – | 2\n",
		},
		{[]Measured{{Key: "y", Seen: "0.7", Date: "2026-11-23"}}, "a (11-23) | 1 | **0.5**; 0.7\nb | – | 2\n"},
	} {
		others := d.take(c.take)
		if got := d.render(); got != head+c.want {
			t.Errorf("%v:\n%s", c.take, got)
		}
		if slices.Contains(others, "z") != (len(c.take) == 2) {
			t.Errorf("keys of no row: %q", others)
		}
	}
}

// TestDecodeRefuses: unknown keys, and rows that do not fit their table.
func TestDecodeRefuses(t *testing.T) {
	for _, data := range []string{
		`{"texts":""}`, `{"sections":[{"columns":["a"],"rows":[{"cells":["1","2"]}]}]}`, `[]`,
	} {
		if _, err := Decode([]byte(data)); err == nil {
			t.Errorf("%s was taken", data)
		}
	}
}

// take takes measured figures over, and returns the keys that no row has.
func (d *Document) take(measured []Measured) (others []string) {
	keys := d.Keys()
	for _, m := range measured {
		if !keys[m.Key] {
			others = append(others, m.Key)
			continue
		}
		if d.Measured == nil {
			d.Measured = map[string]Measured{}
		}
		d.Measured[m.Key] = m
	}
	return others
}

// encode encodes docs/figures.json.
func (d *Document) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(d)
	return b.Bytes(), err
}

// render returns the document.
func (d *Document) render() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Figures\n\n%s\n", d.Text)
	for _, s := range d.Sections {
		if s.Title != "" {
			fmt.Fprintf(&b, "\n## %s\n", s.Title)
		}
		lead := s.Text
		if s.Date != "" {
			lead = strings.TrimSpace("On " + short(s.Date) + " unless noted. " + lead)
		}
		if lead != "" {
			fmt.Fprintf(&b, "\n%s\n", lead)
		}
		fmt.Fprintf(&b, "\n%s\n%s\n", strings.Join(s.Columns, " | "), strings.Repeat("---|", len(s.Columns)-1)+"---")
		for _, r := range s.Rows {
			fmt.Fprintln(&b, strings.TrimRight(strings.Join(d.cells(&s, r), " | "), "\n"))
		}
		if s.After != "" {
			fmt.Fprintf(&b, "\n%s\n", s.After)
		}
	}
	if len(d.Goals) > 0 {
		b.WriteString("\n## Goals that are missed\n\nA command that shows a figure fails if it misses its goal in `docs/figures.json`, " +
			"or one of these if it is worse than accepted.\n\ngoal | bound | accepted | decision | command\n---|---|---|---|---\n")
	}
	for i := range d.Goals {
		if g := &d.Goals[i]; g.Known != nil {
			fmt.Fprintf(&b, "%s | %s | %s | %s | `%s`\n", g.Name, g, bounds(g.Known.Least, g.Known.Most, g.Unit), g.Known.Decision,
				g.Command)
		}
	}
	return b.String()
}

// cells returns the cells of a row with the measured figures and their date.
func (d *Document) cells(s *Section, r Row) []string {
	cells, date := append([]string{}, r.Cells...), r.Date
	if seen, on := d.seen(r.From); seen != "" {
		date = on
		for i, c := range s.Columns {
			if c == "seen" {
				cells[i] = seen
			}
		}
	}
	if date != "" && date != s.Date {
		cells[0] += " (" + short(date) + ")"
	}
	return cells
}

// seen returns the measured figures of a row and the date of the oldest; "" if one is missing.
func (d *Document) seen(keys []string) (text, date string) {
	var all []string
	for _, key := range keys {
		m, ok := d.Measured[key]
		if !ok {
			return "", ""
		}
		if m.Missed {
			m.Seen = "**" + m.Seen + "**"
		}
		all, date = append(all, m.Seen), min(cmp.Or(date, m.Date), m.Date)
	}
	return strings.Join(all, "; "), date
}

// short returns a date without its year.
func short(date string) string { return strings.TrimPrefix(date, "2026-") }

// readMeasured reads the figures of a file that Write wrote.
func readMeasured(file string) (all []Measured, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		var m Measured
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, m)
	}
}
