package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"vestibule/internal/lab/sim"
)

func newFiguresCmd() *cobra.Command {
	only, list := "", false
	cmd := &cobra.Command{
		Use: "figures", Short: "Print the figures of experiments with fixed seeds, each beside its goal",
		RunE: func(cmd *cobra.Command, _ []string) error { return figures(cmd.OutOrStdout(), only, list) },
	}
	cmd.Flags().StringVar(&only, "only", "", "only figures whose name contains this")
	cmd.Flags().BoolVar(&list, "list", false, "print their names and goals, run nothing")
	return cmd
}

// figures fails if a guarantee is violated; a missed goal is only reported.
func figures(stdout io.Writer, only string, list bool) error {
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
	for _, x := range chosen {
		if list {
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
