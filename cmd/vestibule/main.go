// Command vestibule is the one command for people: it runs a whole waiting room
// in one process (demo to try it, serve to use it), manages rooms by the API (login, rooms, events, pause, resume, release, message, limits, status, audit, tokens), tries rules (rules), rehearses one on virtual time (simulate), shows waiting
// pages before visitors see them (preview), changes the list of data centres
// (fleet), writes the configuration of NATS with credentials (nats-config), and runs a site to put behind the edges while trying them out (origin).
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"vestibule/internal/node"
)

// command is one thing that vestibule can do.
type command struct {
	name, what string
	run        func(args []string, stdout, stderr io.Writer) error
}

// commands lists what there is. It is a function since one of them tells of all.
func commands() []command {
	return []command{
		{"demo", "run a whole waiting room in one process, with a site behind it", demo},
		{"serve", "run a waiting room in one process, with its data on disk, in front of a site", serve},
		{"simulate", "run a fleet and its visitors on virtual time and judge it", simulate},
		{"preview", "show a waiting page in every state and language, or say what is wrong with it", previewPage},
		{"login", "keep the address of the API and a token", login},
		{"rooms", "show, make, change and delete rooms by the API", rooms},
		{"events", "show, make, change and delete events of a room by the API", events},
		{"rules", "show and try rules by which people walk past a room", rulesCommand},
		{"verify-draw", "repeat a draw from its public record, and check receipts", verifyDraw},
		{"pause", "let nobody new into a room for now, by the API", pause},
		{"resume", "take a pause back", resume},
		{"release", "let in the next so many of a room that is paused", release},
		{"message", "tell those who wait something for now", message},
		{"limits", "set a room's limits for now, or show what is in force", limits},
		{"status", "show how many are inside and wait, by the API", status},
		{"audit", "show who changed what, and verify that nothing of it was changed", auditLog},
		{"tokens", "show, make and revoke tokens of the API", tokens},
		{"fleet", "show and change the data centres of a fleet, or forget an edge that is gone", fleet},
		{"nats-config", "write NATS servers' configuration with a user and certificate for every node", natsConfig},
		{"origin", "run a site that counts who is in, to put behind edges", origin},
		{"completion", "print what makes a shell complete commands: bash, zsh or fish", completion},
	}
}

// errHelp says that help was asked for and given.
var errHelp = errors.New("help")

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		usage(stdout)
		if len(args) == 0 {
			return node.ExitUsage
		}
		return node.ExitOK
	}
	if args[0] == "--version" || args[0] == "version" {
		fmt.Fprintf(stdout, "vestibule %s\n", node.BuildVersion())
		return node.ExitOK
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		err := c.run(args[1:], stdout, stderr)
		switch {
		case err == nil, errors.Is(err, errHelp):
			return node.ExitOK
		case errors.Is(err, node.ErrUsage):
			return node.ExitUsage
		}
		fmt.Fprintf(stderr, "vestibule %s: %v\n", c.name, err)
		if _, ok := errors.AsType[*unreachableError](err); ok {
			return exitUnreachable
		}
		return node.ExitError
	}
	fmt.Fprintf(stderr, "vestibule: unknown command %q (see vestibule help)\n", args[0])
	return node.ExitUsage
}

// load fills cfg with what flags, files and the environment say; check is true where there is
// nothing to do but that. What is wrong is written to stderr.
func load(command string, cfg node.Config, args []string, stdout, stderr io.Writer) (check bool, err error) {
	check, err = node.Load("vestibule "+command, cfg, args, stdout)
	switch {
	case err == nil, errors.Is(err, node.ErrUsage):
		return check, err
	case errors.Is(err, node.ErrHelp):
		return false, errHelp
	}
	fmt.Fprintf(stderr, "vestibule %s: the configuration is not valid:\n%v\n", command, err)
	return false, node.ErrUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Vestibule is a waiting room that holds a hard limit across data centres.\n\nusage: vestibule COMMAND [flags]; vestibule COMMAND --help tells more; vestibule --version\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-11s %s\n", c.name, c.what)
	}
}
