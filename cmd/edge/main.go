// Command edge is one edge of a waiting room: it admits or queues the visitors of its rooms and proxies admitted
// visitors to the site.
package main

import (
	"os"

	"vestibule/internal/edge/program"
)

func main() { os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr)) }
