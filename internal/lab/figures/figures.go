// Package figures keeps the figures of docs/FIGURES.md. docs/figures.json has their names, goals and values, and the test
// renders the document from it. Commands and tests judge by its goals ([Judge], [Check]). Commands that measure write lines of [Measured] to a file, and `make record` takes them
// over. A row whose figures no command writes yet has its text in the data.
package figures

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Measured is a figure as a command measured it.
type Measured struct {
	Key     string `json:"key"` // the command, and its name of the figure: "simulate use of T, no faults"
	Seen    string `json:"seen"`
	Missed  bool   `json:"missed,omitempty"` // the value is worse than the goal
	Date    string `json:"date"`             // of UTC, 2026-11-24
	Machine string `json:"machine"`
	Commit  string `json:"commit"`
}

// Document is docs/figures.json.
type Document struct {
	Text     string              `json:"text"`
	Sections []Section           `json:"sections"`
	Goals    []Goal              `json:"goals"`
	Measured map[string]Measured `json:"measured"` // by key
}

// Section is a table with text around it.
type Section struct {
	Title   string   `json:"title,omitempty"` // empty for a further table of the section before
	Text    string   `json:"text,omitempty"`
	Date    string   `json:"date,omitempty"` // of rows without one
	Columns []string `json:"columns"`
	Rows    []Row    `json:"rows"`
	After   string   `json:"after,omitempty"`
}

// Row is a row of a table.
type Row struct {
	Cells []string `json:"cells"`          // as in the document, without the date
	Date  string   `json:"date,omitempty"` // of the cells
	// keys of the figures in the column "seen"; its cell counts until all are measured
	From []string `json:"from,omitempty"`
}

// Decode decodes docs/figures.json.
func Decode(data []byte) (*Document, error) {
	d := &Document{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(d); err != nil {
		return nil, err
	}
	for _, s := range d.Sections {
		for _, r := range s.Rows {
			if len(r.Cells) != len(s.Columns) {
				return nil, fmt.Errorf("%s: the row %q needs %d cells, got %d", s.Title, r.Cells, len(s.Columns), len(r.Cells))
			}
		}
	}
	names := map[string]bool{}
	for i := range d.Goals {
		g := &d.Goals[i]
		if err := g.check(); err != nil {
			return nil, fmt.Errorf("the goal %q: %w", g.Name, err)
		}
		if names[g.Name] {
			return nil, fmt.Errorf("two goals are called %q", g.Name)
		}
		names[g.Name] = true
	}
	return d, nil
}

// Read reads and decodes docs/figures.json, which is the named file.
func Read(file string) (*Document, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Decode(data)
}

// Keys returns the keys of all rows.
func (d *Document) Keys() map[string]bool {
	keys := map[string]bool{}
	for _, s := range d.Sections {
		for _, r := range s.Rows {
			for _, key := range r.From {
				keys[key] = true
			}
		}
	}
	return keys
}

// Machine returns the name of the processor and the number of cores.
func Machine() string {
	name := runtime.GOARCH
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if model, ok := strings.CutPrefix(line, "model name"); ok {
				name = strings.TrimLeft(strings.TrimSpace(model), ": \t")
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores", name, runtime.NumCPU())
}

// Write writes measured figures to a file, one a line, with date, machine and commit.
func Write(file string, measured []Measured) error {
	commit, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return fmt.Errorf("git describe: %w", err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, m := range measured {
		m.Date, m.Machine = time.Now().UTC().Format(time.DateOnly), Machine()
		m.Commit = strings.TrimSpace(string(commit))
		if err := e.Encode(m); err != nil {
			return err
		}
	}
	return os.WriteFile(file, b.Bytes(), 0o600)
}
