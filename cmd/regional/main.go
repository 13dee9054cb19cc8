// Command regional is the aggregator of one data centre: it counts the sessions of its edges, divides the permits of
// the data centre among them, and syncs with global. Any number may run for one data centre; one leads.
package main

import (
	"os"

	"vestibule/internal/regional/program"
)

func main() { os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr)) }
