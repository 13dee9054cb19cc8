package figures

import (
	"os"
	"slices"
	"testing"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTheDocumentIsRendered: docs/FIGURES.md is what docs/figures.json renders to.
func TestTheDocumentIsRendered(t *testing.T) {
	data := read(t, "figures.json")
	d, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if d.Render() != string(read(t, "FIGURES.md")) {
		t.Error("docs/FIGURES.md differs from docs/figures.json: change the latter and run make record")
	}
	if out, err := d.Encode(); err != nil || string(out) != string(data) {
		t.Errorf("docs/figures.json is not as make record writes it: %v", err)
	}
}

// TestMeasuredFiguresAreShown: a row shows each measured figure.
func TestMeasuredFiguresAreShown(t *testing.T) {
	d, err := Decode(read(t, "figures.json"))
	if err != nil {
		t.Fatal(err)
	}
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
		others := d.Take(c.take)
		if got := d.Render(); got != head+c.want {
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
