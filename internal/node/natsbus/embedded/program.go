package embedded

import (
	"flag"
	"fmt"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

// Main is the program nats-server of the NATS project, with its flags and configuration. In addition it takes writes
// again by itself once its disk, which was full, has space. It ends the process where nats-server does.
func Main(args []string) {
	fs := flag.NewFlagSet("nats-server", flag.ExitOnError)
	usage := func() {
		fmt.Println("usage: nats-server [flags], as nats-server of the NATS project; see docs.nats.io")
		os.Exit(0)
	}
	opts, err := server.ConfigureOptions(fs, args, server.PrintServerAndExit, usage, server.PrintTLSHelpAndDie)
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
		defer KeepStore(s, opts.StoreDir, opts.JetStreamDomain)()
	}
	s.WaitForShutdown()
}
