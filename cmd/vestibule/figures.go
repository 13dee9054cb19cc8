package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/sim"
)

func newFiguresCmd() *cobra.Command {
	only, file, list := "", "", false
	cmd := &cobra.Command{
		Use: "figures", Short: "Print the figures of experiments with fixed seeds, each beside its goal",
		RunE: func(cmd *cobra.Command, _ []string) error { return showFigures(cmd.OutOrStdout(), only, file, list) },
	}
	cmd.Flags().StringVar(&only, "only", "", "only figures whose name contains this")
	cmd.Flags().StringVar(&file, "json", "", "also write them to this file, in a git checkout, for docs/FIGURES.md")
	cmd.Flags().BoolVar(&list, "list", false, "print their names and goals, run nothing")
	return cmd
}

// showFigures fails if a guarantee is violated; a missed goal is only reported.
func showFigures(stdout io.Writer, only, file string, list bool) error {
	var chosen []sim.Figure
	for _, x := range sim.Figures() {
		if strings.Contains(x.Name, only) {
			chosen = append(chosen, x)
		}
	}
	if len(chosen) == 0 {
		return usagef("only: no figure's name contains %q", only)
	}
	debug.SetGCPercent(400)
	var broken error
	var measured []figures.Measured
	for _, x := range chosen {
		if list {
			fmt.Fprintf(stdout, "%s: %s\n", x.Name, x.Goal)
			continue
		}
		r := x.Show()
		measured = append(measured, figures.Measured{Key: "simulate " + x.Name, Seen: r.Seen, Missed: x.Goal != "" && !r.Met})
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
	if file != "" && broken == nil {
		return figures.Write(file, measured)
	}
	return broken
}
