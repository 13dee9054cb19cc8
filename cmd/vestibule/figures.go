package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"vestibule/internal/lab/sim"
)

// figures prints what experiments from fixed seeds show, each beside its goal.
// It fails where a promise is broken; a goal that is not met is a figure too.
func figures(args []string, stdout, stderr io.Writer) error {
	f := flagSet("simulate figures", stderr)
	only := f.String("only", "", "only figures whose name contains this")
	list := f.Bool("list", false, "print their names and goals, run nothing")
	faults, err := parse(f, args, stderr)
	if err != nil {
		return err
	}
	var chosen []sim.Figure
	for _, x := range sim.Figures() {
		if strings.Contains(x.Name, *only) {
			chosen = append(chosen, x)
		}
	}
	if len(chosen) == 0 {
		faults = append(faults, fmt.Errorf("only: no figure's name contains %q", *only))
	}
	if err := refuse(f, faults, stderr); err != nil {
		return err
	}
	debug.SetGCPercent(400)
	var broken error
	for _, x := range chosen {
		if *list {
			fmt.Fprintf(stdout, "%s: %s\n", x.Name, x.Goal)
			continue
		}
		r := x.Show()
		verdict := "met"
		switch {
		case r.Fault != "":
			verdict = "BROKEN " + r.Fault
			broken = fmt.Errorf("%s: %s", x.Name, r.Fault)
		case x.Goal == "":
			verdict = "(no goal)"
		case !r.Met:
			verdict = "NOT MET"
		}
		goal := ""
		if x.Goal != "" {
			goal = "goal: " + x.Goal + "   "
		}
		fmt.Fprintf(stdout, "%s\n    %s   %s%s\n", x.Name, r.Seen, goal, verdict)
		if r.Bound != "" {
			fmt.Fprintf(stdout, "    %s\n", r.Bound)
		}
	}
	return broken
}
