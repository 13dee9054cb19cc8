// Command global is the coordinator of a waiting room: it lends session permits to the data centres and publishes
// rooms and keys. Any number may run; one leads.
package main

import (
	"os"

	"vestibule/internal/global/program"
)

func main() { os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr)) }
