package console

import (
	"regexp"
	"strings"

	"vestibule/docs"
)

// advice is the runbook's section on an alarm.
type advice struct {
	alarm string // part of the alarm's text
	steps []step
}

// step is a part of an entry, such as the action.
type step struct{ Name, Text string }

var (
	runbook = readRunbook(docs.Runbook)
	link    = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
)

// readRunbook reads the entries of a runbook: a heading with the words of an alarm, and a paragraph with its meaning,
// cause and action.
func readRunbook(text string) (all []advice) {
	for section := range strings.SplitSeq(text, "\n### ") {
		heading, rest, _ := strings.Cut(section, "\n")
		alarm, ok := strings.CutPrefix(heading, "`")
		if alarm = strings.TrimSuffix(alarm, "`"); !ok {
			continue
		}
		rest, _, _ = strings.Cut(rest, "\n## ")
		words := strings.Join(strings.Fields(link.ReplaceAllString(strings.ReplaceAll(rest, "`", ""), "$1")), " ")
		a := advice{alarm: alarm}
		for _, name := range []string{"Meaning", "Cause", "Action"} {
			_, after, ok := strings.Cut(words, name+": ")
			if !ok {
				continue
			}
			for _, end := range []string{" Cause: ", " Action: "} {
				after, _, _ = strings.Cut(after, end)
			}
			a.steps = append(a.steps, step{name, after})
		}
		all = append(all, a)
	}
	return all
}

// adviceOn returns the runbook's advice on an alarm; nil for none. The longest heading that is part of the
// alarm wins.
func adviceOn(alarm string) (steps []step) {
	longest := 0
	for _, a := range runbook {
		if len(a.alarm) > longest && strings.Contains(alarm, a.alarm) {
			longest, steps = len(a.alarm), a.steps
		}
	}
	return steps
}
