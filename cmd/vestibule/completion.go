package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"vestibule/internal/node"
)

// verbs are what a command does, where it does several things.
var verbs = map[string][]string{
	"rooms":       {"list", "get", "create", "set", "delete", "site", "revisions", "restore", "apply", "export"},
	"events":      {"list", "get", "create", "set", "delete", "draw", "record"},
	"tokens":      {"list", "create", "revoke"},
	"audit":       {"list", "verify"},
	"fleet":       {"status", "list", "add", "drain", "remove", "trust-config", "forget", "rejoin"},
	"rules":       {"try", "list"},
	"completion":  {"bash", "zsh", "fish"},
	"nats-config": {"provision"},
}

// clientOptions are the flags of every command that asks the API.
var clientOptions = []string{"--server", "--output", "--timeout", "--help"}

const completionUsage = `usage: vestibule completion bash|zsh|fish

Prints what makes a shell complete commands, verbs and flags of vestibule:

  bash   source <(vestibule completion bash)
  zsh    source <(vestibule completion zsh)
  fish   vestibule completion fish | source
`

// completion prints a script for a shell.
func completion(args []string, stdout, stderr io.Writer) error {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		fmt.Fprint(stdout, completionUsage)
		return errHelp
	}
	if len(args) != 1 || !slices.Contains(verbs["completion"], args[0]) {
		fmt.Fprint(stderr, completionUsage)
		return node.ErrUsage
	}
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	var b strings.Builder
	switch args[0] {
	case "bash", "zsh":
		if args[0] == "zsh" {
			b.WriteString("autoload -Uz +X compinit bashcompinit && compinit && bashcompinit\n")
		}
		fmt.Fprintf(&b, "_vestibule() {\n  local cur=${COMP_WORDS[COMP_CWORD]} words=\n  case $COMP_CWORD:${COMP_WORDS[1]} in\n    1:*) words=%q ;;\n", strings.Join(names, " "))
		for _, name := range names {
			if v := verbs[name]; v != nil {
				fmt.Fprintf(&b, "    2:%s) words=%q ;;\n", name, strings.Join(v, " "))
			}
		}
		fmt.Fprintf(&b, "  esac\n  case $cur in -*) words=%q ;; esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n", strings.Join(clientOptions, " "))
		b.WriteString("  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- \"$cur\"))\n}\ncomplete -F _vestibule vestibule\n")
	case "fish":
		for _, c := range commands() {
			fmt.Fprintf(&b, "complete -c vestibule -f -n __fish_use_subcommand -a %s -d '%s'\n", c.name, strings.ReplaceAll(c.what, "'", `\'`))
			for _, v := range verbs[c.name] {
				fmt.Fprintf(&b, "complete -c vestibule -n '__fish_seen_subcommand_from %s' -a %s\n", c.name, v)
			}
		}
		for _, o := range clientOptions {
			fmt.Fprintf(&b, "complete -c vestibule -l %s\n", strings.TrimPrefix(o, "--"))
		}
	}
	_, err := io.WriteString(stdout, b.String())
	return err
}
