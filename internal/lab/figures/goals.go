package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/docs"
)

// Goal is a row of the table of goals: a bound of a figure that a command measures. Its bound stands nowhere else.
type Goal struct {
	Name    string   `json:"name"`
	Command string   `json:"command"` // that shows it: "make siege"
	Unit    string   `json:"unit,omitempty"`
	Most    *float64 `json:"most,omitempty"`  // the figure is at most this
	Least   *float64 `json:"least,omitempty"` // and at least this
	// Idle is set for real time, which a busy machine prolongs: a miss is not judged there.
	Idle  bool  `json:"idle,omitempty"`
	Known *Miss `json:"known,omitempty"` // nil if the goal is kept
}

// Miss is the decision about a goal that is missed.
type Miss struct {
	Most     *float64 `json:"most,omitempty"`  // a figure above is a failure
	Least    *float64 `json:"least,omitempty"` // a figure below is a failure
	Decision string   `json:"decision"`        // what was tried, and why it stays
}

// Verdict is what became of a goal.
type Verdict string

// The verdicts.
const (
	Kept      Verdict = "kept"
	KnownMiss Verdict = "known miss" // within the bound of its decision
	Missed    Verdict = "MISSED"
	NotJudged Verdict = "not judged" // real time on a machine with other work
)

// Judged is a figure with its verdict. Commands append them to the file that FiguresFile names.
type Judged struct {
	Name    string  `json:"name"`         // of the goal
	Of      string  `json:"of,omitempty"` // the case, if the goal holds for several
	Value   float64 `json:"value"`
	Verdict Verdict `json:"verdict"`
	Text    string  `json:"text"` // the printed line
}

// FiguresFile is the environment variable with the file of judged figures; `make nightly` sets it.
const FiguresFile = "FIGURES_FILE"

// table is docs/figures.json.
var table = sync.OnceValues(func() (*Document, error) { return Decode([]byte(docs.Figures)) })

// Goals returns all goals.
func Goals() ([]Goal, error) {
	d, err := table()
	if err != nil {
		return nil, err
	}
	return d.Goals, nil
}

// GoalOf returns the goal of a name. A case with a row of its own, "name, case", has that one.
func GoalOf(name, of string) (*Goal, error) {
	d, err := table()
	if err != nil {
		return nil, err
	}
	var found *Goal
	for i := range d.Goals {
		switch g := &d.Goals[i]; {
		case of != "" && g.Name == name+", "+of:
			return g, nil
		case g.Name == name:
			found = g
		}
	}
	if found == nil {
		return nil, fmt.Errorf("docs/figures.json has no goal %q", strings.TrimSuffix(name+", "+of, ", "))
	}
	return found, nil
}

// check returns an error for a goal without a name, a command or a bound, and for a known miss without a decision or
// with a bound that the goal lies beyond.
func (g *Goal) check() error {
	switch k := g.Known; {
	case g.Name == "" || !strings.HasPrefix(g.Command, "make "):
		return errors.New("a name and a command of make are needed")
	case g.Least == nil && g.Most == nil:
		return errors.New("least or most is needed")
	case k == nil:
	case k.Decision == "":
		return errors.New("a known miss needs a decision")
	case k.Least == nil && k.Most == nil:
		return errors.New("a known miss needs least or most")
	case k.Most != nil && g.Most != nil && *k.Most < *g.Most, k.Least != nil && g.Least != nil && *k.Least > *g.Least:
		return errors.New("the bound of the known miss is stricter than the goal")
	}
	return nil
}

// within reports whether a value is between two bounds, which may be nil.
func within(v float64, least, most *float64) bool {
	return (least == nil || v >= *least) && (most == nil || v <= *most)
}

// String returns the goal as text: "at most 0.1 %".
func (g *Goal) String() string { return bounds(g.Least, g.Most, g.Unit) }

func bounds(least, most *float64, unit string) string {
	var parts []string
	if least != nil {
		parts = append(parts, "at least "+number(*least))
	}
	if most != nil {
		parts = append(parts, "at most "+number(*most))
	}
	return strings.TrimSpace(strings.Join(parts, ", ") + " " + unit)
}

// number returns a value with at most three digits behind the point.
func number(v float64) string {
	s := strconv.FormatFloat(v, 'f', 3, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// judge returns the verdict of a value. others is the share of the machine that others use.
func (g *Goal) judge(v float64, m Load) Verdict {
	switch {
	case within(v, g.Least, g.Most):
		return Kept
	case g.Known != nil && within(v, g.Known.Least, g.Known.Most):
		return KnownMiss
	case g.Idle && m.Busy():
		return NotJudged
	}
	return Missed
}

// Judge judges figures by the table of goals, prints a line for each, and keeps those that are missed. The zero value
// prints nothing.
type Judge struct {
	Out    io.Writer // nil for none
	Missed []string  // lines
}

// Figure judges a figure of a goal. of names the case, if the goal holds for several; "" otherwise.
func (j *Judge) Figure(name, of string, value float64) (Judged, error) {
	g, err := GoalOf(name, of)
	if err != nil {
		return Judged{}, err
	}
	load := LoadNow()
	r := Judged{Name: g.Name, Value: value, Verdict: g.judge(value, load)}
	what := name
	if of != "" {
		what += ", " + of
		if g.Name == name {
			r.Of = of
		}
	}
	r.Text = fmt.Sprintf("%-10s %s: %s (goal: %s)", r.Verdict, what, strings.TrimSpace(number(value)+" "+g.Unit), g)
	switch r.Verdict {
	case KnownMiss:
		r.Text += fmt.Sprintf("; accepted: %s: %s", bounds(g.Known.Least, g.Known.Most, g.Unit), g.Known.Decision)
	case NotJudged:
		r.Text += "; `" + g.Command + "` on an idle machine judges it"
	case Kept:
	case Missed:
		if g.Known != nil {
			r.Text += fmt.Sprintf("; worse than accepted: %s", bounds(g.Known.Least, g.Known.Most, g.Unit))
		}
		j.Missed = append(j.Missed, r.Text)
	}
	if g.Idle {
		r.Text += fmt.Sprintf(" [%s]", load)
	}
	if j.Out != nil {
		fmt.Fprintln(j.Out, r.Text)
	}
	return r, record(r)
}

// Err returns an error that names the missed goals, nil if there is none.
func (j *Judge) Err() error {
	if len(j.Missed) == 0 {
		return nil
	}
	return errors.New("goals are missed:\n  " + strings.Join(j.Missed, "\n  "))
}

// record appends a judged figure to the file of [FiguresFile].
func record(r Judged) error {
	file := os.Getenv(FiguresFile)
	if file == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// Check judges a figure of a test, which fails if the goal is missed. of names the case, "" if there is one only.
func Check(t testing.TB, name, of string, value float64) {
	t.Helper()
	var j Judge
	r, err := j.Figure(name, of, value)
	switch {
	case err != nil:
		t.Error(err)
	case r.Verdict == Missed:
		t.Error(r.Text)
	default:
		t.Log(r.Text)
	}
}

// CheckTime judges a duration.
func CheckTime(t testing.TB, name, of string, d time.Duration) {
	t.Helper()
	g, err := GoalOf(name, of)
	if err != nil {
		t.Error(err)
		return
	}
	v := d.Seconds()
	switch g.Unit {
	case "ms":
		v *= 1e3
	case "us":
		v *= 1e6
	case "s":
	default:
		t.Errorf("%s: a time in %q", name, g.Unit)
	}
	Check(t, name, of, v)
}
