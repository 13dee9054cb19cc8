package sim

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Profiles are the ways to draw an experiment from a seed, with the flags of vestibule simulate that select them.
var Profiles = []Profile{
	{"--vary", Vary},
	{"--vary --faults", VaryFaults},
	{"--small", Small},
}

// Profile is one of [Profiles].
type Profile struct {
	Flags string
	Draw  func(seed uint64) Config
}

// Variant is a drawn experiment with parts left out. The zero value of a field leaves nothing out.
type Variant struct {
	Profile Profile
	Seed    uint64
	Only    []int    // numbers of the faults that happen; nil for all
	Without []string // other parts left out, see Enemies

	Minutes        float64
	Centres, Edges int
	PerMinute      float64
}

// Config returns the experiment.
func (v *Variant) Config() Config {
	c := v.Profile.Draw(v.Seed)
	c.Faults.Only = v.Only
	for _, name := range v.Without {
		for _, e := range enemies {
			if e.name == name {
				e.off(&c)
			}
		}
	}
	if v.Minutes > 0 {
		c.Length = time.Duration(v.Minutes * float64(time.Minute))
	}
	if v.Centres > 0 {
		c.Centres, c.Listed = v.Centres, min(c.Listed, v.Centres)
		for i := range c.Demand.Spikes { // visitors of a left-out data centre come anywhere
			if s := &c.Demand.Spikes[i]; s.Centre > v.Centres {
				s.Centre = 0
			}
		}
	}
	if v.Edges > 0 {
		c.Edges = v.Edges
	}
	if v.PerMinute > 0 {
		c.Demand.PerMinute = v.PerMinute
	}
	return c
}

// Command returns the command line that runs it.
func (v *Variant) Command() string {
	out := fmt.Sprintf("vestibule simulate %s --seed %d", v.Profile.Flags, v.Seed)
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	if v.Only != nil {
		out += " --only " + FormatNumbers(v.Only)
	}
	if len(v.Without) > 0 {
		out += " --without " + strings.Join(v.Without, ",")
	}
	if v.Minutes > 0 {
		out += " --minutes " + number(v.Minutes)
	}
	if v.Centres > 0 {
		out += " --data-centers " + strconv.Itoa(v.Centres)
	}
	if v.Edges > 0 {
		out += " --edges " + strconv.Itoa(v.Edges)
	}
	if v.PerMinute > 0 {
		out += " --demand " + number(v.PerMinute)
	}
	return out + " --trace"
}

// FormatNumbers formats numbers for ParseNumbers; an empty list is "none".
func FormatNumbers(ns []int) string {
	if len(ns) == 0 {
		return "none"
	}
	parts := make([]string, len(ns))
	for i, n := range ns {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ",")
}

// ParseNumbers reads a list such as 3,7,12.
func ParseNumbers(text string) ([]int, error) {
	ns := []int{}
	if text == "none" {
		return ns, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 0 {
			return nil, fmt.Errorf("must be numbers of faults such as 3,7,12, or none; got %q", text)
		}
		ns = append(ns, n)
	}
	return ns, nil
}

// enemy is a hostile part that can be left out of an experiment: the fields of Config, by their indices, that have its
// name as their tag "without".
type enemy struct {
	name   string
	fields [][]int
}

// hop is the enemy that is left out by a one: visitors change edges.
const hop = "hop"

var enemies = append(enemiesOf(reflect.TypeFor[Config]()), enemy{name: hop})

// enemiesOf returns the enemies in the fields of a struct, and in those of its structs.
func enemiesOf(t reflect.Type, at ...int) (out []enemy) {
	for i := range t.NumField() {
		f, here := t.Field(i), append(slices.Clone(at), i)
		if f.Type.Kind() == reflect.Struct {
			out = append(out, enemiesOf(f.Type, here...)...)
		}
		for name := range strings.SplitSeq(f.Tag.Get("without"), ",") {
			k := slices.IndexFunc(out, func(e enemy) bool { return e.name == name })
			switch {
			case name == "":
			case k < 0:
				out = append(out, enemy{name, [][]int{here}})
			default:
				out[k].fields = append(out[k].fields, here)
			}
		}
	}
	return out
}

// off leaves the part out.
func (e *enemy) off(c *Config) {
	if e.name == hop {
		c.People.Stay = 1
	}
	for _, at := range e.fields {
		reflect.ValueOf(c).Elem().FieldByIndex(at).SetZero()
	}
}

// listed reports whether the part is single faults, which can be left out one by one.
func (e *enemy) listed() bool {
	is := func(k faultKind) bool { return k.part == e.name }
	return slices.ContainsFunc(faultKinds, is) || slices.ContainsFunc(operatorKinds, is)
}

// Enemies returns the names that Variant.Without accepts.
func Enemies() []string {
	out := make([]string, len(enemies))
	for i, e := range enemies {
		out[i] = e.name
	}
	return out
}

// CheckEnemies returns an error for the first name that is not in Enemies.
func CheckEnemies(names []string) error {
	all := Enemies()
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("must be among %s; got %q", strings.Join(all, ","), name)
		}
	}
	return nil
}

// Describe returns a readable description of the experiment.
func (c *Config) Describe() string {
	policy := "serve"
	if c.Cap {
		policy = "cap"
	}
	var with []string
	whole := fmt.Sprint(*c)
	for _, e := range enemies {
		without := *c
		e.off(&without)
		if fmt.Sprint(without) != whole {
			with = append(with, e.name)
		}
	}
	return fmt.Sprintf("%d data centres x %d edges, %v, T %d, R %d/min, session %v, partition_policy %s,\n%.0f visitors/min of %.1f pages, %v apart; LAN %v, WAN %v\nwith: %s",
		c.Centres, c.Edges, c.Length, c.Total, c.Rate, c.Session, policy, c.Demand.PerMinute, c.People.Pages, c.People.Think,
		c.Network.LAN, c.Network.WAN, strings.Join(with, " "))
}

// Shrink searches for a shorter experiment that breaks a promise as well: fewer faults, a smaller fleet, fewer
// visitors, less time. It runs at most tries experiments and returns the smallest; ok is false if v breaks no promise.
// step, if not nil, is called for every success.
func Shrink(v Variant, tries int, step func(v *Variant, r *Result)) (smallest Variant, ok bool) {
	s := shrinker{best: v, left: tries, step: step}
	if s.kind = kindOf(New(v.Config()).Run().Fault); s.kind == "" || !s.try(v) {
		return v, false
	}
	if v.Only == nil {
		c := v.Config()
		all := []int{}
		for _, f := range c.drawFaults() {
			all = append(all, f.number)
		}
		if v.Only = all; !s.try(v) {
			return s.best, true // it does not fail again
		}
	}
	for again := true; again && s.left > 0; {
		again = s.faults()
		again = s.enemies() || again
		again = s.size() || again
	}
	return s.best, true
}

// kindOf returns the broken promise without its details, so that shrinking keeps the same one.
func kindOf(fault string) string {
	var words []string
	for word := range strings.FieldsSeq(fault) {
		if !strings.ContainsAny(word, "0123456789") {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

type shrinker struct {
	kind string
	best Variant
	left int
	step func(v *Variant, r *Result)
}

// try runs v, and keeps it as the best if it breaks the promise. The run is cut off at that point.
func (s *shrinker) try(v Variant) bool {
	if s.left <= 0 {
		return false
	}
	s.left--
	r := New(v.Config()).Run()
	if kindOf(r.Fault) != s.kind {
		return false
	}
	if hundredths := float64(int(r.Elapsed.Minutes()*100)+1) / 100; v.Minutes == 0 || hundredths < v.Minutes {
		short := v
		short.Minutes = hundredths
		if again := New(short.Config()).Run(); kindOf(again.Fault) == s.kind {
			v, r = short, again
		}
	}
	s.best = v
	if s.step != nil {
		s.step(&v, r)
	}
	return true
}

// faults leaves out as many faults as possible: first halves, then quarters, at last single ones (delta debugging).
func (s *shrinker) faults() (any bool) {
	for part := max(1, len(s.best.Only)/2); ; part /= 2 {
		for from := 0; from < len(s.best.Only); {
			v := s.best
			v.Only = slices.Delete(slices.Clone(v.Only), from, min(from+part, len(v.Only)))
			if v.Only == nil {
				v.Only = []int{}
			}
			if s.try(v) {
				any = true
			} else {
				from += part
			}
		}
		if part <= 1 {
			return any
		}
	}
}

// enemies leaves out the parts that are not single faults.
func (s *shrinker) enemies() (any bool) {
	for _, e := range enemies {
		if e.listed() || slices.Contains(s.best.Without, e.name) {
			continue
		}
		v := s.best
		v.Without = append(slices.Clone(v.Without), e.name)
		if with, without := s.best.Config(), v.Config(); fmt.Sprint(with) == fmt.Sprint(without) {
			continue // it was not drawn
		}
		any = s.try(v) || any
	}
	return any
}

// size reduces the fleet and the visitors.
func (s *shrinker) size() (any bool) {
	for changed := true; changed; any = any || changed {
		changed = false
		c := s.best.Config()
		for n := 1; n < c.Centres && !changed; n++ {
			v := s.best
			v.Centres = n
			changed = s.try(v)
		}
		for n := 1; n < c.Edges && !changed; n++ {
			v := s.best
			v.Edges = n
			changed = s.try(v)
		}
		if !changed && c.Demand.PerMinute > 2 {
			v := s.best
			v.PerMinute = float64(int(c.Demand.PerMinute / 2))
			changed = s.try(v)
		}
	}
	return any
}
