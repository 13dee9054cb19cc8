// Command vestibule runs a waiting room in one process (demo, serve), operates rooms and fleets by the API and by NATS,
// and checks rules, pages, draws and limits without a fleet. docs/CLI.md lists its commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	_ "time/tzdata" // images hold no zones: a time of an operator's zone would be taken for UTC

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vestibule/internal/node"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends a command that does not stop
	os.Exit(runLasting(ctx, byName(os.Args), os.Stdout, os.Stderr))
}

// longRunning are the commands that run until they are stopped: what reads their output can neither end nor block them.
var longRunning = []string{"demo", "serve", "origin", "notify"}

func runLasting(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && slices.Contains(longRunning, args[0]) {
		out, errs := node.NewSink(stdout), node.NewSink(stderr)
		defer out.Close()
		defer errs.Close()
		stdout, stderr = out, errs
	}
	return run(ctx, args, stdout, stderr)
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		if n, ok := nodes[args[0]]; ok {
			return n.main(args[1:], stdout, stderr)
		}
	}
	root := newRootCmd(stdout, stderr)
	root.SetArgs(append([]string{}, args...)) // nil would mean those of the process
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, args, err) })
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return node.ExitOK
	}
	text := err.Error()
	if ctx.Err() != nil && !strings.HasPrefix(text, interrupted) {
		text = interrupted + ": " + text
	}
	fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), text)
	if _, ok := errors.AsType[usageError](err); ok {
		return node.ExitUsage
	}
	if _, ok := errors.AsType[*unreachableError](err); ok {
		return exitUnreachable
	}
	return node.ExitError
}

// interrupted begins what a command says that a signal ended.
const interrupted = "interrupted"

// newRootCmd returns the root command with all subcommands.
func newRootCmd(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "vestibule",
		Short: "A waiting room that holds a hard limit across data centres",
		Long: `A waiting room that holds a hard limit across data centres.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 the API is not reachable.`,
		Version:           node.BuildVersion(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	// Use has it already.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "\n  {{.CommandPath}} [command]", "", 1))
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run a waiting room:", []*cobra.Command{newDemoCmd(), newServeCmd(), newOriginCmd()}},
		{"Operate rooms by the API:", []*cobra.Command{
			newLoginCmd(), newRoomsCmd(), newEventsCmd(), newRulesCmd(), newPauseCmd(), newResumeCmd(), newReleaseCmd(),
			newMessageCmd(), newLimitsCmd(), newStatusCmd(), newVisitorCmd(), newReportCmd(), newAuditCmd(), newTokensCmd(),
			newAdminCmd(), newWebhooksCmd(),
		}},
		{"Run the nodes of a fleet:", []*cobra.Command{
			newNodeCmd("edge"), newNodeCmd("regional"), newNodeCmd("global"), newNodeCmd("nats-server"),
		}},
		{"Operate a fleet:", []*cobra.Command{newInitCmd(), newFleetCmd(), newKeysCmd(), newNATSConfigCmd(), newNotifyCmd(), newHealthCmd()}},
		{"Check and rehearse:", []*cobra.Command{newPreviewCmd(), newSimulateCmd(), newVerifyDrawCmd()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.AddCommand(newManCmd(), newVersionCmd())
	root.InitDefaultCompletionCmd()
	complete(root)
	return root
}

// complete sets the common properties of all commands: flags keep their order, and a command with subcommands requires
// one of them.
func complete(cmd *cobra.Command) {
	cmd.Flags().SortFlags, cmd.PersistentFlags().SortFlags = false, false
	cmd.SuggestionsMinimumDistance = 2
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Use += " COMMAND"
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, needsCommand
	}
	for _, c := range cmd.Commands() {
		if complete(c); c.Args == nil || cmd.Name() == "completion" { // cobra's own have no usage errors
			c.Args = named
		}
	}
}

func newVersionCmd() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Run: func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "vestibule %s\n", cmd.Root().Version)
	}}
}

// usageError means that the command line or a configuration is invalid.
type usageError string

func (e usageError) Error() string { return string(e) }

// usagef returns a usageError that points to the help.
func usagef(format string, args ...any) error {
	return usageError(fmt.Sprintf(format, args...) + " (see --help)")
}

// misuse returns a usageError that shows how the command is called.
func misuse(cmd *cobra.Command, format string, args ...any) error {
	return usageError(fmt.Sprintf(format, args...) + "\nusage: " + cmd.UseLine() + " (see --help)")
}

// refuse returns a usageError with all faults; nil for none.
func refuse(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return usageError("the flags are not valid:\n" + errors.Join(faults...).Error())
}

// needsCommand is the run function of commands that only have subcommands.
func needsCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return usageError("needs a command\n" + strings.TrimSpace(cmd.UsageString()))
}

// synonyms are words that people use for the same action.
var synonyms = [][]string{
	{"get", "show", "describe", "info", "view"},
	{"create", "add", "new", "make"},
	{"delete", "revoke", "remove", "rm"},
	{"set", "update", "edit", "change", "patch"},
	{"list", "ls"},
	{"restore", "undelete", "undo", "revert", "rollback"},
	{"resume", "unpause", "continue"},
}

func unknownCommand(cmd *cobra.Command, name string) error {
	meant := ""
	for _, words := range synonyms {
		for _, c := range cmd.Commands() {
			if slices.Contains(words, name) && slices.Contains(words, c.Name()) {
				meant = c.Name()
			}
		}
	}
	if meant == "" {
		meant = elsewhere(cmd.Root(), name)
	}
	if names := cmd.SuggestionsFor(name); meant == "" && len(names) > 0 {
		meant = names[0]
	}
	if meant != "" {
		meant = fmt.Sprintf(", did you mean %q?", meant)
	}
	return usagef("unknown command %q%s", name, meant)
}

// elsewhere returns the only command with a name below cmd, with the words before it; "" for none, or for several.
func elsewhere(cmd *cobra.Command, name string) (path string) {
	found := 0
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			if c.Name() == name && c.IsAvailableCommand() {
				path = c.CommandPath()
				found++
			}
			look(c)
		}
	}
	if look(cmd); found != 1 {
		return ""
	}
	return path
}

// named checks the arguments against those in Use: ROOM is required, [ROOM] is optional, and three dots stand for
// more.
func named(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	if i := slices.IndexFunc(names, func(name string) bool { return name[0] == '-' }); i >= 0 {
		names = names[:i] // flags follow
	}
	for i, name := range names {
		if i >= len(args) && name[0] != '[' {
			return misuse(cmd, "%s: is needed", strings.TrimSuffix(name, "..."))
		}
	}
	switch {
	case len(args) <= len(names) || len(names) > 0 && strings.Contains(names[len(names)-1], "..."):
		return nil
	case cmd.HasSubCommands():
		return unknownCommand(cmd, args[0])
	}
	meant := ""
	if key, value, pair := strings.Cut(args[len(names)], "="); pair && cmd.Flags().Lookup(key) != nil {
		meant = fmt.Sprintf(", did you mean --%s %s?", key, value)
	}
	return misuse(cmd, "unexpected argument %q%s", args[len(names)], meant)
}

// flagError returns a usageError for a flag that pflag refused. It names every value of the wrong type, whereas pflag
// stops at the first.
func flagError(cmd *cobra.Command, args []string, err error) error {
	if _, ok := errors.AsType[*pflag.InvalidValueError](err); !ok {
		if meant := meantFlag(cmd, err); meant != "" || cmd.HasSubCommands() {
			return usagef("%v%s", err, meant)
		}
		if bad, ok := errors.AsType[*pflag.NotExistError](err); ok && bad.GetSpecifiedShortnames() != "" {
			return misuse(cmd, "%v: a name that begins with - comes after --", err)
		}
		return misuse(cmd, "%v", err)
	}
	_, rest, err := cmd.Root().Find(args)
	if err != nil {
		return usagef("%v", err)
	}
	var faults []error
	err = cmd.Flags().ParseAll(rest, func(f *pflag.Flag, value string) error {
		if err := f.Value.Set(value); err != nil {
			must := "a value of type " + f.Value.Type()
			switch {
			case errors.Is(err, errTooShort):
				must = errTooShort.Error()
			case f.Value.Type() == "duration":
				must = "a duration such as 90s, 30m or 24h"
			}
			faults = append(faults, fmt.Errorf("%s: must be %s, got %q", f.Name, must, value))
		}
		return nil
	})
	if err != nil {
		faults = append(faults, fmt.Errorf("%w%s", err, meantFlag(cmd, err)))
	}
	return refuse(faults)
}

// meantFlag suggests a flag in place of one that does not exist, and KEY=VALUE for --key.
func meantFlag(cmd *cobra.Command, err error) string {
	bad, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	meant := node.MeantFlag(cmd.Flags(), bad)
	if meant == "" && strings.Contains(cmd.Use, "KEY=VALUE") {
		meant = fmt.Sprintf(", settings are given as %s=VALUE", strings.ReplaceAll(bad.GetSpecifiedName(), "-", "_"))
	}
	return meant
}

// configured adds the keys of a configuration to the flags of a command. It makes the command load the configuration,
// and then run, unless --check-config requested only its faults.
func configured(cmd *cobra.Command, cfg node.Config, run runFunc) *cobra.Command {
	load := node.Flags(cfg, cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		check, err := load()
		if err != nil {
			return usageError("the configuration is not valid:\n" + err.Error())
		}
		if check {
			return nil
		}
		return run(cmd, args)
	}
	return cmd
}

// endOnSignal restores the default action of signals, for commands that have nothing to release.
func endOnSignal(*cobra.Command, []string) { signal.Reset(os.Interrupt, syscall.SIGTERM) }

// logLevel adds the log level flag.
func logLevel(cmd *cobra.Command, level string) *string {
	to := cmd.Flags().String("log-level", level, "debug, info, warn or error")
	offer(cmd, "log-level", "debug", "info", "warn", "error")
	return to
}

// offer adds shell completions for a flag.
func offer(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	offerBy(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// offerBy adds shell completions that are computed.
func offerBy(cmd *cobra.Command, flag string, words cobra.CompletionFunc) {
	// The only errors are an unknown flag and a second registration.
	if err := cmd.RegisterFlagCompletionFunc(flag, words); err != nil {
		panic(err)
	}
}
