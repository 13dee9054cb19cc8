// Command nats-server is nats-server of the NATS project, with its flags and configuration. In addition it takes writes
// again by itself once its disk, which was full, has space.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/nats-io/nats-server/v2/server"

	"vestibule/internal/node/natsbus/embedded"
)

func main() {
	fs := flag.NewFlagSet("nats-server", flag.ExitOnError)
	usage := func() {
		fmt.Println("usage: nats-server [flags], as nats-server of the NATS project; see docs.nats.io")
		os.Exit(0)
	}
	opts, err := server.ConfigureOptions(fs, os.Args[1:], server.PrintServerAndExit, usage, server.PrintTLSHelpAndDie)
	if err != nil {
		server.PrintAndDie("nats-server: " + err.Error())
	} else if opts.CheckConfig {
		fmt.Fprintf(os.Stderr, "nats-server: configuration file %s is valid\n", opts.ConfigFile)
		os.Exit(0)
	}
	s, err := server.NewServer(opts)
	if err != nil {
		server.PrintAndDie("nats-server: " + err.Error())
	}
	s.ConfigureLogger()
	if err := server.Run(s); err != nil {
		server.PrintAndDie("nats-server: " + err.Error())
	}
	if opts.JetStream {
		defer embedded.KeepStore(s, opts.StoreDir, opts.JetStreamDomain)()
	}
	s.WaitForShutdown()
}
