package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

var rewrite = flag.Bool("rewrite", false, "write docs/CLI.md anew")

// A family is a set of flags that several commands share.
type family struct {
	title string
	flags *pflag.FlagSet
}

// families returns the shared flags.
func families() []family {
	client, control, nats := &cobra.Command{}, &cobra.Command{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	(&clientFlags{}).add(client, client.Flags())
	change := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&clientFlags{}).addReason(change)
	(&controlFlags{}).add(control)
	client.Flags().VisitAll(func(f *pflag.Flag) { control.Flags().Lookup(f.Name).Hidden = true }) // they are API flags
	node.Flags(newFleetConfig(), nats)
	file := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range []string{"config", "check-config"} {
		file.AddFlag(nats.Lookup(name))
	}
	all := []family{{"file", file}, {"API", client.Flags()}, {"change", change}, {"control", control.Flags()}, {"NATS", nats}}
	for _, f := range all {
		f.flags.SortFlags = false
	}
	return all
}

// reference writes docs/CLI.md of a tree of commands.
func reference(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Commands

%s

Every command begins with %[2]svestibule%[2]s. %[2]svestibule COMMAND --help%[2]s explains it and its flags; those of
%[2]svestibule simulate%[2]s are only there. %[2]svestibule man DIR%[2]s writes manual pages, and %[2]svestibule completion%[2]s
completions for bash (with the package bash-completion), zsh, fish and PowerShell.

Commands with %[2]s--config%[2]s also read a YAML file and the environment; flags are stronger
([CONFIGURATION](CONFIGURATION.md)). This page is generated: %[2]smake golden%[2]s.
`, root.Long, "`")
	b.WriteString("\n## Shared flags\n")
	for _, f := range families() {
		fmt.Fprintf(&b, "\n%s:\n\n", f.title)
		f.flags.VisitAll(func(f *pflag.Flag) { writeFlag(&b, f) })
	}
	for _, c := range root.Commands() {
		if !c.IsAvailableCommand() || slices.Contains([]string{"completion", "help", "man"}, c.Name()) { // named above
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n", c.Name(), c.Short)
		writeCommand(&b, c)
		for _, sub := range c.Commands() {
			writeCommand(&b, sub)
		}
	}
	return b.String()
}

// writeCommand writes the usage line, where the heading does not say it, and the flags of a command. Those of a group
// are named at the group.
func writeCommand(b *strings.Builder, c *cobra.Command) {
	own, shared := []*pflag.Flag(nil), []string(nil)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		for _, fam := range families() {
			if s := fam.flags.Lookup(f.Name); s != nil && !s.Hidden && s.Usage == f.Usage && s.DefValue == f.DefValue {
				if !slices.Contains(shared, fam.title) {
					shared = append(shared, fam.title)
				}
				return
			}
		}
		if f.Name != "help" && f.Name != "no-descriptions" {
			own = append(own, f)
		}
	})
	var words []string
	if use := strings.TrimSuffix(c.UseLine(), " [flags]"); c.Parent().HasParent() {
		words = append(words, fmt.Sprintf("`%s`: %s.", strings.TrimPrefix(use, "vestibule "), c.Short))
	} else if use != c.CommandPath() && !c.HasSubCommands() { // else it says no more than the heading
		words = append(words, fmt.Sprintf("`%s`", strings.TrimPrefix(use, "vestibule ")))
	}
	if len(shared) > 0 {
		words = append(words, fmt.Sprintf("Flags: %s.", strings.Join(shared, ", ")))
	}
	if len(words) > 0 {
		fmt.Fprintf(b, "\n%s\n", strings.Join(words, " "))
	}
	if strings.HasPrefix(c.CommandPath(), "vestibule simulate") {
		return // for engineers, and many: --help has them
	}
	if len(own) > 0 {
		b.WriteString("\n")
	}
	for _, f := range own {
		writeFlag(b, f)
	}
}

func writeFlag(b *strings.Builder, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	short, def := "", strings.Trim(f.DefValue, "[]")
	if f.Shorthand != "" {
		short = "-" + f.Shorthand + ", "
	}
	if !slices.Contains([]string{"", "false", "0", "0s"}, def) {
		def = " (`" + def + "`)"
	} else {
		def = ""
	}
	fmt.Fprintf(b, "* `%s--%s`%s: %s\n", short, f.Name, def, f.Usage)
}

// TestReference: docs/CLI.md is that of the commands.
func TestReference(t *testing.T) {
	const file = "../../docs/CLI.md"
	want := reference(newRootCmd(&bytes.Buffer{}, &bytes.Buffer{}))
	if *rewrite {
		testkit.NoError(t, os.WriteFile(file, []byte(want), 0o600))
	}
	got := testkit.Must(os.ReadFile(file))(t)
	if string(got) != want {
		t.Error("docs/CLI.md is not that of the commands: make golden")
	}
	if n := len(strings.Fields(want)); n > 2750 {
		t.Errorf("docs/CLI.md has %d words, more than 2,750", n)
	}
}

// TestManualPages: every command has a manual page.
func TestManualPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if code, out := told(t.Context(), "man", dir); code != node.ExitOK {
		t.Fatalf("%d %s", code, out)
	}
	for _, name := range []string{"vestibule.1", "vestibule-rooms-apply.1", "vestibule-fleet-forget.1"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
