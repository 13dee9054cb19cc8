package ceilings

import "fmt"

// Result is the sum of many worlds.
type Result struct {
	Worlds  int
	Broken  int // worlds that broke a limit
	Over    int // worlds in which a child had more out than its ceiling
	Used    float64
	Example string
}

// RunWorlds plays worlds of successive seeds.
func RunWorlds(seed uint64, n int, trial Trial) Result {
	res := Result{Worlds: n}
	for s := seed; s < seed+uint64(n); s++ {
		w := NewWorld(s, trial)
		broke := w.Run()
		if w.judge.Ceiling != "" {
			res.Over++
		}
		if broke != "" {
			res.Broken++
		}
		if res.Example == "" && (broke != "" || w.judge.Ceiling != "") {
			res.Example = fmt.Sprintf("seed %d, %s: %s; %s", s, w, broke, w.judge.Ceiling)
		}
		res.Used += w.judge.used / float64(max(1, w.judge.looks)) / float64(n)
	}
	return res
}

// RunTrees plays trees of successive seeds.
func RunTrees(seed uint64, n int, trial Trial) Result {
	res := Result{Worlds: n}
	for s := seed; s < seed+uint64(n); s++ {
		t := NewTree(s, trial)
		if broke := t.Run(); broke != "" {
			res.Broken++
			if res.Example == "" {
				res.Example = fmt.Sprintf("seed %d: %s", s, broke)
			}
		}
		res.Used += t.used / float64(n)
	}
	return res
}

// String is the result in a line.
func (r Result) String() string {
	return fmt.Sprintf("%d of %d worlds broke a limit, %d a ceiling; use of T %.2f  %s", r.Broken, r.Worlds, r.Over, r.Used, r.Example)
}
