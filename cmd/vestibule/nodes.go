package main

import (
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	edge "vestibule/internal/edge/program"
	global "vestibule/internal/global/program"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus/embedded"
	regional "vestibule/internal/regional/program"
)

// nodes are the programs of a fleet, which this one contains: packages and the image carry one binary, and links to it
// with these names.
var nodes = map[string]struct {
	short string
	main  func(args []string, stdout, stderr io.Writer) int
}{
	"edge":     {"Run an edge", edge.Main},
	"regional": {"Run a regional", regional.Main},
	"global":   {"Run a global", global.Main},
	"nats-server": {"Run a NATS server", func(args []string, _, _ io.Writer) int {
		embedded.Main(args)
		return node.ExitOK
	}},
}

// byName returns the arguments of a command line without its program. That of a link such as edge is the first one.
func byName(line []string) []string {
	name := filepath.Base(line[0])
	if _, ok := nodes[name]; !ok {
		return line[1:]
	}
	return append([]string{name}, line[1:]...)
}

// newNodeCmd returns the entry of a node in the help. [run] runs the node, since it parses its flags itself.
func newNodeCmd(name string) *cobra.Command {
	return &cobra.Command{
		Use: name + " --config FILE", Short: nodes[name].short, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		Long: nodes[name].short + ".\n\nIts flags are those of the program " + name + ": vestibule " + name + " --help lists them.",
		Run:  func(*cobra.Command, []string) {},
	}
}
