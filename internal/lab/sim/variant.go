package sim

import (
	"fmt"
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
	Policy  bool     // partition_policy is edited too, see Faults.Policy

	Minutes        float64
	Centres, Edges int
	PerMinute      float64
}

// Config returns the experiment.
func (v *Variant) Config() Config {
	c := v.Profile.Draw(v.Seed)
	c.Faults.Only = v.Only
	c.Faults.Policy = c.Faults.Policy || v.Policy
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
	if v.Policy {
		out += " --policy-edits"
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

// enemy is a hostile part that can be left out of an experiment.
type enemy struct {
	name   string
	listed bool // as single faults, which can be left out one by one
	off    func(c *Config)
}

var enemies = []enemy{
	{"crash-edge", true, func(c *Config) { c.Faults.CrashEdge = false }},
	{"crash-regional", true, func(c *Config) { c.Faults.CrashRegion = false }},
	{"crash-global", true, func(c *Config) { c.Faults.CrashGlobal = false }},
	{"zombies", false, func(c *Config) { c.Faults.Zombies = false }},
	{"twins", true, func(c *Config) { c.Faults.Twins = false }},
	{"folders", true, func(c *Config) { c.Faults.Folders = false }},
	{"bad-folders", true, func(c *Config) { c.Faults.BadFolders = false }},
	{"old-images", true, func(c *Config) { c.Faults.OldImages = false }},
	{"pasts", false, func(c *Config) { c.Faults.Pasts, c.Faults.BadFolders, c.Faults.OldImages = false, false, false }},
	{"forget", true, func(c *Config) { c.Faults.Forget = false }},
	{"ephemeral", true, func(c *Config) { c.Faults.Ephemeral = false }},
	{"forever", true, func(c *Config) { c.Faults.Forever = false }},
	{"cut-edge", true, func(c *Config) { c.Faults.CutEdge = false }},
	{"cut-region", true, func(c *Config) { c.Faults.CutRegion = false }},
	{"cut-pair", true, func(c *Config) { c.Faults.CutPair = false }},
	{"stop", true, func(c *Config) { c.Faults.Stop = false }},
	{"limits", true, func(c *Config) { c.Faults.Limits = false }},
	{"session", true, func(c *Config) { c.Faults.Session = false }},
	{"policy", true, func(c *Config) { c.Faults.Policy = false }},
	{"epoch", true, func(c *Config) { c.Faults.Epoch = false }},
	{"remove", true, func(c *Config) { c.Faults.Remove = false }},
	{"dropped", true, func(c *Config) { c.Faults.Drop = false }},
	{"wipe", false, func(c *Config) { c.Faults.Wipe = false }},
	{"blank", true, func(c *Config) { c.Faults.Blank = false }},
	{"rollback", true, func(c *Config) { c.Faults.Rollback = false }},
	{"keys", true, func(c *Config) { c.Faults.Keys = false }},
	{"members", true, func(c *Config) { c.Faults.Members = false }},
	{"forsake", true, func(c *Config) { c.Faults.Forsake = false }},
	{"fail", true, func(c *Config) { c.Faults.Fail = false }},
	{"torn", false, func(c *Config) { c.Faults.Torn = false }},
	{"copies", true, func(c *Config) { c.Faults.Copies = false }},
	{"methods", true, func(c *Config) { c.Faults.Methods = false }},
	{"pause", true, func(c *Config) { c.Faults.Pause = false }},
	{"for-now", true, func(c *Config) { c.Faults.ForNow = false }},
	{"suspend", true, func(c *Config) { c.Faults.Suspend = false }},
	{"renewal", true, func(c *Config) { c.Faults.Renewal = false }},
	{"events", true, func(c *Config) { c.Faults.Events = false }},
	{"draws", true, func(c *Config) { c.Faults.Draws = false }},
	{"rules", true, func(c *Config) { c.Faults.Rules = false }},
	{"rename", true, func(c *Config) { c.Faults.Rename = false }},
	{"release", true, func(c *Config) { c.Faults.Release = false }},
	{"restart", true, func(c *Config) { c.Faults.Restart = false }},
	{"forgetful", false, func(c *Config) { c.Faults.Forgetful = false }},
	{"disk", false, func(c *Config) { c.Faults.Disk = false }},
	{"clocks", false, func(c *Config) { c.Faults.Clocks = false }},
	{"vague", false, func(c *Config) { c.Faults.Vague = 0 }},
	{"doubled", false, func(c *Config) { c.Faults.Doubled = 0 }},
	{"late", false, func(c *Config) { c.Faults.Tardy = 0 }},
	{"loss", false, func(c *Config) { c.Network.Loss = 0 }},
	{"encode", false, func(c *Config) { c.Network.Encode = false }},
	{"sealed", false, func(c *Config) { c.Network.Sealed = false }},
	{"spikes", false, func(c *Config) { c.Demand.Spikes = nil }},
	{"robots", false, func(c *Config) { c.People.Robots = 0 }},
	{"parallel", false, func(c *Config) { c.People.Parallel = 0 }},
	{"lost", false, func(c *Config) { c.People.Lost = 0 }},
	{"move", false, func(c *Config) { c.People.Move = 0 }},
	{"copy", false, func(c *Config) { c.People.Copy = 0 }},
	{"bound", false, func(c *Config) { c.People.Bound, c.People.Roam = false, 0 }},
	{"old", false, func(c *Config) { c.People.Old = 0 }},
	{"drop", false, func(c *Config) { c.People.Drop = 0 }},
	{"burst", false, func(c *Config) { c.People.Burst = 0 }},
	{"quit", false, func(c *Config) { c.People.Quit = 0 }},
	{"probation", false, func(c *Config) { c.Probation = 0 }},
	{"hop", false, func(c *Config) { c.People.Stay = 1 }},
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
		for _, f := range c.Faults.draw(c.Seed, c.Length) {
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
		if e.listed || slices.Contains(s.best.Without, e.name) {
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
